/// In which order do the chosen recomputations stand among the backward steps?
#pragma once

#include "tidemark/plan/choices.hpp"
#include "tidemark/plan/plan.hpp"
#include "tidemark/plan/policy.hpp"

namespace tidemark {

/// Every layer forward, the loss, every layer backward in reverse, and before some backward op the ops that run again:
///
///   per_segment    the whole region, before the backward of its last op
///   just_in_time   before each backward op that takes what was dropped: the ops it takes that from, as far as they
///                  have not run again yet. The last op of a whole segment takes from all of it, so there it is
///                  per_segment; side branches of a graph and single ops wait longer
///   up_front       all regions, in forward order, right after the loss
///   on_grad_of     the whole region, before the backward of the named op of its last block; a module's name stands
///                  for its last op
///
/// With `nested` (per_segment only) a region of several blocks is first run again up to its last inner region, saving
/// only the inputs of the inner ones; then each inner region is rebuilt, by the same rule, before its own backward.
Plan put_in_order(const Choices& choices, const Policy& policy, const Outline& outline);

}  // namespace tidemark
