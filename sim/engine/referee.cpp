#include "tidemark/engine/referee.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace tidemark {
namespace {

constexpr std::size_t none = Violation::no_event;
constexpr std::size_t before_all = none - 1;  // where the initial storages are allocated

/// One storage: what the Step says (instructions, ops) and what the timeline says (events).
struct Life {
  OpId alloc_op = no_id, free_op = no_id;
  std::size_t alloc_at = none, free_at = none;
  std::size_t alloc_event = none, free_event = none;
};

/// Each check answers whether all is well, and leaves the first violation.
class Referee {
 public:
  Referee(const Step& step, std::span<const MemoryEvent> events) : step_(step), events_(events) {}

  bool read_step();
  bool check_events();
  bool check_end();
  bool check_reads();
  bool check_peak(const Timeline& timeline);
  bool check_spans(const std::vector<OpSpan>& spans);
  bool check_host(const std::vector<OpSpan>& spans);
  std::optional<Violation> found() && { return std::move(found_); }

 private:
  /// When all that was issued to each stream of a rank, waits included, is done.
  using Clocks = std::array<Nanos, stream_names.size()>;

  bool check_pair(std::size_t i);
  bool check_total(std::size_t i);
  bool check_order(std::size_t i);
  bool ends_script(std::size_t i) const;
  bool check_kernels(const std::vector<OpSpan>& spans);
  bool walk(const std::vector<OpSpan>& spans, bool judge);
  bool judge_span(const Instruction& at, const std::vector<OpSpan>& spans, const Clocks& clocks);
  bool judge_reads(const Instruction& at, const std::vector<OpSpan>& spans);
  bool judge_event(const Instruction& at, Nanos due);

  template <class... Args>
  bool fail(Fault fault, std::size_t event, OpId op, fmt::format_string<Args...> text, Args&&... args) {
    found_ = {fault, event, op, fmt::format(text, std::forward<Args>(args)...)};
    return false;
  }
  std::string name(StorageId id) const { return "'" + step_.names[step_.storages[id].name] + "'"; }
  std::string op(OpId id) const {
    return id >= step_.ops.size() ? "no op" : "op '" + step_.names[step_.ops[id].name] + "'";
  }
  std::size_t rank(const Instruction& at) const {
    return at.op == no_id ? 0 : static_cast<std::size_t>(step_.ops[at.op].rank);
  }
  std::span<const StorageId> reads(OpId id) const {
    const StepOp& op = step_.ops[id];
    return std::span(step_.reads).subspan(op.read_begin, op.read_end - op.read_begin);
  }
  bool freed_at_once(const Life& life) const { return step_.instructions[life.free_at].stream == Stream::compute; }

