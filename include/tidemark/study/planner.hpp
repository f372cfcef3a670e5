/// What is the cheapest plan that fits a budget, in simulated peak bytes?
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/input/scenario.hpp"
#include "tidemark/plan/plan.hpp"
#include "tidemark/program/outline.hpp"
#include "tidemark/study/nearest.hpp"
#include "tidemark/study/plan_evaluator.hpp"

namespace tidemark {

/// A plan that a method proposes, in words and in a framework's own where it has them.
struct Proposal {
  std::string method;
  std::string words;    // "the first 9 of 32 blocks in full, the next 12 core_attn"
  std::string express;  // in the framework that was asked for: flags, TOML, arguments, code; "" without
  Plan plan;
  PlanCost cost;
};

/// What no plan that fits goes below, and by which argument it is proven.
struct LowerBound {
  std::string proof;
  Nanos time;                   // of all steps; 0 where the model has no times
  Flops recompute;              // of all steps; 0 where nothing more is known
  std::int64_t recomputes = 0;  // ops that run again, of all steps
  bool is_tight = false;        // the best plan is proven to be optimal, within its method's kind of schedule
};

struct PlanAnswer {
  std::optional<Proposal> best;  // nothing fits: none
  PlanCost without;              // policy none
  Bytes static_bytes;            // live before the first op: no plan goes below
  LowerBound bound;
  std::vector<std::string> tried;  // methods
  std::vector<std::string> notes;  // what a method has to say beside its plan
  std::int64_t simulations = 0;
  Nearest nearest;  // where nothing fits
  Outline outline;
};

struct PlanSettings {
  std::string method = "auto";
  std::string express;              // "" or a framework: only plans that it can say
  std::string heuristic = "h_DTR";  // of method dtr
  double seconds = 60;              // after which a search or an integer program ends with what it has
};

/// Every proposal is simulated in full before it counts. docs/planners.md says what each method does and takes.
/// Throws InputError for an unknown method, one that does not take the model, a budget below the static bytes.
PlanAnswer find_plan(const Scenario& scenario, Bytes budget, const PlanSettings& settings = {});

}  // namespace tidemark
