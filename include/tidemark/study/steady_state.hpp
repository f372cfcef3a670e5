/// After how many steps does the allocator take no step differently from the one before?
#pragma once

#include <optional>

#include "tidemark/input/scenario.hpp"
#include "tidemark/plan/plan.hpp"
#include "tidemark/report/allocator_findings.hpp"

namespace tidemark {

/// Runs more and more steps of the scenario (64 at most) until the allocator's figures repeat: a step is steady when
/// it and every later one that was replayed, at least one, are equal in all four curves, event for event.
/// Nothing without a caching allocator, or when it runs out of memory.
std::optional<SteadyState> find_steady_state(const Scenario& scenario, const Plan& plan);

}  // namespace tidemark
