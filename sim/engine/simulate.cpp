#include "tidemark/engine/simulate.hpp"

#include <algorithm>
#include <array>

#include "tidemark/base/errors.hpp"
#include "tidemark/engine/event_queue.hpp"
#include "tidemark/step/op_times.hpp"

namespace tidemark {
namespace {

/// Live bytes alone: every call vanishes from the loop.
struct NoAllocator {
  static void alloc(const Timeline& /*timeline*/, const StepStorage& /*storage*/, const Instruction& /*at*/,
                    Nanos /*now*/) {}
  static void free(StorageId /*storage*/, Stream /*stream*/, Nanos /*now*/, Nanos /*ready*/) {}
  static void record(Timeline& /*timeline*/) {}
};

/// A real allocator behind its seam, until it is out of memory.
class AllocatorSeam {
 public:
  explicit AllocatorSeam(Allocator& allocator) : allocator_(&allocator) {}

  void alloc(Timeline& timeline, const StepStorage& storage, const Instruction& at, Nanos now) {
    if (full_ || allocator_->alloc(at.index, storage.bytes, at.stream, now)) return;
    full_ = true;
    timeline.out_of_memory = {.event = timeline.events.size(),
                              .storage = at.index,
                              .op = at.op,
                              .requested = storage.bytes,
                              .stream = at.stream,
                              .figures = allocator_->figures()};
  }
  void free(StorageId storage, Stream stream, Nanos now, Nanos ready) {
    if (!full_) allocator_->free(storage, stream, now, ready);
  }
  void record(Timeline& timeline) const {
    if (full_) return;
    const AllocatorFigures figures = allocator_->figures();
    if (timeline.allocator.allocated.empty())
      for (std::vector<Bytes>* column : {&timeline.allocator.allocated, &timeline.allocator.active,
                                         &timeline.allocator.reserved, &timeline.allocator.inactive_split})
        column->reserve(timeline.events.capacity());
    timeline.allocator.allocated.push_back(figures.allocated);
    timeline.allocator.active.push_back(figures.active);
    timeline.allocator.reserved.push_back(figures.reserved);
    timeline.allocator.inactive_split.push_back(figures.inactive_split);
  }

 private:
  Allocator* allocator_;
  bool full_ = false;
};

constexpr Nanos not_recorded{-1};

/// A rank's instructions, where they stand in the Step: whole stretches one after the other.
using Stretches = std::vector<std::span<const Instruction>>;

/// One rank: a host that issues its instructions in order, and the streams that work them off.
template <class Seam>
class Rank {
 public:
  Rank(const Step& step, const Device& device, Stretches stretches, Seam seam, std::vector<Nanos>& recorded,
       std::vector<OpSpan>& spans)
      : step_(step),
        device_(device),
        times_(device),
        stretches_(std::move(stretches)),
        seam_(seam),
        recorded_(recorded),
        spans_(spans) {}

  void start(std::int16_t rank);
  /// Issues until the end (true), or until a wait for an event that no rank has recorded yet (false).
  bool run();
  /// Works off what still lags behind the host.
  Timeline finish();
  std::size_t issued() const { return next_; }
  /// What it waits for, when it is blocked.
  std::string blocked() const;

 private:
  Nanos& clock(Stream stream) { return clocks_[static_cast<std::size_t>(stream)]; }
  Nanos host() const { return clocks_[0]; }

  bool issue(const Instruction& at);
  void alloc(const Instruction& at, Nanos time);
  void free(const Instruction& at);
  void compute(const Instruction& at);
  Nanos length(const Instruction& at, const StepOp& op) const;
  void pend(Stream stream, Pending::What what, OpId op, StorageId storage = no_id);
  void happen(const Pending& pending);
  void drop(StorageId storage, OpId op, Nanos time);
  void record(StorageId storage, OpId op, Nanos time, bool is_alloc);
  void settle(Nanos now);
  void begin_op(OpId op);
  void end_op();
  std::string op_name(OpId op) const;

  const Step& step_;
  const Device& device_;
  OpTimes times_;
  Stretches stretches_;
  Seam seam_;
  std::vector<Nanos>& recorded_;  // by event, of all ranks
  std::vector<OpSpan>& spans_;    // by op, of all ranks

