#include "tidemark/report/collectives.hpp"

#include <algorithm>
#include <vector>

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

CollectiveFigures collective_figures(const Step& step, const Timeline& timeline) {
  CollectiveFigures out;
  if (step.ranks > 1) return out;
  std::vector<OpSpan> comm, compute;
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    const StepOp& op = step.ops[i];
    const OpSpan& span = timeline.ops[i];
    if (op.step + 1 != step.steps || span.start == OpSpan::never_ran) continue;
    if (op.stream == Stream::compute) compute.push_back(span);
    if (op.stream != Stream::comm) continue;
    comm.push_back(span);
    ++out.count;
    out.received += op.moved;
    out.busy += span.end - span.start;
  }
  out.exposed = outside(comm, compute);
  return out;
}

}  // namespace tidemark
