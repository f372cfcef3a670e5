/// Which neighbouring blocks does a policy recompute together?
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "tidemark/plan/policy.hpp"

namespace tidemark {

/// Blocks `first`, ... `first + count - 1`, by their number among the model's blocks.
struct BlockRegion {
  std::size_t first = 0, count = 1;
  friend bool operator==(const BlockRegion&, const BlockRegion&) = default;
};

/// Of a model of so many blocks, in order; nothing for kinds whose regions follow from more than their number (rule) or
/// that are ordered already (sequence, plan). Throws InputError where a setting is out of range.
std::optional<std::vector<BlockRegion>> block_regions(const PolicyKind& kind, std::size_t blocks);

/// By block: it is in one of the ranges, or there is none. Throws InputError for a range outside the model.
std::vector<bool> blocks_in(const std::vector<std::pair<int, int>>& ranges, std::size_t blocks);

/// The policy's plan with the regions given in place of those its kind would make; for kinds that `block_regions`
/// knows.
Plan make_plan(const Policy& policy, const std::vector<BlockRegion>& regions, const Outline& outline);

}  // namespace tidemark
