/// How does a measured timeline look to what reports on simulated ones?
#pragma once

#include "tidemark/engine/timeline.hpp"
#include "tidemark/step/step.hpp"
#include "tidemark/study/compare.hpp"

namespace tidemark {

/// Storages, ops and events as recorded: neighbouring rows that name the same op are one op, from the first row's time
/// to the last one's. Nothing is known of reads, layers or FLOPs, and no instruction is there to run again.
struct RecordedRun {
  Step step;
  Timeline timeline;
};

/// Reads the side to its end.
RecordedRun recorded_run(const Side& side);

}  // namespace tidemark
