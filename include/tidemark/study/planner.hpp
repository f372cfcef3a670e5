/// What is the cheapest plan that fits a budget, in simulated peak bytes?
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/input/scenario.hpp"
#include "tidemark/plan/plan.hpp"
#include "tidemark/program/outline.hpp"

namespace tidemark {

/// What a simulated plan takes. Of two plans that fit, the one of less time is cheaper, then of fewer recomputed FLOPs,
/// then of the lower peak.
struct PlanCost {
  Bytes peak;
  Nanos time;       // of all steps
  Flops recompute;  // of all steps
  Flops total;
  friend bool operator==(const PlanCost&, const PlanCost&) = default;
};
bool is_cheaper(const PlanCost& a, const PlanCost& b);

/// A plan that a method proposes, in words and in a framework's own flags where it has them.
struct Proposal {
  std::string method;
  std::string words;     // "the first 9 of 32 blocks in full, the next 12 core_attn"
  std::string megatron;  // "--recompute-granularity full --recompute-method block --recompute-num-layers 9"; "" without
  Plan plan;
  PlanCost cost;
};

struct PlanAnswer {
  std::optional<Proposal> best;  // nothing fits: none
  PlanCost without;              // policy none
  Bytes least_peak;              // of everything that was simulated
  Bytes static_bytes;            // live before the first op: no plan goes below
  Flops recompute_bound;         // no plan that fits recomputes fewer FLOPs in a micro-batch's forward end (see below)
  std::int64_t simulations = 0;
  Outline outline;
};

/// Method names in the order `auto` tries them.
const std::vector<std::string>& plan_methods();

/// `method`: auto, uniform, block, chen, revolve, rotor, rotor_tight, chain_exact (the last four for chains), search.
/// Every proposal is simulated in full before it counts. The bound: at the end of forward everything kept is alive, so
/// saved tensors of at least (that level without recomputation - budget) bytes are dropped, at no less than the
/// cheapest FLOPs a byte; 0 where the end of forward already fits.
/// Throws InputError for an unknown method, one that does not take the model, a budget below the static bytes.
PlanAnswer find_plan(const Scenario& scenario, Bytes budget, const std::string& method);

}  // namespace tidemark
