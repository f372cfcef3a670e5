// What does our own timeline CSV say as a recording?
#include "format.hpp"
#include "tidemark/input/timeline_file.hpp"

namespace tidemark::recordings {
namespace {

class TimelineCsv : public Format {
 public:
  explicit TimelineCsv(const std::string& path) : reader_(path) {}

  std::optional<RecordedEvent> next() override {
    const std::optional<TimelineRow> row = reader_.next();
    if (!row) return std::nullopt;
    RecordedEvent event;
    event.row = reader_.where().line;
    event.time = row->time.count;
    event.what = row->is_alloc ? RecordedEvent::What::alloc : RecordedEvent::What::free;
    event.block = row->id;
    event.bytes = row->bytes;
    event.name = row->tensor;
    event.total = row->live;
    event.reserved = row->reserved;
    return event;
  }

 private:
  TimelineReader reader_;
};

}  // namespace

FormatPtr open_timeline_csv(const std::string& path) { return std::make_unique<TimelineCsv>(path); }

}  // namespace tidemark::recordings
