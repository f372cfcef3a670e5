/// When the most bytes are reserved, which free parts can nothing use, and which tensors hold them apart?
#pragma once

#include <optional>

#include "tidemark/engine/timeline.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/report/allocator_findings.hpp"

namespace tidemark {

/// Runs the step once more and looks at the caching allocator's segments when `timeline`, which is of that step,
/// first reserves the most, or at the request that fails. Of several ranks, the one that reserves most or fails.
/// Nothing without a caching allocator.
std::optional<Fragmentation> find_fragmentation(const Scenario& scenario, const Step& step, const Timeline& timeline);

}  // namespace tidemark
