#include "tidemark/report/stages.hpp"

#include <algorithm>
#include <utility>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

/// Of the last step.
bool is_pass(const Step& step, const StepOp& op) {
  return op.step + 1 == step.steps && op.stream == Stream::compute && op.phase != Phase::communication &&
         op.phase != Phase::optimizer;
}

/// By op: how long the transfers take that it waits for.
std::vector<Nanos> awaited(const Step& step, const std::vector<OpSpan>& spans) {
  std::vector<OpId> senders(step.events, no_id);
  for (const Instruction& at : step.instructions)
    if (at.what == Do::record && at.stream == Stream::comm) senders[at.index] = at.op;
  std::vector<Nanos> out(step.ops.size());
  for (const Instruction& at : step.instructions) {
    if (at.what != Do::wait || at.stream != Stream::compute || senders[at.index] == no_id) continue;
    const OpSpan& transfer = spans[senders[at.index]];
    out[at.op] = std::max(out[at.op], transfer.end - transfer.start);
  }
  return out;
}

/// Of each gap before an op on a stage's compute stream, the part that transfers it waits for can explain.
void add_exposed(const Step& step, const std::vector<OpSpan>& spans, PipelineFigures& figures) {
  struct Rank {
    Nanos end = OpSpan::never_ran;
    Nanos blocked;   // by the transfer that it sent last
    Nanos at_cycle;  // exposed before the first op of those that stand for more
    bool stands_for_more = false;
  };
  std::vector<Rank> ranks(figures.stages.size());
  const std::vector<Nanos> transfers = awaited(step, spans);
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    const StepOp& op = step.ops[i];
    if (op.step + 1 != step.steps || op.phase == Phase::optimizer || spans[i].start == OpSpan::never_ran) continue;
    Rank& rank = ranks[static_cast<std::size_t>(op.rank)];
    if (op.stream != Stream::compute && op.stream != Stream::comm) continue;
    if (op.stream == Stream::comm) {
      rank.blocked = transfers[i];
      continue;
    }
    const std::int64_t count = times(figures.stands_for, i);
    Nanos exposed;
    if (rank.end != OpSpan::never_ran)
      exposed = std::min(spans[i].start - rank.end, transfers[i] + std::exchange(rank.blocked, {}));
    if (count > 1 && !rank.stands_for_more) rank.at_cycle = exposed;
    if (count == 1 && rank.stands_for_more) exposed = rank.at_cycle;  // what stood before it was left out
    rank.stands_for_more = count > 1;
    rank.end = spans[i].end;
    figures.stages[static_cast<std::size_t>(op.rank)].exposed += count * exposed;
  }
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
  add_exposed(step, spans, out);
  return out;
}

void hide_other_ranks(const Step& step, int rank, std::vector<OpSpan>& spans) {
  for (std::size_t i = 0; i < step.ops.size(); ++i)
    if (step.ops[i].rank != rank) spans[i] = {};
}

}  // namespace tidemark
