/// How much must run again when what forward keeps does not fit?
#pragma once

#include "tidemark/program/outline.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// The least FLOPs a micro-batch of any plan within the budget runs again. At the end of forward everything kept is
/// alive, so what makes up the excess over the budget is dropped, and comes back at no less than the cheapest FLOPs a
/// byte. `none`: the step without recomputation.
Flops least_recompute(const Step& none, const Outline& outline, Bytes budget);

}  // namespace tidemark