  const Step& step_;
  std::span<const MemoryEvent> events_;
  std::vector<Life> lives_;
  std::vector<std::int32_t> kernels_;  // by op: how often its kernel stands in the step
  std::vector<Bytes> live_;            // by rank
  std::vector<std::size_t> issued_;    // by rank: one past the latest instruction seen among the events
  std::vector<Nanos> recorded_;        // by the step's event id
  std::optional<Violation> found_;
};

/// Who allocates, who frees, and how often each kernel stands in the list.
bool Referee::read_step() {
  lives_.resize(step_.storages.size());
  kernels_.resize(step_.ops.size());
  for (const StorageId id : step_.initial) {
    if (id >= lives_.size()) return fail(Fault::unknown, none, no_id, "initial storage {} is not in the step", id);
    lives_[id].alloc_at = before_all;
  }
  for (std::size_t i = 0; i < step_.instructions.size(); ++i) {
    const Instruction& at = step_.instructions[i];
    const bool memory = at.what == Do::alloc || at.what == Do::free;
    const bool kernel = at.what == Do::compute || at.what == Do::copy;
    const std::size_t ids = memory ? lives_.size() : kernel ? kernels_.size() : step_.events;
    if (at.index >= ids || (at.op != no_id && at.op >= kernels_.size()))
      return fail(Fault::unknown, none, no_id, "instruction {} names what is not in the step", i);
    if (kernel) ++kernels_[at.index];
    if (!memory) continue;
    Life& life = lives_[at.index];
    const bool alloc = at.what == Do::alloc;
    if ((alloc ? life.alloc_at : life.free_at) != none) continue;  // a second one shows among the events
    (alloc ? life.alloc_at : life.free_at) = i;
    (alloc ? life.alloc_op : life.free_op) = at.op;
  }
  return true;
}

bool Referee::check_events() {
  live_.assign(static_cast<std::size_t>(step_.ranks), Bytes{});
  issued_.assign(live_.size(), 0);
  Nanos now;
  for (std::size_t i = 0; i < events_.size(); ++i) {
    const MemoryEvent& event = events_[i];
    if (event.storage >= lives_.size())
      return fail(Fault::unknown, i, event.op(), "storage {} is not in the step", event.storage);
    if (event.time < now)
      return fail(Fault::time_goes_back, i, event.op(), "{} at {} ns stands after an event at {} ns",
                  name(event.storage), event.time.count, now.count);
    now = event.time;
    if (!check_pair(i) || !check_total(i) || !check_order(i)) return false;
  }
  return true;
}

bool Referee::check_pair(std::size_t i) {
  const MemoryEvent& event = events_[i];
  const std::string_view verb = event.is_alloc() ? "allocates" : "frees";
  Life& life = lives_[event.storage];
  std::size_t& seen = event.is_alloc() ? life.alloc_event : life.free_event;
  if (seen != none)
    return fail(event.is_alloc() ? Fault::double_alloc : Fault::double_free, i, event.op(), "{} {} {} again",
                op(event.op()), verb, name(event.storage));
  if (!event.is_alloc() && life.alloc_event == none)
    return fail(Fault::free_of_nothing, i, event.op(), "{} frees {}, which is not allocated", op(event.op()),
                name(event.storage));
  if ((event.is_alloc() ? life.alloc_at : life.free_at) == none)
    return fail(Fault::unknown, i, event.op(), "{} {} {}, which the step does not", op(event.op()), verb,
                name(event.storage));
  const OpId due = event.is_alloc() ? life.alloc_op : life.free_op;
  if (event.op() != due)
    return fail(Fault::wrong_op, i, event.op(), "{} {} {}, which is for {} to do", op(event.op()), verb,
                name(event.storage), op(due));
  seen = i;
  return true;
}

bool Referee::check_total(std::size_t i) {
  const MemoryEvent& event = events_[i];
  const StepStorage& storage = step_.storages[event.storage];
  Bytes& live = live_[static_cast<std::size_t>(storage.rank)];
  live = event.is_alloc() ? live + storage.bytes : live - storage.bytes;
  if (event.live == live) return true;
  return fail(Fault::wrong_total, i, event.op(), "{} bytes are said to be live after {} {}, but {} are",
              event.live.count, event.is_alloc() ? "the alloc of" : "the free of", name(event.storage), live.count);
}

/// What takes effect when it is issued, allocs and the compute stream's frees, keeps the host's order. A free of
/// another stream may come later, but not sooner.
bool Referee::check_order(std::size_t i) {
  const MemoryEvent& event = events_[i];
  const Life& life = lives_[event.storage];
  const std::size_t at = event.is_alloc() ? life.alloc_at : life.free_at;
  std::size_t& issued = issued_[static_cast<std::size_t>(step_.storages[event.storage].rank)];
  if (at == before_all ? issued == 0 : at >= issued) {
    if (at != before_all && (event.is_alloc() || freed_at_once(life))) issued = at + 1;
    return true;
  }
  if (at != before_all && !event.is_alloc() && !freed_at_once(life)) return true;
  return fail(Fault::wrong_order, i, event.op(), "the {} of {} was issued before what stands above it",
              event.is_alloc() ? "alloc" : "free", name(event.storage));
}

/// Nothing of the step is missing, and nothing stays that must not.
bool Referee::check_end() {
  for (StorageId s = 0; s < lives_.size(); ++s) {
    const Life& life = lives_[s];
    if (life.alloc_at != none && life.alloc_event == none)
      return fail(Fault::missing_event, none, life.alloc_op, "{} allocates {}, but no event says so", op(life.alloc_op),
                  name(s));
    if (life.free_at != none && life.free_event == none)
      return fail(Fault::missing_event, none, life.free_op, "{} frees {}, but no event says so", op(life.free_op),
                  name(s));
    if (life.alloc_at != none && life.free_at == none && !step_.storages[s].outlives_step)
      return fail(Fault::leak, life.alloc_event, life.alloc_op, "{}, allocated by {}, is never freed", name(s),
                  op(life.alloc_op));
  }
  return true;
}

/// In host order: what a kernel touches is allocated before it is issued, and freed later. (That the events keep this
/// order was checked with them.)
bool Referee::check_reads() {
  for (std::size_t i = 0; i < step_.instructions.size(); ++i) {
    const Instruction& at = step_.instructions[i];
    if (at.what != Do::compute && at.what != Do::copy) continue;
    for (const StorageId id : reads(at.index)) {
      if (id >= lives_.size())
        return fail(Fault::unknown, none, at.index, "{} reads storage {}, which is not in the step", op(at.index), id);
      if (step_.storages[id].bytes.count == 0) continue;
      const Life& life = lives_[id];
      if (life.alloc_at != before_all && (life.alloc_at == none || life.alloc_at > i))
        return fail(Fault::read_of_nothing, none, at.index, "{} reads {}, which is not allocated", op(at.index),
                    name(id));
      if (life.free_at != none && life.free_at < i)
        return fail(Fault::read_of_freed, life.free_event, at.index, "{} reads {}, which {} freed", op(at.index),
                    name(id), op(life.free_op));
    }
  }
  return true;
}

bool Referee::check_peak(const Timeline& timeline) {
  Bytes peak;
  std::size_t where = 0;
  for (std::size_t i = 0; i < events_.size(); ++i)
    if (events_[i].live > peak) {
      peak = events_[i].live;
      where = i;
    }
  if (timeline.peak != peak || timeline.peak_event != where)
    return fail(Fault::wrong_peak, where, no_id,
                "the peak is said to be {} bytes at event {}, but it is {} at event {}", timeline.peak.count,
                timeline.peak_event, peak.count, where);
  for (std::size_t i = 0; i < events_.size(); ++i) {
    const OpId id = events_[i].op();
    if (id == no_id) continue;
    if (events_[i].is_alloc() && timeline.ops[id].peak < events_[i].live)
      return fail(Fault::wrong_peak, i, id, "{} is said to peak at {} bytes, but reaches {}", op(id),
                  timeline.ops[id].peak.count, events_[i].live.count);
    if (ends_script(i) && timeline.ops[id].after != events_[i].live)
      return fail(Fault::wrong_peak, i, id, "{} is said to leave {} bytes, but leaves {}", op(id),
                  timeline.ops[id].after.count, events_[i].live.count);
  }
  return true;
}

/// Is this event the last thing its op does? (Of the compute stream's ops only: others end when their stream does.)
bool Referee::ends_script(std::size_t i) const {
  const Life& life = lives_[events_[i].storage];
  const std::size_t at = events_[i].is_alloc() ? life.alloc_at : life.free_at;
  const OpId id = events_[i].op();
  if (step_.ops[id].stream != Stream::compute || (!events_[i].is_alloc() && !freed_at_once(life))) return false;
  return at + 1 == step_.instructions.size() || step_.instructions[at + 1].op != id;
}

bool Referee::check_kernels(const std::vector<OpSpan>& spans) {
  if (spans.size() != step_.ops.size())
    return fail(Fault::missing_op, none, no_id, "{} ops ran, but the step has {}", spans.size(), step_.ops.size());
  for (OpId id = 0; id < spans.size(); ++id) {
    if (kernels_[id] > 1) return fail(Fault::repeated_op, none, id, "{} runs {} times", op(id), kernels_[id]);
    const bool must_run = kernels_[id] == 1 || step_.ops[id].flops > 0;
    if (must_run && (kernels_[id] == 0 || spans[id].start == OpSpan::never_ran))
      return fail(Fault::missing_op, none, id, "{} never ran", op(id));
  }
  return true;
}

bool Referee::check_spans(const std::vector<OpSpan>& spans) {
  if (!check_kernels(spans)) return false;
  recorded_.assign(step_.events, Nanos{-1});
  // The list of several ranks may name a wait above its record: find the times of all records first.
  if (step_.ranks > 1)
    for (std::vector<Nanos> before; before != recorded_;) {
      before = recorded_;
      walk(spans, false);
    }
  return walk(spans, true);
}

/// What comes back from the host has been copied there before, all of it.
bool Referee::check_host(const std::vector<OpSpan>& spans) {
  for (const HostBlock& block : step_.host) {
    if (block.out >= kernels_.size() || (block.back != no_id && block.back >= kernels_.size()))
      return fail(Fault::unknown, none, no_id, "a copy on the host names an op that is not in the step");
    const bool returns = block.back != no_id && step_.ops[block.back].stream == Stream::copy_in;
    if (step_.ops[block.out].moved != block.bytes || (returns && step_.ops[block.back].moved != block.bytes))
      return fail(Fault::wrong_size, none, block.out, "{} and its copy back do not both move the {} bytes of '{}'",
                  op(block.out), block.bytes.count, step_.names[block.name]);
    if (returns && spans[block.back].start < spans[block.out].end)
      return fail(Fault::read_too_early, none, block.back, "{} brings '{}' back before {} has copied it out",
                  op(block.back), step_.names[block.name], op(block.out));
  }
  return true;
}

/// Follows the streams through the ops' spans, in host order.
bool Referee::walk(const std::vector<OpSpan>& spans, bool judge) {
  std::vector<Clocks> ranks(static_cast<std::size_t>(step_.ranks));
  for (const Instruction& at : step_.instructions) {
    Clocks& clocks = ranks[rank(at)];
    Nanos& idle = clocks[static_cast<std::size_t>(at.stream)];
    const Nanos host = clocks[0];
    switch (at.what) {
      case Do::compute:
      case Do::copy:
        if (judge && !(judge_span(at, spans, clocks) && judge_reads(at, spans))) return false;
        idle = spans[at.index].end;
        break;
      case Do::record:
        recorded_[at.index] = std::max(idle, host);
        break;
      case Do::wait:
        if (judge && recorded_[at.index] < Nanos{})
          return fail(Fault::early_start, none, at.op, "{} waits for event {}, which is never recorded", op(at.op),
                      at.index);
        idle = std::max(idle, recorded_[at.index]);
        break;
      case Do::alloc:
        if (judge && !judge_event(at, host)) return false;
        break;
      case Do::free:
        if (judge && !judge_event(at, std::max(idle, host))) return false;
        break;
    }
  }
  return true;
}

bool Referee::judge_span(const Instruction& at, const std::vector<OpSpan>& spans, const Clocks& clocks) {
  const OpSpan& span = spans[at.index];
  const StepOp& ran = step_.ops[at.index];
  const Nanos took = span.end - span.start;
  if (took < Nanos{} || (ran.has_time && took != ran.time))
    return fail(Fault::wrong_time, none, at.index, "{} runs from {} to {} ns", op(at.index), span.start.count,
                span.end.count);
  const Nanos ready = std::max(clocks[static_cast<std::size_t>(at.stream)], clocks[0]);
  if (span.start < ready)
    return fail(Fault::early_start, none, at.index, "{} starts at {} ns, but its stream and the host are there at {}",
                op(at.index), span.start.count, ready.count);
  if (span.start > ready)
    return fail(Fault::wrong_time, none, at.index, "{} starts at {} ns, but nothing keeps it after {}", op(at.index),
                span.start.count, ready.count);
  return true;
}

bool Referee::judge_reads(const Instruction& at, const std::vector<OpSpan>& spans) {
  const OpSpan& span = spans[at.index];
  for (const StorageId id : reads(at.index)) {
    const Life& life = lives_[id];
    if (step_.storages[id].bytes.count == 0) continue;
    if (life.free_event != none && events_[life.free_event].time < span.end)
      return fail(Fault::read_of_freed, life.free_event, at.index, "{} still reads {} when {} frees it", op(at.index),
                  name(id), op(life.free_op));
    const OpId maker = life.alloc_op;
    if (maker != no_id && maker != at.index && kernels_[maker] > 0 && spans[maker].end > span.start)
      return fail(Fault::read_too_early, none, at.index, "{} reads {} before {} has made it", op(at.index), name(id),
                  op(maker));
  }
  return true;
}

bool Referee::judge_event(const Instruction& at, Nanos due) {
  const Life& life = lives_[at.index];
  const std::size_t event = at.what == Do::alloc ? life.alloc_event : life.free_event;
  if (events_[event].time == due) return true;
  return fail(Fault::wrong_time, event, at.op, "{} {} {} at {} ns, but it is due at {}", op(at.op),
              at.what == Do::alloc ? "allocates" : "frees", name(at.index), events_[event].time.count, due.count);
}

}  // namespace

std::optional<Violation> referee(const Step& step, const Timeline& timeline) {
  Referee referee(step, timeline.events);
  static_cast<void>(referee.read_step() && referee.check_events() && referee.check_end() && referee.check_reads() &&
                    referee.check_spans(timeline.ops) && referee.check_host(timeline.ops) &&
                    referee.check_peak(timeline));
  return std::move(referee).found();
}

std::optional<Violation> referee(const Step& step, std::span<const MemoryEvent> events) {
  Referee referee(step, events);
  static_cast<void>(referee.read_step() && referee.check_events() && referee.check_end() && referee.check_reads());
  return std::move(referee).found();
}

}  // namespace tidemark
