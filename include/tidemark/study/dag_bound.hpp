/// Below which cost is there no schedule of a whole step within a memory limit, in whatever order it runs?
///
/// Take a row (the loss, say) and the moment it first runs. What its descendants read of its ancestors is alive then,
/// within the limit, or runs again after it, with all that takes. The cheapest way to have it so is a linear program;
/// the best of many moments counts.
#pragma once

#include <cstdint>
#include <functional>

#include "tidemark/study/dag.hpp"

namespace tidemark {

struct DagBound {
  std::int64_t cost = 0;  // no schedule within the limit costs less
  int programs = 0;       // linear programs solved; without a solver fractional knapsacks alone, one a row
};

/// `programs`: at most. `stop` is asked before each: true ends it.
DagBound bound_dag(const Dag& dag, std::int64_t limit, int programs, const std::function<bool()>& stop = nullptr);

}  // namespace tidemark
