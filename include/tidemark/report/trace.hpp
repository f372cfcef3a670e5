/// What does the step look like in Perfetto or chrome://tracing?
#pragma once

#include "tidemark/engine/timeline.hpp"
#include "tidemark/report/csv.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// The trace-event format: a process a rank, a thread a stream, a slice an op; counters `live_bytes` and one a category
/// after each event; the peak as an instant; an arrow from each forward op to its recompute. Times ascend, in
/// microseconds with the nanoseconds as decimals. Where no time passes, each event takes one microsecond, and an op
/// lasts from its first event to its last: `otherData.clock` says which.
void write_trace(const Step& step, const Timeline& timeline, const TextSink& sink);

}  // namespace tidemark
