#include "tidemark/study/recorded.hpp"

#include <doctest/doctest.h>

#include "support/tide.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/report/holders.hpp"
#include "tidemark/report/summary.hpp"
#include "tidemark/study/compare.hpp"

using namespace tidemark;
using tidemark::test::HandStep;

namespace {

RecordedRun recorded(const Step& step, const Timeline& timeline) {
  Run run;
  run.step = step;
  run.timeline = timeline;
  return recorded_run(simulated_side("hand", run));
}

}  // namespace

TEST_CASE("recorded run: the same events, levels and names as the timeline it was read from") {
  const HandStep made = test::small_tide();
  const Timeline timeline = simulate(made.step, {});
  const RecordedRun read = recorded(made.step, timeline);
  REQUIRE(read.timeline.events.size() == timeline.events.size());
  CHECK(read.timeline.peak == timeline.peak);
  CHECK(read.timeline.peak_event == timeline.peak_event);
  for (std::size_t i = 0; i < timeline.events.size(); ++i) {
    CAPTURE(i);
    const MemoryEvent& a = timeline.events[i];
    const MemoryEvent& b = read.timeline.events[i];
    CHECK(a.time == b.time);
    CHECK(a.live == b.live);
    CHECK(a.is_alloc() == b.is_alloc());
    const StepStorage& x = made.step.storages[a.storage];
    const StepStorage& y = read.step.storages[b.storage];
    CHECK(made.step.names[x.name] == read.step.names[y.name]);
    CHECK(x.category == y.category);
    CHECK(x.bytes == y.bytes);
    REQUIRE((a.op() == no_id) == (b.op() == no_id));
    if (a.op() == no_id) continue;
    CHECK(made.step.names[made.step.ops[a.op()].name] == read.step.names[read.step.ops[b.op()].name]);
    CHECK(made.step.ops[a.op()].phase == read.step.ops[b.op()].phase);
  }
}

TEST_CASE("recorded run: neighbouring rows of one op are one op, from the first to the last") {
  HandStep made;
  made.op("A", 10).alloc("a", 5).run().free("a");
  made.op("B", 10).alloc("b", 3).run();
  made.op("A", 10).alloc("c", 4).run();
  const RecordedRun read = recorded(made.step, simulate(made.step, {}));
  REQUIRE(read.step.ops.size() == 3);
  CHECK(read.timeline.ops[0] == OpSpan{.start = Nanos{0}, .end = Nanos{10}, .peak = Bytes{5}, .after = Bytes{0}});
  CHECK(read.timeline.ops[1] == OpSpan{.start = Nanos{10}, .end = Nanos{10}, .peak = Bytes{3}, .after = Bytes{3}});
}

TEST_CASE("recorded run: what reports say of it") {
  const HandStep made = test::small_tide();
  const Timeline timeline = simulate(made.step, {});
  const RecordedRun read = recorded(made.step, timeline);
  const Summary summary = summarize(read.step, read.timeline, {});
  CHECK(summary.peak().peak.bytes == timeline.peak);
  CHECK(summary.peak().peak.op == "layers.0.a");
  // Who reads is not recorded; who frees is.
  const Holders all = holders(read.step, read.timeline);
  const StorageId h = read.timeline.events[3].storage;
  CHECK(holder_at(read.step, all, h, 5) == "held until backward of layers.0.a");
}

TEST_CASE("recorded run: of a recording without names, nothing is made up") {
  Side side;
  std::vector<TimelineRow> rows(2);
  rows[0] = {.time = Nanos{5}, .is_alloc = true, .bytes = Bytes{7}, .live = Bytes{7}, .id = 1};
  rows[1] = {.time = Nanos{9}, .bytes = Bytes{7}, .live = Bytes{0}, .id = 1};
  for (TimelineRow& row : rows) row.phase.reset();
  side.next = [&, at = std::size_t{0}]() mutable {
    return at < rows.size() ? std::optional(rows[at++]) : std::nullopt;
  };
  const RecordedRun read = recorded_run(side);
  CHECK(read.timeline.events[0].live == Bytes{7});
  CHECK(holder_at(read.step, holders(read.step, read.timeline), 0, 0) == "held until an op that was not recorded");
  CHECK(summarize(read.step, read.timeline, {}).peak().peak.op == "an op that was not recorded");
}
