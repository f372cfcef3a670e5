/// The whole program in five calls: scenario, plan, step, timeline, summary.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tidemark/engine/arena.hpp"
#include "tidemark/engine/timeline.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/plan/plan.hpp"
#include "tidemark/program/outline.hpp"
#include "tidemark/report/allocator_findings.hpp"
#include "tidemark/report/stages.hpp"
#include "tidemark/step/lower.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

struct Run {
  Outline outline;
  Plan plan;
  Step step;
  Timeline timeline;                        // of the stage that the scenario names, or of all
  std::optional<PipelineFigures> pipeline;  // of all stages
  AllocatorFindings findings = {};
  std::optional<Arena> arena = {};
  std::vector<std::string> notes = {};  // the allocator's
};

/// What the scenario's policy decides about its model.
Plan plan_of(const Scenario& scenario, const Outline& outline);
/// Lowers the scenario's model under a plan; a pipeline's stages under their policies.
Step lower(const Scenario& scenario, const Plan& plan);
/// The same of a program made for the scenario and its kernels, and the Step's parts.
Step lower(const Scenario& scenario, const Program& program, const std::vector<Kernel>& kernels, const Plan& plan,
           std::vector<StepPart>& parts);
/// Plan, lower and simulate. Mistakes without a place of their own name the scenario's file.
Run run(const Scenario& scenario);

}  // namespace tidemark
