#include "tidemark/report/offload.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace tidemark {

OffloadFigures offload_figures(const Step& step, const Timeline& timeline, int rank) {
  OffloadFigures out;
  std::vector<std::pair<Nanos, Bytes>> changes;  // of host memory
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    const StepOp& op = step.ops[i];
    const OpSpan& span = timeline.ops[i];
    const bool to_host = op.stream == Stream::copy_out;
    if (op.rank != rank || op.step + 1 != step.steps || span.start == OpSpan::never_ran) continue;
    if (!to_host && op.stream != Stream::copy_in) continue;
    ++out.copies;
    out.copying += span.end - span.start;
    (to_host ? out.moved_out : out.moved_in) += op.moved;
    changes.emplace_back(to_host ? span.start : span.end, to_host ? op.moved : Bytes{} - op.moved);
  }
  // At one instant what ends goes before what starts.
  std::ranges::sort(changes);
  Bytes now;
  for (const auto& [time, change] : changes) {
    now += change;
    out.host_peak = std::max(out.host_peak, now);
  }
  return out;
}

}  // namespace tidemark
