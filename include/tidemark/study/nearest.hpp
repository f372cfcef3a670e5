/// Where nothing fits a budget: what is the lowest peak of any plan that is known, and what is alive there?
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tidemark/study/plan_evaluator.hpp"

namespace tidemark {

/// Of all plans that were simulated, whatever the method, the one of the lowest peak.
struct Nearest {
  Bytes peak;                                        // within the budget: another method has a plan that fits
  std::string op;                                    // that runs at the peak
  std::vector<std::pair<std::string, Bytes>> alive;  // there, the largest first
};

/// Simulates more plans of low peaks first: segments of every length; of chains revolve's in few slots, and
/// rotor_tight's within the least limit that has one; of whole steps a short search's within the least limit that has
/// one. `as_it_is`: only what was simulated before, so that the peak is one of those.
Nearest find_nearest(PlanEvaluator& evaluator, Bytes budget, bool as_it_is);

}  // namespace tidemark
