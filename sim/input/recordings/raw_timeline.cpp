// What does the profiler's raw memory timeline hold? Events [t_ns, action, bytes, category] in one array. Actions:
// 1 there before, 2 created, 3 changed (two events, the old category out and the new one in), 4 destroyed.
#include <array>
#include <deque>
#include <map>
#include <utility>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "format.hpp"
#include "json_elements.hpp"
#include "unpacked.hpp"

namespace tidemark::recordings {
namespace {

constexpr std::int64_t categories = 8;  // torch/profiler/_memory_profiler.py, _CATEGORY_TO_COLORS
enum Action : std::int64_t { preexisting = 1, created = 2, changed = 3, destroyed = 4 };

class RawTimeline : public Format {
 public:
  explicit RawTimeline(const std::string& path) : path_(path), file_(path), events_(file_, path, "") {}

  std::optional<RecordedEvent> next() override {
    while (events_.next(text_))
      if (std::optional<RecordedEvent> event = taken(values())) return event;
    return std::nullopt;
  }

  bool pairs_by_size() const override { return true; }

 private:
  std::array<std::int64_t, 4> values() const {
    const nlohmann::json event = nlohmann::json::parse(text_, nullptr, false);
    std::array<std::int64_t, 4> out{};
    bool is_good = event.is_array() && event.size() == out.size();
    for (std::size_t i = 0; is_good && i < out.size(); ++i) {
      is_good = event[i].is_number_integer();
      if (is_good) out[i] = event[i].get<std::int64_t>();
    }
    if (!is_good) fail(path_, events_.row(), "expected events [t_ns, action, bytes, category]");
    return out;
  }

  /// Nothing for the first half of a change.
  std::optional<RecordedEvent> taken(const std::array<std::int64_t, 4>& values) {
    const auto [time, action, bytes, category] = values;
    const std::int64_t row = events_.row();
    if (action < preexisting || action > destroyed) fail(path_, row, fmt::format("unknown action {}", action));
    if (category < 0 || category >= categories) fail(path_, row, fmt::format("unknown category {}", category));
    if (((bytes < 0) != (action == destroyed) && action != changed) || bytes == INT64_MIN)
      fail(path_, row, fmt::format("{} bytes", bytes));
    RecordedEvent event;
    event.row = row;
    event.time = time;
    event.category = static_cast<int>(category);
    event.is_earlier = action == preexisting;
    event.bytes = Bytes{bytes < 0 ? -bytes : bytes};
    if (bytes < 0) {
      event.block = oldest(bytes, category);
      if (action == changed) {
        moving_ = event;
        return std::nullopt;
      }
      event.what = RecordedEvent::What::free;
      return event;
    }
    if (action == changed) {
      if (!moving_ || moving_->bytes != event.bytes) fail(path_, row, "a change without its first half");
      event.what = RecordedEvent::What::category;
      event.category_before = moving_->category;
      event.block = moving_->block;
      moving_.reset();
    } else {
      event.block = next_block_++;
    }
    alive_[{bytes, category}].push_back(event.block);
    return event;
  }

  std::uint64_t oldest(std::int64_t bytes, std::int64_t category) {
    std::deque<std::uint64_t>& blocks = alive_[{-bytes, category}];
    if (blocks.empty())
      fail(path_, events_.row(), fmt::format("no block of {} bytes and category {} is alive", -bytes, category));
    const std::uint64_t block = blocks.front();
    blocks.pop_front();
    return block;
  }

  std::string path_;
  UnpackedFile file_;
  JsonElements events_;
  std::string text_;
  std::uint64_t next_block_ = 0;
  std::map<std::pair<std::int64_t, std::int64_t>, std::deque<std::uint64_t>> alive_;  // by size and category
  std::optional<RecordedEvent> moving_;
};

}  // namespace

FormatPtr open_raw_timeline(const std::string& path) { return std::make_unique<RawTimeline>(path); }

}  // namespace tidemark::recordings
