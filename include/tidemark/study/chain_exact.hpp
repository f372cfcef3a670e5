/// What is the true least time of any schedule of a chain within a memory limit, non-persistent ones included?
#pragma once

#include <optional>

#include "tidemark/study/chain_costs.hpp"

namespace tidemark {

/// The most stages that are searched: the states are pairs of subsets.
inline constexpr std::size_t max_exact_stages = 8;

/// Shortest path over (backward position, live x_i, live xbar_i), with rotor's operations and free discards; ties go to
/// the fewest operations. Nothing when no schedule fits. Throws InputError above `max_exact_stages`.
std::optional<ChainSchedule> chain_exact(const ChainCosts& costs, std::int64_t limit);

}  // namespace tidemark
