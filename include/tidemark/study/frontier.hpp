/// Which plans trade peak for time, from the least peak to no recomputation?
#pragma once

#include <vector>

#include "tidemark/study/planner.hpp"

namespace tidemark {

struct FrontierPoint {
  Bytes budget;  // that was planned for
  Proposal plan;
};

/// `points` budgets, spread evenly from the lowest peak that the method finds to that of no recomputation, planned in
/// parallel. Ascending peaks; no plan beside another that is no higher and no dearer.
std::vector<FrontierPoint> find_frontier(const Scenario& scenario, int points, const PlanSettings& settings);

/// The header and a row a point: budget_bytes, peak_bytes, time_ns, recompute_flops, total_flops, method, words,
/// sequence (plan/sequence.hpp). `outline` is that of the scenario's model.
std::string frontier_csv(const std::vector<FrontierPoint>& points, const Outline& outline);

}  // namespace tidemark
