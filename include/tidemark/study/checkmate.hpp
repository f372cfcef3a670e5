/// What is the cheapest schedule of a whole step within a memory limit, as Checkmate's integer program has it?
///
/// Jain et al. 2020: stage t computes row t for the first time; R says which rows run in a stage, S which values it
/// begins with, FREE what goes after which row, U the memory. Within a stage rows run in their own order, once at most,
/// so schedules of other shapes can be cheaper still. What stays to the end runs once.
#pragma once

#include <cstdint>
#include <optional>

#include "tidemark/study/dag.hpp"

namespace tidemark {

struct CheckmateAnswer {
  std::optional<DagSchedule> schedule;  // the cheapest found; nothing: none found, or none there where `is_proven`
  bool is_proven = false;               // optimal, or infeasible
  std::int64_t bound = 0;               // no schedule of this shape costs less
};

/// Ends at the first moment past `seconds`. Throws InputError where the build has no solver.
CheckmateAnswer checkmate(const Dag& dag, std::int64_t limit, double seconds);

/// The optimum without whole numbers, of the published constraints; nothing where even that has none.
std::optional<double> checkmate_relaxed(const Dag& dag, std::int64_t limit);

}  // namespace tidemark
