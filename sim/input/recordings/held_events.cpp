#include "held_events.hpp"

#include <deque>
#include <map>
#include <unordered_map>
#include <utility>

namespace tidemark::recordings {
namespace {

using Earlier = std::map<std::uint64_t, std::int64_t>;  // size by address

/// Older blocks stand first, at the time of the first event.
void put_first(const Earlier& earlier, HeldEvents& held) {
  const std::int64_t time = held.events.empty() ? 0 : held.events.front().time;
  std::vector<HeldEvent> older;
  older.reserve(earlier.size());
  for (const auto& [address, bytes] : earlier) older.push_back({0, time, address, bytes, -1, -1});
  held.events.insert(held.events.begin(), older.begin(), older.end());
}

class HeldFormat : public Format {
 public:
  explicit HeldFormat(HeldEvents held) : held_(std::move(held)) {
    if (!held_.level_before || held_.events.empty()) return;
    std::int64_t other = *held_.level_before;
    for (const HeldEvent& event : held_.events)
      if (event.row == 0) other -= event.bytes;
    if (other >= 0) first_total_ = other + held_.events.front().bytes;  // else it counts from the recording's start
  }

  std::optional<RecordedEvent> next() override {
    if (at_ == held_.events.size()) return std::nullopt;
    const HeldEvent& held = held_.events[at_];
    RecordedEvent event;
    event.row = held.row;
    event.time = held.time;
    event.what = held.bytes < 0 ? RecordedEvent::What::free : RecordedEvent::What::alloc;
    event.is_earlier = held.row == 0;
    event.block = held.address;
    event.bytes = Bytes{held.bytes < 0 ? -held.bytes : held.bytes};
    if (held.name >= 0) event.name = held_.names[static_cast<std::size_t>(held.name)];
    if (held.reserved >= 0) event.reserved = Bytes{held.reserved};
    if (at_ == 0 && first_total_) event.total = Bytes{*first_total_};
    ++at_;
    return event;
  }
  bool has_addresses() const override { return held_.has_addresses; }
  bool pairs_by_size() const override { return held_.pairs_by_size; }

 private:
  HeldEvents held_;
  std::optional<std::int64_t> first_total_;
  std::size_t at_ = 0;
};

}  // namespace

void add_earlier_blocks(HeldEvents& held, const std::vector<HeldBlock>& at_end) {
  std::unordered_map<std::uint64_t, bool> alive;  // by address: the last event of each
  Earlier earlier;
  for (const HeldEvent& event : held.events) {
    const bool is_alloc = event.bytes > 0;
    const bool is_first = alive.insert_or_assign(event.address, is_alloc).second;
    if (is_first && !is_alloc) earlier.emplace(event.address, -event.bytes);
  }
  for (const HeldBlock& block : at_end)
    if (!alive.contains(block.address)) earlier.emplace(block.address, block.bytes);
  put_first(earlier, held);
}

void pair_by_size(HeldEvents& held) {
  std::unordered_map<std::int64_t, std::deque<std::uint64_t>> alive;  // by size
  Earlier earlier;
  std::uint64_t block = 0;
  for (HeldEvent& event : held.events) {
    if (event.bytes > 0) {
      event.address = block++;
      alive[event.bytes].push_back(event.address);
      continue;
    }
    std::deque<std::uint64_t>& same = alive[-event.bytes];
    if (same.empty()) {
      event.address = block++;
      earlier.emplace(event.address, -event.bytes);
    } else {
      event.address = same.front();
      same.pop_front();
    }
  }
  held.has_addresses = false;
  held.pairs_by_size = true;
  put_first(earlier, held);
}

FormatPtr hand_out(HeldEvents held) { return std::make_unique<HeldFormat>(std::move(held)); }

}  // namespace tidemark::recordings
