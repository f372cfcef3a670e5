#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "support/random_step.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/report/chart.hpp"
#include "tidemark/report/holders.hpp"
#include "tidemark/report/holding.hpp"
#include "tidemark/report/summary.hpp"

using namespace tidemark;
using tidemark::test::make_step;
using tidemark::test::Move;
using tidemark::test::moves;

namespace {

std::int16_t rank_of_peak(const Step& step, const Timeline& timeline) {
  return step.storages[timeline.events[timeline.peak_event].storage].rank;
}

/// The peak of the rank when one storage takes no bytes.
Bytes peak_without(const Step& step, const Timeline& timeline, StorageId storage) {
  const std::int16_t rank = rank_of_peak(step, timeline);
  bool alive = false;
  Bytes highest;
  for (const MemoryEvent& event : timeline.events) {
    if (step.storages[event.storage].rank != rank) continue;
    if (event.storage == storage) alive = event.is_alloc();
    highest = std::max(highest, alive ? event.live - step.storages[storage].bytes : event.live);
  }
  return highest;
}

/// Phases and steps that a training step might have, in place of the one phase of a random step.
Step with_phases(Step step, const std::vector<Move>& made) {
  constexpr std::array<Phase, 5> phases = {Phase::forward, Phase::loss, Phase::recompute, Phase::backward,
                                           Phase::optimizer};
  const std::size_t half = step.ops.size() / 2;
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    step.ops[i].phase = phases[(i + made.size()) % phases.size()];
    step.ops[i].step = i < half ? 0 : 1;
    step.ops[i].flops = static_cast<std::int64_t>(i) + 1;
  }
  step.steps = 2;
  return step;
}

}  // namespace

TEST_CASE("any step: a listed tensor's drop is what a replay without it says") {
  CHECK(rc::check([] {
    const Step step = make_step(*moves(4, 2), 2);
    const Timeline timeline = simulate(step, {});
    const std::vector<PeakStorage> alive = peak_storages(step, timeline);
    const std::vector<Bytes> drops = peak_drops(timeline, step, alive);
    for (std::size_t i = 0; i < alive.size(); ++i)
      RC_ASSERT(timeline.peak - drops[i] == peak_without(step, timeline, alive[i].storage));
  }));
}

TEST_CASE("any step: what is alive at the peak adds up to it, storage by storage and by category") {
  CHECK(rc::check([] {
    const Step step = make_step(*moves(4, 2), 2);
    const Timeline timeline = simulate(step, {});
    Bytes total;
    for (const PeakStorage& s : peak_storages(step, timeline)) total += step.storages[s.storage].bytes;
    RC_ASSERT(total == timeline.peak);
    const Summary summary = summarize(step, timeline, {});
    Bytes by_category;
    for (const Bytes bytes : summary.peak().at_peak) by_category += bytes;
    RC_ASSERT(by_category == timeline.peak);
  }));
}

TEST_CASE("any step: figures of the steps add up to the timeline's") {
  CHECK(rc::check([] {
    const std::vector<Move> made = *moves(4, 1);
    const Step step = with_phases(make_step(made), made);
    const Timeline timeline = simulate(step, {});
    const Summary summary = summarize(step, timeline, {});
    Flops flops;
    Nanos time;
    Bytes peak;
    for (const StepFigures& figures : summary.steps) {
      const TimeFigures& t = figures.time;
      RC_ASSERT(t.forward + t.recompute + t.backward + t.optimizer + t.exposed == t.step);
      RC_ASSERT(t.exposed >= Nanos{});
      flops += figures.flops.total;
      time += t.step;
      peak = std::max(peak, figures.peak.bytes);
    }
    Flops expected;
    Nanos end;
    for (std::size_t i = 0; i < step.ops.size(); ++i) {
      if (timeline.ops[i].start >= Nanos{}) expected += Flops{step.ops[i].flops};
      end = std::max(end, timeline.ops[i].end);
    }
    RC_ASSERT(flops == expected);
    RC_ASSERT(time == end);
    RC_ASSERT(peak == timeline.peak);
    RC_ASSERT(summary.steps[0].end == summary.steps[1].phase_peaks[0]);
    RC_ASSERT(summary.last().end == timeline.events.back().live);
  }));
}

TEST_CASE("any step: the chart's top row is reached in the peak's column and keeps within the width") {
  CHECK(rc::check([] {
    const std::vector<Move> made = *moves(4, 1);
    const Step step = with_phases(make_step(made), made);
    const Timeline timeline = simulate(step, {});
    const int width = *rc::gen::inRange(40, 130);
    const auto axis = *rc::gen::element(ChartOptions::Axis::sequence, ChartOptions::Axis::time);
    const TerminalStyle style{.width = width, .ascii = true};
    const std::string chart = tide_chart(step, timeline, {.axis = axis, .rows = 5, .limit = {}}, style);
    const std::size_t first_end = chart.find('\n');
    const std::size_t second_end = chart.find('\n', first_end + 1);
    const std::size_t mark = chart.substr(0, first_end).rfind('v');
    RC_ASSERT(mark != std::string::npos);
    RC_ASSERT(chart.substr(first_end + 1, second_end - first_end - 1).find('#') != std::string::npos);
    for (std::size_t begin = 0, end = 0; (end = chart.find('\n', begin)) != std::string::npos; begin = end + 1)
      RC_ASSERT(end - begin <= static_cast<std::size_t>(width));
  }));
}

// On a stream that lags, an op at its own events is past for the one and to come for the other.
TEST_CASE("any step on one stream: who holds a tensor at the peak is what a look at the peak alone says") {
  CHECK(rc::check([] {
    const std::vector<Move> made = *moves(1, 2);
    const Step step = with_phases(make_step(made, 2), made);
    const Timeline timeline = simulate(step, {});
    const Holders all = holders(step, timeline);
    for (const PeakStorage& storage : peak_storages(step, timeline))
      RC_ASSERT(holder_at(step, all, storage.storage, timeline.peak_event) == held_by(step, timeline, storage));
  }));
}
