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

}  // namespace

Plan plan_of(const Scenario& scenario, const Outline& outline) { return make_plan(scenario.policy, outline); }

Step lower(const Scenario& scenario, const Plan& plan) {
  if (scenario.pipeline) {
    const StageChunks stages = lower_chunks(scenario);
    return weave_stages(scenario, stages.chunks, stages.schedule, scenario.pipeline->stage);
  }
  Step step = std::visit([&](const auto& model) { return lower_model(model, plan, scenario); }, scenario.model);
  keep_cublas_workspace(step, cublas_workspace(scenario));
  return step;
}

Step lower(const Scenario& scenario, const Program& program, const std::vector<Kernel>& kernels, const Plan& plan,
           std::vector<StepPart>& parts) {
  Step step = lower(program, kernels, plan, scenario.training, parts);
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

namespace {

void take(Allocation allocation, Run& run) {
  run.timeline = std::move(allocation.timeline);
  run.findings = std::move(allocation.findings);
  run.arena = std::move(allocation.arena);
  run.notes = std::move(allocation.notes);
}

Run run_model(const Scenario& scenario, const Plan& plan) {
  Run out;
  out.step = lower(scenario, plan);
  take(simulate_with_allocator(scenario, out.step), out);
  return out;
}

/// By stage: the peaks of the same pipeline without its copies.
void compare_without_copies(Scenario scenario, PipelineFigures& figures) {
  scenario.policy.offload.reset();
  for (Policy& policy : scenario.pipeline->policies) policy.offload.reset();
  const StageChunks stages = lower_chunks(scenario);
  in_parallel(figures.stages.size(), [&](std::size_t stage) {
    const StagesRun run = run_stages(scenario, stages, static_cast<int>(stage), false);
    figures.stages[stage].without_copies = peaks_by_rank(run.step, run.allocation.timeline)[stage].bytes;
  });
}

Run run_pipeline(const Scenario& scenario) {
  const std::optional<int> stage = scenario.pipeline->stage;
  const StageChunks stages = lower_chunks(scenario);
  StagesRun shown = run_stages(scenario, stages, stage, true);
  Timeline& timeline = shown.allocation.timeline;
  std::vector<Moment> peaks = peaks_by_rank(shown.step, timeline);
  const auto others = [&](std::size_t other) {
    if (static_cast<int>(other) == *stage) return;
    const StagesRun run = run_stages(scenario, stages, static_cast<int>(other), false);
    peaks[other] = peaks_by_rank(run.step, run.allocation.timeline)[other];
  };
  if (stage) in_parallel(peaks.size(), others);
  Run out;
  out.pipeline = pipeline_figures(shown.step, timeline.ops, std::move(peaks), std::move(shown.stands_for));
  if (has_copies(stages.chunks)) compare_without_copies(scenario, *out.pipeline);
  if (stage) hide_other_ranks(shown.step, *stage, timeline.ops);
  take(std::move(shown.allocation), out);
  out.step = std::move(shown.step);
  return out;
}

}  // namespace

Run run(const Scenario& scenario) {
  try {
    Outline whole = outline(scenario);
    Plan plan = plan_of(scenario, whole);
    Run result = scenario.pipeline ? run_pipeline(scenario) : run_model(scenario, plan);
    result.outline = std::move(whole);
    result.plan = std::move(plan);
    return result;
  } catch (const InputError& error) {
    if (!error.where().file.empty() || scenario.file.empty()) throw;
    std::string message = error.what();
    if (const std::string prefix = "error: "; message.starts_with(prefix)) message = message.substr(prefix.size());
    throw InputError({scenario.file}, message);
  }
}

}  // namespace tidemark
