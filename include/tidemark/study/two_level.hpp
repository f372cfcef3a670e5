/// Which checkpoints of a uniform chain should lie in memory, and which behind a slower link?
///
/// Herrmann and Pallez 2020 (H-Revolve) for two levels: a checkpoint in memory costs nothing to write and read, one on
/// the other level costs both, and nothing runs meanwhile. All steps are alike.
#pragma once

#include <cstdint>
#include <string>

#include "tidemark/base/units.hpp"

namespace tidemark {

struct TwoLevelCosts {
  std::int64_t forward = 1, backward = 1, write = 0, read = 0;  // in any one unit
};

struct TwoLevelSchedule {
  Int128 makespan = 0;   // each step's last forward included
  std::string sequence;  // rotor's letters, with Outx and Inx
};

/// The least makespan of n >= 1 steps with `memory` >= 1 slots there and `outer` >= 0 on the other level. Takes n^2 / 2
/// x min(outer, n) steps; from n slots on the outer level is without limit, and they are n^2 / 2.
TwoLevelSchedule two_level(std::int64_t n, std::int64_t memory, std::int64_t outer, const TwoLevelCosts& costs);

}  // namespace tidemark
