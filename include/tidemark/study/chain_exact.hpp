/// What is the true least time of any schedule of a chain within a memory limit, non-persistent ones included?
#pragma once

#include <optional>

#include "tidemark/study/chain_costs.hpp"

namespace tidemark {

/// The most stages that a state has room for.
inline constexpr std::size_t max_exact_stages = 63;

struct ChainExact {
  std::optional<ChainSchedule> schedule;  // the optimum; nothing: no schedule fits, or the states ran out
  bool is_proven = false;
  std::int64_t bound = 0;  // no schedule takes less
};

/// Shortest path over (backward position, live x_i, live xbar_i), with rotor's operations and free discards, guided by
/// what must still run at least; ties go to the fewest operations. Ends without a schedule, but with a bound, when
/// `most_states` have been reached. Throws InputError above `max_exact_stages`.
ChainExact chain_exact(const ChainCosts& costs, std::int64_t limit, std::size_t most_states = 2'000'000);

}  // namespace tidemark
