#include "tidemark/study/pipeline.hpp"

#include <utility>
#include <variant>

#include "tidemark/base/errors.hpp"
#include "tidemark/step/lower.hpp"
#include "tidemark/step/workspaces.hpp"
#include "tidemark/study/allocation.hpp"

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

Run run(const Scenario& scenario) {
  try {
    Run result;
    result.outline = outline(scenario);
    result.plan = plan_of(scenario, result.outline);
    result.step = lower(scenario, result.plan);
    Allocation allocation = simulate_with_allocator(scenario, result.step);
    result.timeline = std::move(allocation.timeline);
    result.findings = std::move(allocation.findings);
    result.arena = std::move(allocation.arena);
    result.notes = std::move(allocation.notes);
    return result;
  } catch (const InputError& error) {
    if (!error.where().file.empty() || scenario.file.empty()) throw;
    std::string message = error.what();
    if (const std::string prefix = "error: "; message.starts_with(prefix)) message = message.substr(prefix.size());
    throw InputError({scenario.file}, message);
  }
}

}  // namespace tidemark
