#include "tidemark/study/steady_schedule.hpp"

#include <algorithm>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

/// The passes of one rank in one step, by their ops.
class Passes {
 public:
  Passes(const ScheduleFold& fold, const std::vector<OpId>& begins, int step, std::size_t rank)
      : fold_(fold), rank_(rank) {
    std::size_t all = 0;
    for (const std::vector<Pass>& list : fold.schedule.ranks) all += list.size() + 1;
    std::size_t first = static_cast<std::size_t>(step) * all;
    for (std::size_t r = 0; r < rank; ++r) first += fold.schedule.ranks[r].size() + 1;
    begins_ = begins.data() + first;
  }
  OpId begin(std::size_t pass) const { return begins_[pass]; }
  std::size_t cut() const { return fold_.cut[rank_]; }
  std::size_t period() const { return fold_.period[rank_]; }

 private:
  const ScheduleFold& fold_;
  std::size_t rank_;
  const OpId* begins_;
};

/// Compares passes of a rank with those of `cycle` periods before, op by op.
class Repeats {
 public:
  Repeats(const Step& step, const Timeline& timeline, std::size_t cycle)
      : step_(step), timeline_(timeline), cycle_(cycle) {}

  /// Are the passes from `pass` to the cut earlier ones again?
  bool from(const Passes& passes, std::size_t pass) {
    const std::size_t back = cycle_ * passes.period();
    const OpId late = passes.begin(pass), early = passes.begin(pass - back);
    const OpId count = passes.begin(passes.cut()) - late;
    if (passes.begin(passes.cut() - back) - early != count) return false;
    for (OpId i = 0; i < count; ++i)
      if (!same(early + i, late + i)) return false;
    return true;
  }
  std::optional<Nanos> later() const { return later_; }

 private:
  bool same(OpId early, OpId late) {
    const OpSpan &a = timeline_.ops[early], &b = timeline_.ops[late];
    if (!later_) later_ = b.start - a.start;
    return step_.ops[early].name == step_.ops[late].name && b.start - a.start == *later_ && b.end - a.end == *later_ &&
           a.peak == b.peak && a.after == b.after;
  }

  const Step& step_;
  const Timeline& timeline_;
  std::size_t cycle_;
  std::optional<Nanos> later_;
};

/// Has the rank, at the cut, done on all streams what was issued before the periods that were compared?
bool is_done(const Passes& passes, std::size_t compared, const Timeline& timeline) {
  const OpId begin = passes.begin(compared - passes.period()), end = passes.begin(compared);
  const Nanos at_cut = timeline.ops[passes.begin(passes.cut())].start;
  return std::all_of(timeline.ops.begin() + begin, timeline.ops.begin() + end,
                     [&](const OpSpan& span) { return span.end <= at_cut; });
}

template <class F>
void for_each_rank(const ScheduleFold& fold, const std::vector<OpId>& begins, int steps, F f) {
  for (int s = 0; s < steps; ++s)
    for (std::size_t r = 0; r < fold.schedule.ranks.size(); ++r) f(s, r, Passes(fold, begins, s, r));
}

}  // namespace

std::optional<PeriodCycle> find_cycle(const Step& step, const Timeline& timeline, const ScheduleFold& fold,
                                      const std::vector<OpId>& begins) {
  for (int cycle = 1; cycle <= fold.kept - fold.depth; ++cycle) {
    std::vector<Repeats> repeats(static_cast<std::size_t>(step.steps),
                                 Repeats(step, timeline, static_cast<std::size_t>(cycle)));
    bool all = true;
    for_each_rank(fold, begins, step.steps, [&](int s, std::size_t /*rank*/, const Passes& passes) {
      const std::size_t compared = passes.cut() - static_cast<std::size_t>(fold.depth) * passes.period();
      all = all && repeats[static_cast<std::size_t>(s)].from(passes, compared) && is_done(passes, compared, timeline);
    });
    if (!all) continue;
    PeriodCycle out{cycle, {}};
    for (const Repeats& one : repeats) out.later.push_back(one.later().value_or(Nanos{}));
    return out;
  }
  return std::nullopt;
}