  std::size_t next_ = 0;                             // among all its instructions
  std::size_t stretch_ = 0, place_ = 0;              // where that stands
  std::array<Nanos, stream_names.size()> clocks_{};  // when each stream falls idle; the compute stream's is the host's
  EventQueue pending_;
  Bytes live_;
  OpId op_ = no_id;                                        // whose script is being issued
  Bytes op_peak_;                                          // while it is
  std::array<Bytes, stream_names.size()> stream_peaks_{};  // since the op that runs on each stream started
  Timeline timeline_;
};

template <class Seam>
void Rank<Seam>::start(std::int16_t rank) {
  std::size_t most = 0;
  for (const std::span<const Instruction> stretch : stretches_) most += stretch.size();
  timeline_.events.reserve(std::min(most, 2 * step_.storages.size()));
  for (const StorageId storage : step_.initial) {
    check(storage < step_.storages.size(), "an initial storage is not in the step");
    if (step_.storages[storage].rank == rank) alloc({.what = Do::alloc, .index = storage}, Nanos{});
  }
}

template <class Seam>
bool Rank<Seam>::run() {
  for (; stretch_ < stretches_.size(); ++stretch_, place_ = 0)
    for (; place_ < stretches_[stretch_].size(); ++place_, ++next_)
      if (!issue(stretches_[stretch_][place_])) return false;
  return true;
}

/// false: it waits for an event that no rank has recorded yet.
template <class Seam>
bool Rank<Seam>::issue(const Instruction& at) {
  if (at.op != op_) {
    end_op();
    begin_op(at.op);
  }
  switch (at.what) {
    case Do::alloc:
      alloc(at, host());
      break;
    case Do::free:
      free(at);
      break;
    case Do::compute:
    case Do::copy:
      compute(at);
      break;
    case Do::record:
      check(at.index < recorded_.size(), "an event id is out of range");
      recorded_[at.index] = std::max(clock(at.stream), host());
      break;
    case Do::wait:
      check(at.index < recorded_.size(), "an event id is out of range");
      if (recorded_[at.index] == not_recorded) return false;
      clock(at.stream) = std::max(clock(at.stream), recorded_[at.index]);
      break;
  }
  return true;
}

template <class Seam>
Timeline Rank<Seam>::finish() {
  end_op();
  while (pending_.next_time() != EventQueue::never) settle(pending_.next_time());
  timeline_.end = *std::ranges::max_element(clocks_);
  return std::move(timeline_);
}

template <class Seam>
void Rank<Seam>::alloc(const Instruction& at, Nanos time) {
  check(at.index < step_.storages.size(), "a storage id is out of range");
  settle(time);
  const StepStorage& storage = step_.storages[at.index];
  if (__builtin_add_overflow(live_.count, storage.bytes.count, &live_.count))
    throw InputError(op_name(at.op) + ": live bytes pass 2^63");
  op_peak_ = std::max(op_peak_, live_);
  for (Bytes& peak : stream_peaks_) peak = std::max(peak, live_);
  if (live_ > timeline_.peak) {
    timeline_.peak = live_;
    timeline_.peak_event = timeline_.events.size();
  }
  seam_.alloc(timeline_, storage, at, time);
  record(at.index, at.op, time, true);
}

template <class Seam>
void Rank<Seam>::free(const Instruction& at) {
  check(at.index < step_.storages.size(), "a storage id is out of range");
  const Nanos ready = std::max(clock(at.stream), host());
  seam_.free(at.index, at.stream, host(), ready);
  if (ready > host()) {
    pend(at.stream, Pending::What::free, at.op, at.index);
    return;
  }
  settle(ready);
  drop(at.index, at.op, ready);
}

template <class Seam>
void Rank<Seam>::compute(const Instruction& at) {
  check(at.index < step_.ops.size(), "an op id is out of range");
  Nanos& idle = clock(at.stream);
  const Nanos start = std::max(idle, host());
  const Nanos took = length(at, step_.ops[at.index]);
  check(took >= Nanos{}, "an op's time is negative");
  if (at.stream != Stream::compute) pend(at.stream, Pending::What::op_start, at.index);
  if (__builtin_add_overflow(start.count, took.count, &idle.count) || idle == EventQueue::never)
    throw InputError(op_name(at.index) + ": time passes 2^63 ns");
  OpSpan& span = spans_[at.index];
  if (span.start == OpSpan::never_ran) span.start = start;
  span.end = idle;
}

template <class Seam>
Nanos Rank<Seam>::length(const Instruction& at, const StepOp& op) const {
  if (op.has_time) return op.time;
  if (at.what == Do::copy && at.stream == Stream::copy_out) return copy_duration(device_.copy_to_host, op.moved);
  if (at.what == Do::copy && at.stream == Stream::copy_in) return copy_duration(device_.copy_to_device, op.moved);
  return times_.of(op);
}

/// Once the stream has done all that was issued to it.
template <class Seam>
void Rank<Seam>::pend(Stream stream, Pending::What what, OpId op, StorageId storage) {
  pending_.push(stream, {.time = std::max(clock(stream), host()),
                         .sequence = static_cast<std::uint32_t>(next_),
                         .storage = storage,
                         .op = op,
                         .what = what});
}

template <class Seam>
void Rank<Seam>::happen(const Pending& pending) {
  if (pending.what == Pending::What::free) return drop(pending.storage, pending.op, pending.time);
  Bytes& peak = stream_peaks_[static_cast<std::size_t>(step_.ops[pending.op].stream)];
  if (pending.what == Pending::What::op_start) {
    peak = live_;
  } else {
    OpSpan& span = spans_[pending.op];
    span.peak = std::max(span.peak, peak);
    span.after = live_;
  }
}

template <class Seam>
void Rank<Seam>::drop(StorageId storage, OpId op, Nanos time) {
  live_ -= step_.storages[storage].bytes;
  record(storage, op, time, false);
}

template <class Seam>
void Rank<Seam>::record(StorageId storage, OpId op, Nanos time, bool is_alloc) {
  timeline_.events.push_back({time, live_, storage, MemoryEvent::pack(op, is_alloc)});
  seam_.record(timeline_);
}

/// What other streams have done by `now`: it was issued before whatever happens now.
template <class Seam>
void Rank<Seam>::settle(Nanos now) {
  while (pending_.next_time() <= now) happen(pending_.pop());
}

template <class Seam>
void Rank<Seam>::begin_op(OpId op) {
  op_ = op;
  if (op == no_id) return;
  check(op < step_.ops.size(), "an op id is out of range");
  op_peak_ = live_;
  const Stream stream = step_.ops[op].stream;
  if (clock(stream) > host()) pend(stream, Pending::What::op_start, op);
}

template <class Seam>
void Rank<Seam>::end_op() {
  settle(host());
  if (op_ == no_id) return;
  OpSpan& span = spans_[op_];
  if (span.start == OpSpan::never_ran) span.start = span.end = host();
  span.peak = op_peak_;
  span.after = live_;
  const Stream stream = step_.ops[op_].stream;
  if (clock(stream) > host()) pend(stream, Pending::What::op_end, op_);
}

template <class Seam>
std::string Rank<Seam>::op_name(OpId op) const {
  return op == no_id ? "initial storages" : "op '" + step_.names[step_.ops[op].name] + "'";
}

template <class Seam>
std::string Rank<Seam>::blocked() const {
  const Instruction& at = stretches_[stretch_][place_];
  return op_name(at.op) + " waits for event " + std::to_string(at.index) + ", which nothing before it records";
}

/// Each rank's part of the list, in order.
std::vector<Stretches> by_rank(const Step& step) {
  std::vector<Stretches> parts(static_cast<std::size_t>(step.ranks));
  const std::span<const Instruction> all = step.instructions;
  if (step.ranks == 1) return {{all}};
  std::size_t begin = 0;
  int rank_now = 0;
  const auto close = [&](std::size_t end) {
    if (end > begin) parts[static_cast<std::size_t>(rank_now)].push_back(all.subspan(begin, end - begin));
    begin = end;
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    check(all[i].op == no_id || all[i].op < step.ops.size(), "an op id is out of range");
    const int rank = all[i].op == no_id ? 0 : step.ops[all[i].op].rank;
    check(rank >= 0 && rank < step.ranks, "an op's rank is out of range");
    if (rank != rank_now) close(i);
    rank_now = rank;
  }
  close(all.size());
  return parts;
}

Timeline* only_one_with_events(std::vector<Timeline>& parts) {
  Timeline* found = nullptr;
  for (Timeline& part : parts) {
    if (part.events.empty()) continue;
    if (found != nullptr) return nullptr;
    found = &part;
  }
  return found;
}

/// All ranks' events in time order, the lower rank first at one instant.
Timeline merged(std::vector<Timeline> parts) {
  Nanos end;
  for (const Timeline& part : parts) end = std::max(end, part.end);
  if (Timeline* only = only_one_with_events(parts)) {
    only->end = end;
    return std::move(*only);
  }
  Timeline all;
  all.end = end;
  std::vector<std::size_t> next(parts.size());
  for (;;) {
    std::size_t first = parts.size();
    for (std::size_t r = 0; r < parts.size(); ++r)
      if (next[r] < parts[r].events.size() &&
          (first == parts.size() || parts[r].events[next[r]].time < parts[first].events[next[first]].time))
        first = r;
    if (first == parts.size()) break;
    const Timeline& part = parts[first];
    const std::size_t i = next[first]++;
    if (part.out_of_memory && part.out_of_memory->event == i && !all.out_of_memory) {
      all.out_of_memory = part.out_of_memory;
      all.out_of_memory->event = all.events.size();
    }
    if (!all.out_of_memory && i < part.allocator.allocated.size()) {
      all.allocator.allocated.push_back(part.allocator.allocated[i]);
      all.allocator.active.push_back(part.allocator.active[i]);
      all.allocator.reserved.push_back(part.allocator.reserved[i]);
      all.allocator.inactive_split.push_back(part.allocator.inactive_split[i]);
    }
    if (part.events[i].live > all.peak) {
      all.peak = part.events[i].live;
      all.peak_event = all.events.size();
    }
    all.events.push_back(part.events[i]);
  }
  return all;
}

/// Ranks meet only at events, so running each as far as it goes gives the same timeline as any other interleaving.
template <class Seam>
Timeline run_ranks(std::vector<Rank<Seam>>& ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r].start(static_cast<std::int16_t>(r));
  std::vector<bool> done(ranks.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (done[r]) continue;
      const std::size_t before = ranks[r].issued();
      done[r] = ranks[r].run();
      moved = moved || done[r] || ranks[r].issued() > before;
    }
  }
  std::vector<Timeline> parts;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (!done[r]) throw InternalError(ranks[r].blocked());
    parts.push_back(ranks[r].finish());
  }
  return merged(std::move(parts));
}

