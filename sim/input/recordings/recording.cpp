#include "tidemark/input/recording.hpp"

#include <fmt/format.h>

#include <map>
#include <string_view>
#include <unordered_map>

#include "format.hpp"
#include "unpacked.hpp"

namespace tidemark {

void recordings::fail(const std::string& path, std::int64_t row, const std::string& message) {
  throw InputError({path, static_cast<int>(row), 0}, message);
}

namespace {

using recordings::fail;

constexpr std::string_view event_csv_header = "t_us,addr,bytes,total_allocated,total_reserved";

/// The first characters of a file, unpacked, without the space before them.
std::string beginning(const std::string& path) {
  constexpr std::size_t enough = std::size_t{1} << 16;
  recordings::UnpackedFile file(path);
  std::string text;
  try {
    for (char c = 0; text.size() < enough && file.get(c);) text += c;
  } catch (const InputError&) {
    if (text.empty()) throw;  // else its reader says after which row it was cut off
  }
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first == std::string::npos ? "" : text.substr(first);
}

/// Chrome's: the object with its events, or their bare array.
bool is_trace(std::string_view text) {
  if (text.starts_with('{')) return true;
  const std::size_t second = text.find_first_not_of(" \t\r\n", 1);
  return text.starts_with('[') && second != std::string_view::npos && text[second] == '{';
}

/// minimalloc's, whose columns may stand in any order.
bool is_lifetimes(std::string_view text) {
  const std::string_view header = text.substr(0, text.find('\n'));
  return header.find("lower") != std::string_view::npos && header.find("upper") != std::string_view::npos;
}

recordings::FormatPtr opened(const std::string& path, const std::string& device) {
  const std::string text = beginning(path);
  if (text.starts_with(event_csv_header)) return recordings::open_event_csv(path);
  if (text.starts_with("seq,")) return recordings::open_timeline_csv(path);
  if (is_lifetimes(text)) return recordings::open_lifetimes_csv(path);
  if (text.starts_with('\x80')) return recordings::open_snapshot(path, device);
  if (is_trace(text)) return recordings::open_trace(path, device);
  if (text.starts_with('[')) return recordings::open_raw_timeline(path);
  fail(path, 1,
       "expected a timeline CSV, an event CSV (t_us,addr,bytes,...), lifetimes (id,lower,upper,size), a raw memory "
       "timeline or Chrome trace (JSON), or a memory snapshot (pickle)");
}

/// Is what is recorded possible at all?
class Checker {
 public:
  Checker(std::string path, bool has_addresses) : path_(std::move(path)), has_addresses_(has_addresses) {}

  /// With addresses, a block occupies [block, block + bytes).
  void check(const RecordedEvent& event) {
    if (event.bytes.count <= 0) fail(path_, event.row, fmt::format("a block of {} bytes", event.bytes.count));
    if (any_ && event.time < time_)
      fail(path_, event.row, fmt::format("time goes back from {} to {}", time_, event.time));
    if (!any_ && event.total)
      total_ = *event.total - (event.what == RecordedEvent::What::alloc ? event.bytes : Bytes{} - event.bytes);
    any_ = true;
    time_ = event.time;
    if (event.what == RecordedEvent::What::alloc) {
      if (has_addresses_) refuse_overlap(event);
      if (!live_.emplace(event.block, event.bytes).second)
        fail(path_, event.row, fmt::format("block {} is allocated while it is alive", event.block));
      total_ += event.bytes;
    } else if (event.what == RecordedEvent::What::free) {
      const auto found = live_.find(event.block);
      if (found == live_.end()) fail(path_, event.row, fmt::format("block {} is freed and was not alive", event.block));
      if (found->second != event.bytes)
        fail(path_, event.row,
             fmt::format("{} bytes are freed of a block of {}", event.bytes.count, found->second.count));
      live_.erase(found);
      if (has_addresses_) used_.erase(event.block);
      total_ -= event.bytes;
    }
    if (event.total && *event.total != total_)
      fail(path_, event.row, fmt::format("the running total is {}; expected {}", event.total->count, total_.count));
  }

 private:
  void refuse_overlap(const RecordedEvent& event) {
    const std::uint64_t end = event.block + static_cast<std::uint64_t>(event.bytes.count);
    const auto after = used_.lower_bound(event.block);
    const bool above = after != used_.end() && after->first < end;
    const bool below = after != used_.begin() && std::prev(after)->second > event.block;
    if (above || below) fail(path_, event.row, "the block overlaps one that is alive");
    used_.emplace_hint(after, event.block, end);
  }

  std::string path_;
  bool has_addresses_;
  std::unordered_map<std::uint64_t, Bytes> live_;
  std::map<std::uint64_t, std::uint64_t> used_;  // begin to end
  bool any_ = false;
  std::int64_t time_ = 0;
  Bytes total_;
};

}  // namespace

struct RecordingReader::State {
  State(std::string file, recordings::FormatPtr from)
      : path(std::move(file)), format(std::move(from)), checker(path, format->has_addresses()) {}
  std::string path;
  recordings::FormatPtr format;
  Checker checker;
  std::int64_t row = 0;
};

RecordingReader::RecordingReader(const std::string& path, const std::string& device)
    : state_(std::make_unique<State>(path, opened(path, device))) {}
RecordingReader::~RecordingReader() = default;
RecordingReader::RecordingReader(RecordingReader&&) noexcept = default;
RecordingReader& RecordingReader::operator=(RecordingReader&&) noexcept = default;

std::optional<RecordedEvent> RecordingReader::next() {
  std::optional<RecordedEvent> event;
  try {
    event = state_->format->next();
  } catch (const InputError& error) {
    if (error.where().line > 0 || state_->row == 0) throw;
    fail(state_->path, state_->row, error.message() + " after this row");
  }
  if (!event) return event;
  state_->row = event->row;
  state_->checker.check(*event);
  return event;
}

bool RecordingReader::pairs_by_size() const { return state_->format->pairs_by_size(); }

SourceLoc RecordingReader::where() const { return {state_->path, static_cast<int>(state_->row), 0}; }

RecordingKind recording_kind(const std::string& path) {
  if (path.ends_with(".csv")) {
    const std::string text = beginning(path);
    const bool is_other = text.starts_with(event_csv_header) || is_lifetimes(text);
    return is_other ? RecordingKind::other : RecordingKind::timeline;
  }
  for (const std::string_view end : {".gz", ".pickle", ".pkl"})
    if (path.ends_with(end)) return RecordingKind::other;
  if (!path.ends_with(".json")) return RecordingKind::none;
  const std::string text = beginning(path);
  const bool is_trace =
      text.find("\"traceEvents\"") != std::string::npos || text.find("\"schemaVersion\"") != std::string::npos;
  return is_trace || text.starts_with('[') ? RecordingKind::other : RecordingKind::none;
}

void read_recording(const std::string& path, const std::string& device, const RecordedSink& sink) {
  RecordingReader reader(path, device);
  while (const std::optional<RecordedEvent> event = reader.next()) sink(*event);
}

}  // namespace tidemark
