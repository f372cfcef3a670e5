/// What does a summary need to know of the scenario?
#pragma once

#include "tidemark/input/scenario.hpp"
#include "tidemark/report/summary.hpp"
#include "tidemark/study/pipeline.hpp"

namespace tidemark {

/// What the scenario alone says: name, profile, device, budget.
ScenarioFacts plain_facts(const Scenario& scenario);

/// Name, profile, device and budget; where the plan recomputes, also the peak without checkpointing (a second run of
/// the same scenario under policy none) and what the textbook formula would say.
ScenarioFacts scenario_facts(const Scenario& scenario, const Run& run);

}  // namespace tidemark
