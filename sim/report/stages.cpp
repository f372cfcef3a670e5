#include "tidemark/report/stages.hpp"

#include <algorithm>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

/// Of the last step.
bool is_pass(const Step& step, const StepOp& op) {
  return op.step + 1 == step.steps && op.stream == Stream::compute && op.phase != Phase::communication &&
         op.phase != Phase::optimizer;
}

}  // namespace

std::vector<Moment> peaks_by_rank(const Step& step, const Timeline& timeline) {
  std::vector<const MemoryEvent*> highest(static_cast<std::size_t>(step.ranks));
  for (const MemoryEvent& event : timeline.events) {
    const MemoryEvent*& peak = highest[static_cast<std::size_t>(step.storages[event.storage].rank)];
    if (event.is_alloc() && (peak == nullptr || event.live > peak->live)) peak = &event;
  }
  std::vector<Moment> out;
  for (const MemoryEvent* peak : highest) out.push_back(peak == nullptr ? Moment{} : moment_of(step, *peak));
  return out;
}

PipelineFigures pipeline_figures(const Step& step, const std::vector<OpSpan>& spans, std::vector<Moment> peaks,
                                 std::vector<std::int32_t> stands_for) {
  check(step.in_flight.size() == static_cast<std::size_t>(step.ranks), "not the step of a pipeline");
  check(peaks.size() == step.in_flight.size(), "a pipeline has one peak a stage");
  PipelineFigures out;
  out.stages.resize(step.in_flight.size());
  for (std::size_t r = 0; r < out.stages.size(); ++r) {
    out.stages[r].in_flight = step.in_flight[r];
    out.stages[r].peak = std::move(peaks[r]);
  }
  for (std::size_t r = 1; r < out.stages.size(); ++r)
    if (out.stages[r].peak.bytes > out.stages[out.worst].peak.bytes) out.worst = r;

  std::vector<Nanos> first(out.stages.size(), OpSpan::never_ran), last(out.stages.size());
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    if (!is_pass(step, step.ops[i]) || spans[i].start == OpSpan::never_ran) continue;
    const auto r = static_cast<std::size_t>(step.ops[i].rank);
    if (first[r] == OpSpan::never_ran) first[r] = spans[i].start;
    last[r] = spans[i].end;
    out.stages[r].busy += times(stands_for, i) * (spans[i].end - spans[i].start);
  }
  const StageFigures* longest = nullptr;
  for (std::size_t r = 0; r < out.stages.size(); ++r) {
    if (first[r] != OpSpan::never_ran) out.stages[r].span = last[r] - first[r];
    if (longest == nullptr || out.stages[r].span > longest->span) longest = &out.stages[r];
  }
  if (longest->span.count > 0)
    out.bubble_rate = 1 - static_cast<double>(longest->busy.count) / static_cast<double>(longest->span.count);
  out.stands_for = std::move(stands_for);
  return out;
}

void hide_other_ranks(const Step& step, int rank, std::vector<OpSpan>& spans) {
  for (std::size_t i = 0; i < step.ops.size(); ++i)
    if (step.ops[i].rank != rank) spans[i] = {};
}

}  // namespace tidemark
