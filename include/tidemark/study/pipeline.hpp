/// The whole program in five calls: scenario, plan, step, timeline, summary.
#pragma once

#include "tidemark/engine/timeline.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/plan/plan.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

struct Run {
  Plan plan;
  Step step;
  Timeline timeline;
};

/// Plan, lower and simulate a scenario.
Run run(const Scenario& scenario);

}  // namespace tidemark
