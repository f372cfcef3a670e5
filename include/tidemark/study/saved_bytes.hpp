/// What do the rules that count saved bytes propose, and not what a step really holds?
#pragma once

#include <vector>

#include "tidemark/plan/choices.hpp"
#include "tidemark/plan/plan.hpp"
#include "tidemark/program/outline.hpp"

namespace tidemark {

/// What torch.compile's activation_memory_budget does: of all that blocks save, keep what is worth the most FLOPs (or
/// ns, where layers have times) within a number of bytes, by dynamic programming in 1000 units; all else runs again in
/// one piece at the start of backward. What is rebuilt is not counted, nor what it is rebuilt from.
struct SavedChoice {
  Choices choices;
  Bytes saved;  // as the rule counts
};
SavedChoice knapsack(const Outline& outline, const std::vector<std::int64_t>& worth, Bytes most);

/// By layer and op in order: its FLOPs, or for layers with times those.
std::vector<std::int64_t> worth_of(const Outline& outline, const LayerGraph* graph);

/// Bytes that all blocks save.
Bytes saved_by_blocks(const Outline& outline);

/// Chen et al. 2016, greedy: a segment ends as soon as its blocks would save more than `most` bytes.
Choices greedy_segments(const Outline& outline, Bytes most);

}  // namespace tidemark
