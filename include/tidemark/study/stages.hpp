/// How does a scenario's pipeline become one Step?
#pragma once

#include "tidemark/input/scenario.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// All stages of `scenario.pipeline`, each chunk lowered under its stage's policy.
Step lower_stages(const Scenario& scenario);

}  // namespace tidemark
