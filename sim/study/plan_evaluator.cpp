#include "tidemark/study/plan_evaluator.hpp"

#include <algorithm>
#include <tuple>
#include <variant>

#include "tidemark/engine/simulate.hpp"
#include "tidemark/step/op_times.hpp"
#include "tidemark/study/pipeline.hpp"

namespace tidemark {

bool is_cheaper(const PlanCost& a, const PlanCost& b) {
  return std::tuple(a.time, a.recompute, a.recomputes, a.peak) < std::tuple(b.time, b.recompute, b.recomputes, b.peak);
}

PlanEvaluator::PlanEvaluator(const Scenario& scenario) : scenario_(scenario), outline_(outline(scenario)) {
  const bool reference = scenario.training.profile.runtime == "reference";
  if (const auto* spec = std::get_if<TransformerSpec>(&scenario.model))
    scenario_.model = make_transformer(*spec, scenario.training);
  else if (const auto* mlp = std::get_if<MlpSpec>(&scenario.model); mlp != nullptr && !reference)
    scenario_.model = make_mlp(*mlp, scenario.training);
}

Step PlanEvaluator::lowered(const Plan& plan) const { return lower(scenario_, plan); }

PlanCost PlanEvaluator::cost(const Plan& plan) {
  const Step step = lowered(plan);
  PlanCost out;
  const bool copies = std::ranges::any_of(step.ops, [](const StepOp& op) { return op.stream != Stream::compute; });
  if (copies) {  // when they end decides what is there at once
    const Timeline timeline = simulate(step, scenario_.device);
    out.peak = timeline.peak;
    out.time = timeline.end;
  } else {
    out.peak = live_peak(step).bytes;
    const OpTimes times(scenario_.device);
    for (const StepOp& op : step.ops) out.time += times.of(op);
  }
  for (const StepOp& op : step.ops) {
    out.total += Flops{op.flops};
    if (op.phase != Phase::recompute) continue;
    out.recompute += Flops{op.flops};
    ++out.recomputes;
  }
  if (simulations_++ == 0 || out.peak < least_peak_) {
    least_peak_ = out.peak;
    lowest_ = plan;
  }
  return out;
}

Plan PlanEvaluator::plan_of(const PolicyKind& kind) const {
  Policy policy = scenario_.policy;
  policy.kind = kind;
  if (std::holds_alternative<policy::Sequence>(kind)) {  // it says itself when it recomputes
    policy.schedule = RecomputeSchedule::per_segment;
    policy.on_grad_of.clear();
    policy.nested.clear();
  }
  return make_plan(policy, outline_);
}

Plan PlanEvaluator::plan_of(const Choices& choices, RecomputeSchedule schedule) const {
  Policy policy = scenario_.policy;
  policy.kind = policy::None{};
  policy.schedule = schedule;
  if (schedule != RecomputeSchedule::on_grad_of) policy.on_grad_of.clear();
  if (schedule != RecomputeSchedule::per_segment) policy.nested.clear();
  return make_plan(choices, policy, outline_);
}

}  // namespace tidemark
