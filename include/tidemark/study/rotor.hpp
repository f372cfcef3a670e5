/// What is the least time of a memory-persistent schedule of a heterogeneous chain within a memory limit?
///
/// The dynamic program of Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova 2019 (rotor): T(i, l, m), the least time to
/// bring the gradient from behind stage l to behind stage i - 1 when x_i is there and m is free besides it.
#pragma once

#include <optional>

#include "tidemark/study/chain_costs.hpp"

namespace tidemark {

enum class RotorVariant : std::uint8_t {
  published,  // as printed: every saved stage is charged its own output's gradient, every checkpoint the widest forward
  tight,      // each branch charged what is live in it, no more and no less
};

/// Nothing when no persistent schedule fits. Time L^3 M / 6 additions, memory L^2 M / 2 words for M = `limit` units;
/// stages of one length are independent and run in parallel.
std::optional<ChainSchedule> rotor(const ChainCosts& costs, std::int64_t limit,
                                   RotorVariant variant = RotorVariant::published);

}  // namespace tidemark
