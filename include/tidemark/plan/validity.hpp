/// Can this plan run on this model at all?
#pragma once

#include "tidemark/plan/plan.hpp"
#include "tidemark/program/outline.hpp"

namespace tidemark {

/// Throws InputError that names the first step at fault:
///   - it names a layer or op that is not there, or ops out of order;
///   - an op runs forward twice, or again before it ran, or the loss does not stand once between forward and backward;
///   - an op runs backward twice, never, or before an op that reads its output has;
///   - an op runs backward when what it saved is gone;
///   - an op runs again outside of any region, when a framework is to carry the plan out;
///   - a layer runs, or runs backward, when the output of a block that it reads has been given up. Fn gives up the
///     output of a block that no other layer reads, Dx and Dxbar what they name. Outputs with several readers, and
///     those of layers that are no blocks, stay as long as somebody reads them.
/// Where the rows are the whole step, each runs forward once and after what it reads, and nothing but forward,
/// recompute and drop has a meaning; whether what a step reads is still there, lowering says.
void check_plan(const Plan& plan, const Outline& outline);

}  // namespace tidemark
