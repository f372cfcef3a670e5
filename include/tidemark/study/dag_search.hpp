/// Which schedule of a whole step is cheap within a memory limit, when the graph is too large for a proof?
///
/// Wishes which values to keep (dag_decoder.hpp), improved by changing them: of one row, of two, of rows that are alike
/// (equal cost, bytes, number of inputs and readers), the schedule that follows measured each time. Deterministic.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "tidemark/study/dag.hpp"

namespace tidemark {

struct DagSearchOptions {
  std::int64_t decodings = 20'000;       // at most
  std::int64_t bound = 0;                // no schedule costs less: reaching it ends the search
  std::function<bool()> stop = nullptr;  // asked now and then: true ends the search
};

struct DagSearchAnswer {
  std::optional<DagSchedule> schedule;  // the cheapest; of equal ones that of fewest runs, then the first found
  std::int64_t decodings = 0;
};

DagSearchAnswer search_dag(const Dag& dag, std::int64_t limit, const DagSearchOptions& options);

}  // namespace tidemark
