/// What does a plan take on a scenario, in simulated peak bytes, time and FLOPs?
#pragma once

#include <cstdint>

#include "tidemark/input/scenario.hpp"
#include "tidemark/plan/choices.hpp"
#include "tidemark/plan/plan.hpp"
#include "tidemark/program/outline.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// What a simulated plan takes. Of two plans that fit, the one of less time is cheaper, then of fewer recomputed FLOPs,
/// then of fewer recomputes, then of the lower peak.
struct PlanCost {
  Bytes peak;
  Nanos time;       // of all steps
  Flops recompute;  // of all steps
  Flops total;
  std::int64_t recomputes = 0;  // ops that ran again
  friend bool operator==(const PlanCost&, const PlanCost&) = default;
};
bool is_cheaper(const PlanCost& a, const PlanCost& b);

/// The scenario with its model built once, so that a plan costs a lowering and a scan. Of all plans that were asked
/// for, the one of the lowest peak is remembered.
class PlanEvaluator {
 public:
  explicit PlanEvaluator(const Scenario& scenario);

  PlanCost cost(const Plan& plan);
  /// The scenario's policy with another rule.
  Plan plan_of(const PolicyKind& kind) const;
  /// Choices in order, the scenario's policy saying the rest.
  Plan plan_of(const Choices& choices, RecomputeSchedule schedule) const;
  Step lowered(const Plan& plan) const;

  const Scenario& scenario() const { return scenario_; }
  const Outline& model() const { return outline_; }
  std::int64_t simulations() const { return simulations_; }
  Bytes least_peak() const { return least_peak_; }
  const Plan& lowest() const { return lowest_; }

 private:
  Scenario scenario_;
  Outline outline_;
  std::int64_t simulations_ = 0;
  Bytes least_peak_;
  Plan lowest_;
};

}  // namespace tidemark
