/// Where in a plan do copies to the host and back stand?
#pragma once

#include "tidemark/plan/plan.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/program/outline.hpp"

namespace tidemark {

/// Adds the copies that `offload` asks for to a plan without any.
///
/// Out stands behind the block's forward; where what a layer saved is one storage with its output (layer graphs),
/// behind the last that reads it. In stands `prefetch` blocks before the first step of backward that takes something
/// of it, the last blocks' right after the loss.
///
/// Throws InputError where the settings do not fit the model: patterns that match nothing or whose ops hold nothing
/// that could move, layers out of range, a fraction outside 0 to 1.
void add_copies(const Offload& offload, const Outline& outline, Plan& plan);

}  // namespace tidemark
