/// How does a scenario's step run with the scenario's allocator?
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tidemark/engine/arena.hpp"
#include "tidemark/engine/timeline.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/report/allocator_findings.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

struct Allocation {
  Timeline timeline;               // with the allocator's figures, when one is modelled
  AllocatorFindings findings;      // retries, the arena's figures
  std::optional<Arena> arena;      // of kind arena: offsets, by lifetime
  std::vector<std::string> notes;  // what a user should know of them, in sentences
};
Allocation simulate_with_allocator(const Scenario& scenario, const Step& step);

}  // namespace tidemark