/// `seams` has one for each rank.
template <class Seam>
Timeline run_step(const Step& step, const Device& device, const std::vector<Seam>& seams) {
  check(step.ranks == static_cast<int>(seams.size()), "a step needs one allocator for each rank");
  std::vector<Nanos> recorded(step.events, not_recorded);
  std::vector<OpSpan> spans(step.ops.size());
  std::vector<Stretches> parts = by_rank(step);
  std::vector<Rank<Seam>> ranks;
  for (std::size_t r = 0; r < seams.size(); ++r)
    ranks.emplace_back(step, device, std::move(parts[r]), seams[r], recorded, spans);
  Timeline timeline = run_ranks(ranks);
  timeline.ops = std::move(spans);
  return timeline;
}

}  // namespace

Timeline simulate(const Step& step, const Device& device) {
  check(step.ranks > 0, "a step has no rank");
  return run_step(step, device, std::vector<NoAllocator>(static_cast<std::size_t>(step.ranks)));
}

Timeline simulate(const Step& step, const Device& device, std::span<Allocator* const> allocators) {
  std::vector<AllocatorSeam> seams;
  for (Allocator* allocator : allocators) seams.emplace_back(*allocator);
  return run_step(step, device, seams);
}

Timeline simulate(const Step& step, const Device& device, Allocator& allocator) {
  const std::array<Allocator*, 1> one = {&allocator};
  return simulate(step, device, one);
}

}  // namespace tidemark
