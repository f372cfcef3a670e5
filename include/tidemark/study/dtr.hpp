/// What does online eviction do to a log of operators under a budget?
///
/// Dynamic tensor rematerialization (Kirisame et al. 2021): before an operator runs, what it reads is locked, and made
/// again where it is gone; then values of the lowest score go until its output fits. A value that the program lets go
/// of goes at once, and comes back when somebody needs it. What the program still holds at the end is made again and
/// stays.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/study/dag.hpp"

namespace tidemark {

/// With c the cost of a value, m its bytes and s the time since its last access: which value goes first, the one of the
/// least score; of equal scores the one that became evictable last.
enum class DtrHeuristic : std::uint8_t {
  h_dtr,     // (c + c of evicted ancestors and descendants) / (m s)
  h_dtr_eq,  // the same of evicted neighbours' classes, kept by union-find
  h_local,   // c / (m s)
  lru,       // time of the last access
  size,      // 1 / m
  msps,      // (c + c of evicted ancestors) / m
};
/// h_DTR, h_DTR_eq, h_local, h_LRU, h_size, h_MSPS.
std::optional<DtrHeuristic> find_heuristic(const std::string& name);
const std::vector<std::string>& heuristic_names();

struct DtrLog {
  enum class What : std::uint8_t { constant, call, release };
  struct Command {
    What what = What::call;
    std::int32_t value = 0;
  };
  std::vector<std::int64_t> cost, bytes;           // by value; of a constant's making: 0
  std::vector<std::vector<std::int32_t>> parents;  // by value: what its operator reads, as often as it does
  std::vector<Command> commands;
};

struct DtrRun {
  enum class End : std::uint8_t { ok, out_of_memory, thrashing } end = End::ok;
  std::int64_t model_cost = 0, again_cost = 0, peak = 0;
  std::vector<DagMove> moves;  // runs and evictions, those at a release included
};

/// `most_again`: costs of repetition after which the run ends as thrashing.
DtrRun run_dtr(const DtrLog& log, std::int64_t budget, DtrHeuristic heuristic, std::int64_t most_again);

/// The run as a schedule: a value that came back and that nobody evicted stays to the end, as it did.
DagSchedule dtr_schedule(const DtrRun& run, const Dag& dag);

/// A whole step as its program would run it: rows in their order, each value let go of after its last reader; under
/// convention dtr (`Dag::stays`) rows that read nothing are constants, and what stays is held.
DtrLog dtr_log(const Dag& dag);

}  // namespace tidemark
