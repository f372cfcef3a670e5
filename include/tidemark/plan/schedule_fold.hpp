/// Which middle of a pipeline's schedule repeats, so that a shorter one says all of it?
///
/// A *cut* of a schedule is a part of each rank's list, from its start, that waits for nothing outside the cut. Where
/// the lists repeat, each with `group` micro-batches more, so do the cuts; what stands between two of them is a
/// *period*. A schedule with some periods left out is one of fewer micro-batches.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "tidemark/plan/pipeline_schedule.hpp"

namespace tidemark {

struct ScheduleFold {
  PipelineSchedule schedule;             // with periods left out, the micro-batches behind them numbered anew
  int kept = 0;                          // periods before those left out
  int left_out = 0;                      // periods
  int group = 1;                         // micro-batches a period
  int depth = 1;                         // a pass waits for none that is more periods before it
  std::vector<std::size_t> cut, period;  // by rank: passes before those left out, and of a period
};

/// How many periods stay before those left out, and behind them; how many are left out is a multiple of `cycle`.
struct FoldSize {
  int before = 1, behind = 1, cycle = 1;
};

/// Leaves out as many periods as there are beside those; nothing where that is none. `schedule` must be checked. Linear
/// in passes.
std::optional<ScheduleFold> fold(const PipelineSchedule& schedule, const FoldSize& size);

}  // namespace tidemark
