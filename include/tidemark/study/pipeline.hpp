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
#include "tidemark/step/step.hpp"

namespace tidemark {

struct Run {
  Outline outline;
  Plan plan;
  Step step;
  Timeline timeline;
  AllocatorFindings findings = {};
  std::optional<Arena> arena = {};
  std::vector<std::string> notes = {};  // the allocator's
};

/// What the scenario's policy decides about its model.
Plan plan_of(const Scenario& scenario, const Outline& outline);
/// Lowers the scenario's model under a plan.
Step lower(const Scenario& scenario, const Plan& plan);
/// Plan, lower and simulate. Mistakes without a place of their own name the scenario's file.
Run run(const Scenario& scenario);

}  // namespace tidemark
