#include "tidemark/report/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "text_buffer.hpp"
#include "tidemark/report/holding.hpp"
#include "tidemark/report/moment.hpp"

namespace tidemark {
namespace {

struct Slice {
  Nanos start{-1}, end{-1};
};

/// The trace's clock: the device's, or one that counts events, a microsecond each, where no time passes.
class Clock {
 public:
  Clock(const Step& step, const Timeline& timeline) : timeline_(timeline), counts_(timeline.end.count == 0) {
    slices_.resize(step.ops.size());
    if (counts_)
      count_events();
    else
      for (std::size_t i = 0; i < slices_.size(); ++i) slices_[i] = {timeline.ops[i].start, timeline.ops[i].end};
  }

  bool counts_events() const { return counts_; }
  Nanos event(std::size_t i) const { return counts_ ? at(i) : timeline_.events[i].time; }
  const Slice& op(OpId id) const { return slices_[id]; }

 private:
  static Nanos at(std::size_t event) { return Nanos{static_cast<std::int64_t>(event) * 1000}; }

  /// An op without events takes no time, where the op before it ended.
  void count_events() {
    for (std::size_t i = 0; i < timeline_.events.size(); ++i) {
      const OpId op = timeline_.events[i].op();
      if (op == no_id) continue;
      if (slices_[op].start.count < 0) slices_[op].start = at(i);
      slices_[op].end = at(i + 1);
    }
    Nanos last;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      if (timeline_.ops[i].start.count < 0) {
        slices_[i] = {};  // it never ran
        continue;
      }
      if (slices_[i].start.count < 0) slices_[i] = {last, last};
      last = slices_[i].end;
    }
  }

  const Timeline& timeline_;
  bool counts_;
  std::vector<Slice> slices_;
};

/// From the forward op to each recompute of it: the same layer and name, else the layer's last forward op (a chain's
/// Fc3 runs again as Fe3). Sorted by the forward op.
std::vector<std::pair<OpId, OpId>> recompute_arrows(const Step& step) {
  using Key = std::tuple<int, int, int, std::int32_t, NameId>;  // rank, step, micro-batch, layer, name; 0 is any name
  std::map<Key, OpId> forward;
  std::vector<std::pair<OpId, OpId>> arrows;
  for (OpId id = 0; id < step.ops.size(); ++id) {
    const StepOp& op = step.ops[id];
    const Key exact{op.rank, op.step, op.micro_batch, op.layer, op.name};
    const Key any{op.rank, op.step, op.micro_batch, op.layer, NameId{0}};
    if (op.phase == Phase::forward) {
      forward[exact] = id;
      forward[any] = id;
    } else if (op.phase == Phase::recompute) {
      auto from = forward.find(exact);
      if (from == forward.end() && op.layer >= 0) from = forward.find(any);
      if (from != forward.end()) arrows.emplace_back(from->second, id);
    }
  }
  std::ranges::sort(arrows);
  return arrows;
}

class TraceWriter {
 public:
  TraceWriter(const Step& step, const Timeline& timeline, const TextSink& sink)
      : step_(step), timeline_(timeline), clock_(step, timeline), arrows_(recompute_arrows(step)), out_(sink) {
    back_.assign(step.ops.size(), no_id);
    for (const auto& [from, to] : arrows_) back_[to] = from;
    by_category_.resize(static_cast<std::size_t>(std::max(step.ranks, 1)));
  }

