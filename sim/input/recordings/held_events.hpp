/// What does a recording say that has been read whole, and may have begun in the middle of a run?
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format.hpp"

namespace tidemark::recordings {

/// An alloc or a free of the block at an address.
struct HeldEvent {
  std::int64_t row = 0, time = 0;  // row 0: a block older than the recording
  std::uint64_t address = 0;
  std::int64_t bytes = 0;      // negative: freed
  std::int64_t reserved = -1;  // -1: not recorded
  std::int64_t name = -1;      // index in HeldEvents::names; -1: not known
};
struct HeldBlock {
  std::uint64_t address = 0;
  std::int64_t bytes = 0;
};
struct HeldEvents {
  std::vector<HeldEvent> events;
  std::vector<std::string> names;
  bool has_addresses = true;
  bool pairs_by_size = false;
  /// Level before the first event that is not of an older block; blocks that no event speaks of included.
  std::optional<std::int64_t> level_before = {};
};

/// Puts before the events an alloc of each block that they free without one, or that is `at_end` without one.
void add_earlier_blocks(HeldEvents& held, const std::vector<HeldBlock>& at_end);

/// The same where no addresses are known: each free is of the oldest block of its size, or of one older than the
/// recording. `address` becomes the number of the block.
void pair_by_size(HeldEvents& held);

FormatPtr hand_out(HeldEvents held);

}  // namespace tidemark::recordings
