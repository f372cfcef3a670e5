#include "tidemark/study/pipeline.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "tidemark/base/errors.hpp"
#include "tidemark/step/lower.hpp"
#include "tidemark/step/workspaces.hpp"
#include "tidemark/study/allocation.hpp"
#include "tidemark/study/stages.hpp"

namespace tidemark {
namespace {

Step lower_model(const LayerGraph& graph, const Plan& plan, const Scenario& scenario) {
  return lower(graph, plan, scenario.convention, scenario.training.loop.steps);
}

Step lower_model(const MlpSpec& spec, const Plan& plan, const Scenario& scenario) {
  if (scenario.training.profile.runtime == "reference") return lower_reference(spec, plan, scenario.training);
  return lower(make_mlp(spec, scenario.training), plan, scenario.training);
}

Step lower_model(const TransformerSpec& spec, const Plan& plan, const Scenario& scenario) {
  if (scenario.training.profile.model_code == "llm.c") return lower_llmc(spec, plan, scenario.training);
  return lower(make_transformer(spec, scenario.training), plan, scenario.training);
}

Step lower_model(const Program& program, const Plan& plan, const Scenario& scenario) {
  return lower(program, plan, scenario.training);
}

/// What the device's cuBLAS keeps; kernels of other devices have none.
Bytes cublas_workspace(const Scenario& scenario) {
  const std::string& kernels = scenario.training.profile.kernels;
  if (!kernels.starts_with("cuda-") && kernels != "transformer-engine") return {};
  const auto found = scenario.device.workspaces.find("cublas");
  return found == scenario.device.workspaces.end() ? Bytes{} : found->second;
}

}  // namespace

Plan plan_of(const Scenario& scenario, const Outline& outline) { return make_plan(scenario.policy, outline); }

Step lower(const Scenario& scenario, const Plan& plan) {
  Step step = std::visit([&](const auto& model) { return lower_model(model, plan, scenario); }, scenario.model);
  keep_cublas_workspace(step, cublas_workspace(scenario));
  return step;
}

Step lower(const Scenario& scenario, const Program& program, const Plan& plan, std::vector<StepPart>& parts) {
  Step step = lower(program, plan, scenario.training, parts);
  const std::size_t known = step.storages.size();
  keep_cublas_workspace(step, cublas_workspace(scenario));
  // Each workspace's allocation stands in the part that needs it: parts behind it begin one later.
  for (std::size_t k = 0; k < step.instructions.size(); ++k) {
    const Instruction& at = step.instructions[k];
    if (at.what != Do::alloc || static_cast<std::size_t>(at.index) < known) continue;
    for (StepPart& part : parts)
      if (part.instruction > k) ++part.instruction;
  }
  return step;
}

Run run(const Scenario& scenario) {
  try {
    Run result;
    result.outline = outline(scenario);
    result.plan = plan_of(scenario, result.outline);
    result.step = scenario.pipeline ? lower_stages(scenario) : lower(scenario, result.plan);
    Allocation allocation = simulate_with_allocator(scenario, result.step);
    result.timeline = std::move(allocation.timeline);
    result.findings = std::move(allocation.findings);
    result.arena = std::move(allocation.arena);
    result.notes = std::move(allocation.notes);
    if (!scenario.pipeline) return result;
    result.pipeline = pipeline_figures(result.step, result.timeline);
    if (const auto stage = scenario.pipeline->stage)
      result.timeline = view_of_rank(result.step, result.timeline, *stage);
    return result;
  } catch (const InputError& error) {
    if (!error.where().file.empty() || scenario.file.empty()) throw;
    std::string message = error.what();
    if (const std::string prefix = "error: "; message.starts_with(prefix)) message = message.substr(prefix.size());
    throw InputError({scenario.file}, message);
  }
}

}  // namespace tidemark
