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

PipelineFigures pipeline_figures(const Step& step, const Timeline& timeline) {
  check(step.in_flight.size() == static_cast<std::size_t>(step.ranks), "not the step of a pipeline");
  PipelineFigures out;
  out.stages.resize(step.in_flight.size());
  for (std::size_t r = 0; r < out.stages.size(); ++r) out.stages[r].in_flight = step.in_flight[r];
  for (const MemoryEvent& event : timeline.events) {
    StageFigures& stage = out.stages[static_cast<std::size_t>(step.storages[event.storage].rank)];
    if (event.is_alloc() && event.live > stage.peak.bytes) stage.peak = moment_of(step, event);
  }
  for (std::size_t r = 1; r < out.stages.size(); ++r)
    if (out.stages[r].peak.bytes > out.stages[out.worst].peak.bytes) out.worst = r;

  std::vector<Nanos> first(out.stages.size(), OpSpan::never_ran), last(out.stages.size());
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    if (!is_pass(step, step.ops[i]) || timeline.ops[i].start == OpSpan::never_ran) continue;
    const auto r = static_cast<std::size_t>(step.ops[i].rank);
    if (first[r] == OpSpan::never_ran) first[r] = timeline.ops[i].start;
    last[r] = timeline.ops[i].end;
    out.stages[r].busy += timeline.ops[i].end - timeline.ops[i].start;
  }
  const StageFigures* longest = nullptr;
  for (std::size_t r = 0; r < out.stages.size(); ++r) {
    if (first[r] != OpSpan::never_ran) out.stages[r].span = last[r] - first[r];
    if (longest == nullptr || out.stages[r].span > longest->span) longest = &out.stages[r];
  }
  if (longest->span.count > 0)
    out.bubble_rate = 1 - static_cast<double>(longest->busy.count) / static_cast<double>(longest->span.count);
  return out;
}

Timeline view_of_rank(const Step& step, const Timeline& timeline, int rank) {
  Timeline out;
  out.end = timeline.end;
  out.ops = timeline.ops;
  for (std::size_t i = 0; i < step.ops.size(); ++i)
    if (step.ops[i].rank != rank) out.ops[i] = {};
  const AllocatorColumn& from = timeline.allocator;
  for (std::size_t i = 0; i < timeline.events.size(); ++i) {
    const MemoryEvent& event = timeline.events[i];
    const bool failed = timeline.out_of_memory && timeline.out_of_memory->event == i;
    if (step.storages[event.storage].rank != rank) continue;
    if (failed) {
      out.out_of_memory = timeline.out_of_memory;
      out.out_of_memory->event = out.events.size();
    }
    if (event.live > out.peak) {
      out.peak = event.live;
      out.peak_event = out.events.size();
    }
    out.events.push_back(event);
    if (i >= from.allocated.size()) continue;
    out.allocator.allocated.push_back(from.allocated[i]);
    out.allocator.active.push_back(from.active[i]);
    out.allocator.reserved.push_back(from.reserved[i]);
    out.allocator.inactive_split.push_back(from.inactive_split[i]);
  }
  return out;
}

}  // namespace tidemark
