#include "tidemark/report/collectives.hpp"

#include <algorithm>
#include <vector>

#include "tidemark/report/stages.hpp"

namespace tidemark {
namespace {

/// The part of `comm` that lies in none of `compute`; both in order of time, without overlaps of their own.
Nanos outside(const std::vector<OpSpan>& comm, const std::vector<OpSpan>& compute) {
  Nanos out;
  std::size_t first = 0;
  for (const OpSpan& span : comm) {
    out += span.end - span.start;
    while (first < compute.size() && compute[first].end <= span.start) ++first;
    for (std::size_t i = first; i < compute.size() && compute[i].start < span.end; ++i)
      out -= std::min(compute[i].end, span.end) - std::max(compute[i].start, span.start);
  }
  return out;
}

}  // namespace

/// On the compute stream the rank waits for them; on the comm stream they may hide behind what is computed.
CollectiveFigures collective_figures(const Step& step, const Timeline& timeline, std::int16_t rank,
                                     const std::vector<std::int32_t>& stands_for) {
  CollectiveFigures out;
  std::vector<OpSpan> comm, compute;
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    const StepOp& op = step.ops[i];
    const OpSpan& span = timeline.ops[i];
    if (op.rank != rank || op.step + 1 != step.steps || span.start == OpSpan::never_ran) continue;
    const bool exchanges = op.kind == OpKind::collective;
    if (op.stream == Stream::compute && !exchanges) compute.push_back(span);
    if (!exchanges) continue;
    const std::int64_t count = times(stands_for, i);
    const Nanos length = span.end - span.start;
    out.count += static_cast<std::size_t>(count);
    out.received += Bytes{count * op.moved.count};
    out.busy += count * length;
    if (op.stream == Stream::comm)
      comm.push_back(span);
    else
      out.exposed += count * length;
  }
  out.exposed += outside(comm, compute);
  return out;
}

}  // namespace tidemark
