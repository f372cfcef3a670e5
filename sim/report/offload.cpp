#include "tidemark/report/offload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

namespace tidemark {
namespace {

constexpr std::size_t never = std::numeric_limits<std::size_t>::max();

/// The storage that a copy reads or makes.
StorageId touched(const Step& step, OpId copy) { return step.reads[step.ops[copy].read_begin]; }

/// Each block's bytes go to where they are when the peak is reached.
CopiedAtPeak copied_at_peak(const Step& step, const Timeline& timeline, int rank) {
  CopiedAtPeak out;
  std::map<StorageId, std::pair<std::size_t, std::size_t>> lives;  // first and last event
  for (const HostBlock& block : step.host) {
    lives.emplace(touched(step, block.out), std::pair(never, never));
    if (block.back != no_id) lives.emplace(touched(step, block.back), std::pair(never, never));
  }
  for (std::size_t i = 0; i < timeline.events.size(); ++i)
    if (const auto life = lives.find(timeline.events[i].storage); life != lives.end())
      (timeline.events[i].is_alloc() ? life->second.first : life->second.second) = i;
  const OpId at = timeline.events.empty() ? no_id : timeline.events[timeline.peak_event].op();
  const int peak_step = at == no_id ? 0 : step.ops[at].step;
  const auto begun = [&](std::size_t event) { return event <= timeline.peak_event; };
  for (const HostBlock& block : step.host) {
    const StepOp& op = step.ops[block.out];
    if (op.rank != rank || op.step != peak_step) continue;
    const auto& [made, gone] = lives.at(touched(step, block.out));
    // A block that nobody waited for never left: its storage is the one that backward reads.
    const bool returns = block.back != no_id && step.ops[block.back].stream == Stream::copy_in;
    const auto [asked, used] = returns ? lives.at(touched(step, block.back)) : std::pair(never, never);
    if (!begun(made))
      out.to_come += block.bytes;
    else if (!begun(gone))
      out.on_device += block.bytes;
    else if (!returns)
      out.done += block.bytes;
    else if (!begun(asked))
      out.on_host += block.bytes;
    else
      (begun(used) ? out.done : out.back) += block.bytes;
  }
  return out;
}

}  // namespace

std::vector<HostEvent> host_events(const Step& step, const Timeline& timeline) {
  std::vector<HostEvent> out;
  for (std::size_t i = 0; i < step.host.size(); ++i) {
    const HostBlock& block = step.host[i];
    const OpSpan& copied = timeline.ops[block.out];
    if (copied.start == OpSpan::never_ran) continue;
    out.push_back({copied.start, i, true, {}});
    if (block.back != no_id) out.push_back({std::max(timeline.ops[block.back].end, copied.end), i, false, {}});
  }
  std::ranges::sort(out, {}, [&](const HostEvent& e) {
    const HostBlock& block = step.host[e.block];
    return std::tuple(e.time, e.is_alloc ? block.out : block.back, !e.is_alloc, e.block);
  });
  std::vector<Bytes> held(static_cast<std::size_t>(step.ranks));
  for (HostEvent& event : out) {
    const HostBlock& block = step.host[event.block];
    Bytes& now = held[static_cast<std::size_t>(step.ops[block.out].rank)];
    now += event.is_alloc ? block.bytes : Bytes{} - block.bytes;
    event.held = now;
  }
  return out;
}

namespace {

Nanos waits_for_copies(const Step& step, const Timeline& timeline, int rank) {
  std::vector<OpId> recorder(step.events, no_id);
  for (const Instruction& at : step.instructions)
    if (at.what == Do::record) recorder[at.index] = at.op;
  Nanos out, done, copied, others;  // until when the next op on the compute stream waits, for what
  for (const Instruction& at : step.instructions) {
    const StepOp& op = step.ops[at.op];
    if (op.rank != rank || op.step + 1 != step.steps || at.stream != Stream::compute) continue;
    if (at.what == Do::wait) {
      const StepOp& from = step.ops[recorder[at.index]];
      const bool copies = from.stream == Stream::copy_out || from.stream == Stream::copy_in;
      Nanos& until = copies ? copied : others;
      until = std::max(until, timeline.ops[recorder[at.index]].end);
    } else if (at.what == Do::compute && timeline.ops[at.index].start != OpSpan::never_ran) {
      out += std::max(Nanos{}, copied - std::max(done, others));
      done = timeline.ops[at.index].end;
      copied = others = {};
    }
  }
  return out;
}

}  // namespace

OffloadFigures offload_figures(const Step& step, const Timeline& timeline, int rank) {
  OffloadFigures out;
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    const StepOp& op = step.ops[i];
    const OpSpan& span = timeline.ops[i];
    const bool to_host = op.stream == Stream::copy_out;
    if (op.rank != rank || op.step + 1 != step.steps || span.start == OpSpan::never_ran) continue;
    if (!to_host && op.stream != Stream::copy_in) continue;
    ++out.copies;
    out.copying += span.end - span.start;
    if (!to_host) out.copying_back += span.end - span.start;
    (to_host ? out.moved_out : out.moved_in) += op.moved;
  }
  if (out.copies == 0) return out;
  for (const HostEvent& event : host_events(step, timeline)) {
    const StepOp& op = step.ops[step.host[event.block].out];
    if (op.rank == rank && op.step + 1 == step.steps) out.host_peak = std::max(out.host_peak, event.held);
  }
  out.at_peak = copied_at_peak(step, timeline, rank);
  out.waits = waits_for_copies(step, timeline, rank);
  return out;
}

void write_host_timeline_csv(const Step& step, const Timeline& timeline, const TextSink& sink) {
  std::string text = "seq,time_ns,step,rank,event,op,tensor,bytes,host_bytes,id\n";
  std::size_t seq = 0;
  for (const HostEvent& event : host_events(step, timeline)) {
    const HostBlock& block = step.host[event.block];
    const StepOp& op = step.ops[event.is_alloc ? block.out : block.back];
    text += fmt::format("{},{},{},{},{},{},{},{},{},{}\n", seq++, event.time.count, op.step, op.rank,
                        event.is_alloc ? "alloc" : "free", csv_field(step.names[op.name]),
                        csv_field(step.names[block.name]), block.bytes.count, event.held.count, event.block);
  }
  sink(text);
}

}  // namespace tidemark
