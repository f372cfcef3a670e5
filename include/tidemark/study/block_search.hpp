/// Which parts of which blocks should a model of layers run again, found with the simulator in the loop?
///
/// Blocks of many ops: levels of recomputation (norms and activations, attention, the whole block, ...), two at a time,
/// each over a run of blocks, the fewest that fit. Blocks of one op: any set of layers, in any segments, improved by
/// single changes.
#pragma once

#include <functional>
#include <string>

#include "tidemark/study/plan_evaluator.hpp"

namespace tidemark {

/// Takes words, the plan and what it takes.
using Offer = std::function<void(std::string, Plan, const PlanCost&)>;

/// Programs.
void search_levels(PlanEvaluator& evaluator, Bytes budget, const Offer& offer);

/// Chains and layer graphs. At most `plans` of them.
void search_layers(PlanEvaluator& evaluator, Bytes budget, int plans, const Offer& offer);

}  // namespace tidemark
