/// What does a recorded run look like, and what would an allocator with other settings have reserved for it?
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/base/units.hpp"

namespace tidemark {

/// One rise and fall of the level: from the lowest quarter of its range into the highest and back.
struct Tide {
  Bytes floor;  // lowest level before it rises
  Bytes peak;
  std::optional<Bytes> backward_end;  // level when its last autograd_detail byte goes; with categories only
  friend bool operator==(const Tide&, const Tide&) = default;
};

/// An allocator's answer to the recording.
struct ReplayRow {
  std::string setting;
  Bytes allocated_peak, reserved_peak;
  std::int64_t retries = 0;
  std::optional<std::int64_t> out_of_memory_row;
  std::optional<Bytes> lower_bound = {};  // of an arena: none is lower
  bool above_capacity = false;            // of an arena
  friend bool operator==(const ReplayRow&, const ReplayRow&) = default;
};

/// By category of the profiler's raw timeline.
inline constexpr std::array<const char*, 8> recorded_categories = {
    "parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd_detail", "unknown"};

struct ReplayTable {
  std::string recording;
  std::int64_t events = 0;
  Bytes before;  // alive before the recording began; taken as one block
  Bytes peak, floor, end;
  std::optional<Bytes> recorded_reserved;  // at most, as recorded
  std::vector<Tide> tides;
  std::optional<std::array<Bytes, recorded_categories.size()>> category_peaks;
  std::vector<ReplayRow> rows;
  std::vector<std::string> warnings;
};

std::string replay_text(const ReplayTable& table);
std::string replay_json(const ReplayTable& table);

}  // namespace tidemark
