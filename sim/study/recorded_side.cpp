#include <array>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "tidemark/input/recording.hpp"
#include "tidemark/study/compare.hpp"

namespace tidemark {
namespace {

/// Rows of what a recording hands out, their times from its first event on.
class RecordedRows {
 public:
  std::optional<TimelineRow> next(RecordingReader& reader) {
    while (const std::optional<RecordedEvent> event = reader.next()) {
      if (event->what == RecordedEvent::What::category) continue;
      TimelineRow row;
      row.is_alloc = event->what == RecordedEvent::What::alloc;
      if (event->total && !level_) level_ = *event->total - (row.is_alloc ? event->bytes : Bytes{} - event->bytes);
      level_ = level_.value_or(Bytes{}) + (row.is_alloc ? event->bytes : Bytes{} - event->bytes);
      if (!event->is_earlier && !start_) start_ = event->time;
      row.time = Nanos{start_ ? event->time - *start_ : 0};
      row.phase = event->is_earlier ? std::optional(Phase::initial) : std::nullopt;
      row.tensor = event->name;
      row.category = category_of(*event, row.is_alloc);
      row.bytes = event->bytes;
      row.live = *level_;
      row.id = event->block;
      return row;
    }
    return std::nullopt;
  }

 private:
  /// That a block is born with, also at its end.
  std::optional<Category> category_of(const RecordedEvent& event, bool is_alloc) {
    if (!event.category) return std::nullopt;
    if (is_alloc) born_[event.block] = *event.category;
    // in the order of the profiler's; what it does not know is in none of ours
    constexpr std::array<std::optional<Category>, 8> known = {
        Category::parameter,  Category::optimizer_state, Category::input,           Category::temporary,
        Category::activation, Category::gradient,        Category::autograd_detail, std::nullopt};
    const auto category = static_cast<std::size_t>(born_[event.block]);
    if (!is_alloc) born_.erase(event.block);
    return known[category];
  }

  std::optional<Bytes> level_;
  std::optional<std::int64_t> start_;
  std::unordered_map<std::uint64_t, int> born_;
};

std::int64_t granularity_of(const std::string& path, const std::string& device) {
  constexpr std::int64_t of_gpu = 512;
  RecordingReader reader(path, device);
  while (const std::optional<RecordedEvent> event = reader.next())
    if (event->bytes.count % of_gpu != 0) return 1;
  return of_gpu;
}

}  // namespace

Side recorded_side(std::string name, const std::string& path, const std::string& device) {
  Side side;
  side.name = std::move(name);
  side.is_measured = side.is_bare = true;
  side.granularity = granularity_of(path, device);
  const auto reader = std::make_shared<RecordingReader>(path, device);
  side.pairs_by_size = reader->pairs_by_size();
  side.where = [reader] { return reader->where(); };
  side.next = [reader, row = RecordedRows()]() mutable { return row.next(*reader); };
  return side;
}

}  // namespace tidemark
