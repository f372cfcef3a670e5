/// How does a scenario's step run with the scenario's allocator?
#pragma once

#include <string>
#include <vector>

#include "tidemark/engine/timeline.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

struct Allocation {
  Timeline timeline;               // with the allocator's figures, when one is modelled
  std::vector<std::string> notes;  // what a user should know of them, in sentences
};
Allocation simulate_with_allocator(const Scenario& scenario, const Step& step);

}  // namespace tidemark