  void write() {
    out_.text(R"({"displayTimeUnit":"ns","otherData":{"clock":")");
    out_.text(clock_.counts_events() ? "one microsecond an event" : "simulated time");
    out_.text(R"(","peak_bytes":)").number(timeline_.peak.count).text("},\n\"traceEvents\":[");
    names();
    std::vector<OpId> ops(step_.ops.size());
    std::iota(ops.begin(), ops.end(), OpId{0});
    std::ranges::stable_sort(ops, {}, [&](OpId id) { return clock_.op(id).start; });
    auto op = std::ranges::find_if(ops, [&](OpId id) { return clock_.op(id).start.count >= 0; });
    for (std::size_t i = 0; i < timeline_.events.size(); ++i) {
      for (; op != ops.end() && clock_.op(*op).start <= clock_.event(i); ++op) slice(*op);
      counters(i);
      if (i == timeline_.peak_event) peak(i);
    }
    for (; op != ops.end(); ++op) slice(*op);
    out_.text("\n]}\n");
    out_.flush();
  }

 private:
  /// Opens an event; the caller adds members that begin with a comma, and closes it.
  TextBuffer& begin(char kind, int rank, int thread, Nanos at) {
    out_.text(first_ ? "\n{\"ph\":\"" : ",\n{\"ph\":\"").text({&kind, 1}).text("\",\"pid\":").number(rank);
    out_.text(",\"tid\":").number(thread).text(",\"ts\":");
    first_ = false;
    return micros(at);
  }
  TextBuffer& micros(Nanos time) {
    const auto part = static_cast<int>(time.count % 1000);
    out_.number(time.count / 1000);
    if (part != 0) out_.text(fmt::format(".{:03}", part));
    return out_;
  }
  static int thread(const StepOp& op) { return static_cast<int>(op.stream); }

  void names() {
    for (int rank = 0; rank < std::max(step_.ranks, 1); ++rank) {
      begin('M', rank, 0, {}).text(R"(,"name":"process_name","args":{"name":"rank )").number(rank).text("\"}}");
      for (std::size_t stream = 0; stream < stream_names.size(); ++stream)
        begin('M', rank, static_cast<int>(stream), {})
            .text(R"(,"name":"thread_name","args":{"name":")")
            .text(stream_names[stream])
            .text("\"}}");
    }
  }

  void slice(OpId id) {
    const StepOp& op = step_.ops[id];
    const Slice& at = clock_.op(id);
    begin('X', op.rank, thread(op), at.start).text(",\"dur\":");
    micros(at.end - at.start).text(",\"name\":").string(step_.names[op.name]);
    out_.text(",\"cat\":\"").text(to_string(op.phase)).text("\",\"args\":{\"seq\":").number(id);
    out_.text(",\"step\":").number(op.step).text(",\"layer\":").string(layer_name(step_, op.layer));
    out_.text(",\"phase\":\"").text(to_string(op.phase)).text("\",\"flops\":").number(op.flops);
    out_.text(",\"bytes_moved\":").number(op.moved.count);
    out_.text(",\"peak_bytes\":").number(timeline_.ops[id].peak.count);
    out_.text(",\"end_bytes\":").number(timeline_.ops[id].after.count).text("}}");
    const auto from = std::ranges::lower_bound(arrows_, std::pair{id, OpId{0}});
    for (auto arrow = from; arrow != arrows_.end() && arrow->first == id; ++arrow)
      flow('s', op, at.start, arrow->second);
    if (back_[id] != no_id) flow('f', op, at.start, id);
  }

  void flow(char kind, const StepOp& op, Nanos at, OpId recompute) {
    begin(kind, op.rank, thread(op), at).text(R"(,"name":"recompute","cat":"recompute","id":)").number(recompute);
    out_.text(kind == 'f' ? R"(,"bp":"e"})" : "}");
  }

  void counters(std::size_t i) {
    const MemoryEvent& event = timeline_.events[i];
    const StepStorage& storage = step_.storages[event.storage];
    auto& level = by_category_[static_cast<std::size_t>(storage.rank)][static_cast<std::size_t>(storage.category)];
    level += event.is_alloc() ? storage.bytes : Bytes{} - storage.bytes;
    counter(i, storage.rank, "live_bytes", event.live);
    counter(i, storage.rank, to_string(storage.category), level);
  }
  void counter(std::size_t i, int rank, std::string_view name, Bytes bytes) {
    begin('C', rank, 0, clock_.event(i)).text(",\"name\":\"").text(name).text("\",\"args\":{\"bytes\":");
    out_.number(bytes.count).text("}}");
  }

  void peak(std::size_t i) {
    const MemoryEvent& event = timeline_.events[i];
    const StepOp* op = event.op() == no_id ? nullptr : &step_.ops[event.op()];
    begin('i', step_.storages[event.storage].rank, op == nullptr ? 0 : thread(*op), clock_.event(i));
    out_.text(R"(,"s":"p","name":"peak","cat":"memory","args":{"bytes":)").number(event.live.count).text(",\"in\":");
    out_.string(op == nullptr
                    ? "at the start"
                    : phase_of_work(op->phase, step_.names[op->name], std::string(layer_name(step_, op->layer))));
    out_.text("}}");
  }

  const Step& step_;
  const Timeline& timeline_;
  Clock clock_;
  std::vector<std::pair<OpId, OpId>> arrows_;
  std::vector<OpId> back_;                                             // the forward op of a recompute
  std::vector<std::array<Bytes, category_names.size()>> by_category_;  // by rank
  TextBuffer out_;
  bool first_ = true;
};

}  // namespace

void write_trace(const Step& step, const Timeline& timeline, const TextSink& sink) {
  TraceWriter(step, timeline, sink).write();
}

}  // namespace tidemark
