#include "tidemark/study/pipeline.hpp"

#include "tidemark/engine/simulate.hpp"
#include "tidemark/step/kernel.hpp"

namespace tidemark {
namespace {

struct Lowering {
  Plan plan;
  Step step;
};

Lowering lower_program(const Scenario& scenario, const Program& program) {
  const KernelSet kernels(scenario.training.profile.kernels);
  Plan plan = make_plan(scenario.policy, outline(program, kernels));
  Step step = lower(program, plan, scenario.training);
  return {std::move(plan), std::move(step)};
}

Lowering lower_model(const Scenario& scenario, const LayerGraph& graph) {
  Plan plan = make_plan(scenario.policy, outline(graph));
  Step step = lower(graph, plan, scenario.convention, scenario.training.loop.steps);
  return {std::move(plan), std::move(step)};
}

Lowering lower_model(const Scenario& scenario, const MlpSpec& spec) {
  const Program program = make_mlp(spec, scenario.training);
  if (scenario.training.profile.runtime != "reference") return lower_program(scenario, program);
  Plan plan = make_plan(scenario.policy, outline(program, KernelSet(scenario.training.profile.kernels)));
  Step step = lower_reference(spec, plan, scenario.training);
  return {std::move(plan), std::move(step)};
}

Lowering lower_model(const Scenario& scenario, const TransformerSpec& spec) {
  return lower_program(scenario, make_transformer(spec, scenario.training));
}

}  // namespace

Run run(const Scenario& scenario) {
  Lowering lowered = std::visit([&](const auto& model) { return lower_model(scenario, model); }, scenario.model);
  Timeline timeline = simulate(lowered.step, scenario.device);
  return {std::move(lowered.plan), std::move(lowered.step), std::move(timeline)};
}

}  // namespace tidemark