PeakLives lives_at_peak(const Step& step, const Timeline& timeline, const ScheduleFold& fold,
                        const std::vector<OpId>& begins) {
  if (timeline.events.empty()) return PeakLives::whole;
  enum class Side : std::uint8_t { outside, before, behind };
  std::vector<Side> sides(step.ops.size(), Side::outside);
  for_each_rank(fold, begins, step.steps, [&](int /*step*/, std::size_t rank, const Passes& passes) {
    const OpId cut = passes.begin(passes.cut()), tail = passes.begin(fold.schedule.ranks[rank].size());
    for (OpId id = passes.begin(0); id < tail; ++id) sides[id] = id < cut ? Side::before : Side::behind;
  });
  const auto side = [&](const MemoryEvent& event) { return event.op() == no_id ? Side::outside : sides[event.op()]; };
  const MemoryEvent& peak = timeline.events[timeline.peak_event];
  const Side at_peak = side(peak);
  std::vector<OpId> makers(step.storages.size(), no_id);
  for (std::size_t i = 0; i < timeline.events.size() && at_peak != Side::outside; ++i) {
    const MemoryEvent& event = timeline.events[i];
    OpId& maker = makers[event.storage];
    if (event.is_alloc() && i <= timeline.peak_event) maker = event.op();
    if (event.is_alloc() || i <= timeline.peak_event || maker == no_id || event.op() == no_id) continue;
    // What a micro-batch makes it frees itself; what several share is made once and freed by the last.
    const bool is_own = step.ops[maker].micro_batch == step.ops[event.op()].micro_batch;
    if (!is_own || step.storages[event.storage].rank != step.storages[peak.storage].rank) continue;
    if (sides[maker] != side(event)) return at_peak == Side::before ? PeakLives::die_behind : PeakLives::born_before;
  }
  return PeakLives::whole;
}

void unfold(const ScheduleFold& fold, const std::vector<OpId>& begins, const PeriodCycle& cycle, Step& step,
            Timeline& timeline) {
  check(fold.left_out % cycle.periods == 0, "what a fold left out is not whole cycles");
  // By op, in the order of issue: how much later all that happens from it on.
  std::vector<Nanos> later(step.ops.size());
  std::vector<Nanos> before(cycle.later.size() + 1);
  for (std::size_t s = 0; s < cycle.later.size(); ++s)
    before[s + 1] = before[s] + std::int64_t{fold.left_out / cycle.periods} * cycle.later[s];
  for (OpId id = 0; id < step.ops.size(); ++id) later[id] = before[static_cast<std::size_t>(step.ops[id].step)];
  for_each_rank(fold, begins, step.steps, [&](int s, std::size_t rank, const Passes& passes) {
    for (OpId id = passes.begin(passes.cut());
         id < step.ops.size() && step.ops[id].step == s && step.ops[id].rank == static_cast<std::int16_t>(rank); ++id) {
      later[id] = before[static_cast<std::size_t>(s) + 1];
      step.ops[id].micro_batch += fold.left_out * fold.group;
    }
  });
  for (OpId id = 0; id < step.ops.size(); ++id) {
    if (timeline.ops[id].start == OpSpan::never_ran) continue;
    timeline.ops[id].start += later[id];
    timeline.ops[id].end += later[id];
  }
  // A free that was issued before the cut and happens behind it is, there, one of the last period's that was left out.
  std::vector<Nanos> reached(static_cast<std::size_t>(step.ranks));
  for (MemoryEvent& event : timeline.events) {
    Nanos& now = reached[static_cast<std::size_t>(step.storages[event.storage].rank)];
    if (event.op() != no_id) now = std::max(now, later[event.op()]);
    event.time += now;
  }
  const auto rank_of = [&](const MemoryEvent& event) { return step.storages[event.storage].rank; };
  std::ranges::stable_sort(timeline.events, [&](const MemoryEvent& a, const MemoryEvent& b) {
    return a.time != b.time ? a.time < b.time : rank_of(a) < rank_of(b);
  });
  const auto peak = std::ranges::find(timeline.events, timeline.peak, &MemoryEvent::live);
  timeline.peak_event = peak == timeline.events.end() ? 0 : static_cast<std::size_t>(peak - timeline.events.begin());
  timeline.end += before.back();
  const int all = fold.schedule.micro_batches + fold.left_out * fold.group;
  step.model_flops = Flops{step.model_flops.count / fold.schedule.micro_batches * all};
}

std::vector<std::int32_t> stands_for(const Step& step, const ScheduleFold& fold, const std::vector<OpId>& begins,
                                     const PeriodCycle& cycle) {
  std::vector<std::int32_t> out(step.ops.size(), 1);
  for_each_rank(fold, begins, step.steps, [&](int /*step*/, std::size_t /*rank*/, const Passes& passes) {
    const std::size_t first = passes.cut() - static_cast<std::size_t>(cycle.periods) * passes.period();
    for (OpId id = passes.begin(first); id < passes.begin(passes.cut()); ++id) out[id] += fold.left_out / cycle.periods;
  });
  return out;
}

}  // namespace tidemark
