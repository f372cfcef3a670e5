#include "tidemark/report/summary.hpp"

#include <doctest/doctest.h>

#include "support/tide.hpp"
#include "tidemark/engine/simulate.hpp"

using namespace tidemark;
using tidemark::test::HandStep;
using tidemark::test::small_tide;

namespace {

Summary summary_of(const HandStep& made, const ScenarioFacts& facts = {}) {
  return summarize(made.step, simulate(made.step, {}), facts);
}

std::optional<Bytes> phase_peak(const StepFigures& figures, Phase phase) {
  return figures.phase_peaks[static_cast<std::size_t>(phase)];
}

Bytes at_peak(const StepFigures& figures, Category category) {
  return figures.at_peak[static_cast<std::size_t>(category)];
}

/// Two steps; the second adds to what the first leaves, and its copy runs past the compute stream.
///
///   step 0: A allocates s (state, stays) and t 5, frees t      level 1: 40 .. 45 .. 40
///   step 1: A allocates t 60 and frees it: peak 100; a copy of 30 ns runs beside 10 ns of B
HandStep two_steps() {
  HandStep made;
  made.op("A", 10).flops(100).alloc("s", 40).is(Category::optimizer_state).alloc("t", 5).run().free("t");
  made.op("A", 10).at_step(1).flops(100).alloc("t", 60).run().free("t");
  made.op("copy", 30, Stream::copy_out).at_step(1).phase(Phase::offload).copy();
  made.op("B", 10).at_step(1).phase(Phase::backward).flops(200).run();
  return made;
}

}  // namespace

TEST_CASE("summary: the peak, its moment and its make-up") {
  const Summary s = summary_of(small_tide());
  CHECK(s.peak().peak == Moment{{280}, 0, {55}, "layers.0.a", "layers.0", Phase::backward});
  CHECK(at_peak(s.peak(), Category::parameter) == Bytes{100});
  CHECK(at_peak(s.peak(), Category::gradient) == Bytes{100});
  CHECK(at_peak(s.peak(), Category::activation) == Bytes{50});
  CHECK(at_peak(s.peak(), Category::temporary) == Bytes{20});
  CHECK(at_peak(s.peak(), Category::input) == Bytes{10});
  CHECK(s.tensors_at_peak == 6);
  CHECK(s.events == 18);
  CHECK(s.ops == 7);
}

TEST_CASE("summary: the listed tensors") {
  ScenarioFacts facts;
  facts.top = 3;
  const Summary s = summary_of(small_tide(), facts);
  const std::vector<PeakTensor> expected = {
      {"w", "", "layers.0", Category::parameter, {100}, {0}, std::nullopt, {100}, "parameter"},
      {"gw",
       "layers.0.a",
       "layers.0",
       Category::gradient,
       {100},
       {55},
       Nanos{78},
       {94},
       "gradient until the optimizer"},
      {"mid", "layers.0.a", "layers.0", Category::activation, {30}, {45}, Nanos{75}, {30}, "read by the running op"},
  };
  CHECK(s.peak_tensors == expected);
}

TEST_CASE("summary: levels by phase") {
  const StepFigures figures = summary_of(small_tide()).last();
  CHECK(phase_peak(figures, Phase::initial) == Bytes{110});
  CHECK(phase_peak(figures, Phase::forward) == Bytes{165});
  CHECK(phase_peak(figures, Phase::loss) == Bytes{166});
  CHECK(phase_peak(figures, Phase::recompute) == Bytes{180});
  CHECK(phase_peak(figures, Phase::backward) == Bytes{280});
  CHECK(phase_peak(figures, Phase::optimizer) == Bytes{210});
  CHECK(phase_peak(figures, Phase::offload) == std::nullopt);
  CHECK(figures.forward_end == Bytes{165});
  CHECK(figures.end == Bytes{110});
}

TEST_CASE("summary: FLOPs and time by phase") {
  const StepFigures figures = summary_of(small_tide()).last();
  CHECK(figures.flops == FlopFigures{{18}, {7}, {36}, {61}});
  CHECK(figures.other_flops == FlopFigures{{5}, {2}, {0}, {7}});
  CHECK(*figures.recompute_overhead == 7.0 / 54.0);
  CHECK(figures.time == TimeFigures{{78}, {25}, {10}, {40}, {3}, {0}});
  CHECK_FALSE(figures.model_flops.has_value());
  CHECK_FALSE(figures.mfu.has_value());
}

TEST_CASE("summary: totals pass 2^63") {
  HandStep made;
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < 5; ++i) made.op("A", 1).flops(most).run();
  CHECK(to_string(summary_of(made).last().flops.total) == "46116860184273879035");
}

TEST_CASE("summary: utilization is FLOPs over what the device could do in the step") {
  HandStep made = small_tide();
  made.step.model_flops = Flops{39};
  ScenarioFacts facts;
  facts.flops_per_second = 1e9;  // one a nanosecond
  const StepFigures figures = summary_of(made, facts).last();
  CHECK(*figures.mfu == doctest::Approx(39.0 / 78.0));
  CHECK(*figures.hfu == doctest::Approx(61.0 / 78.0));
}

TEST_CASE("summary: each step has its own figures") {
  const Summary s = summary_of(two_steps());
  REQUIRE(s.steps.size() == 2);
  CHECK(s.peak_step == 1);
  CHECK(s.steps[0].peak.bytes == Bytes{45});
  CHECK(s.steps[0].end == Bytes{40});
  CHECK(s.steps[1].peak == Moment{{100}, 1, {10}, "A", "", Phase::forward});
  CHECK(phase_peak(s.steps[1], Phase::initial) == Bytes{40});
  CHECK(at_peak(s.steps[1], Category::optimizer_state) == Bytes{40});
  CHECK(s.steps[0].flops.total == Flops{100});
  CHECK(s.steps[1].flops.total == Flops{300});
}

TEST_CASE("summary: what the compute stream waits for is exposed") {
  const Summary s = summary_of(two_steps());
  // compute |A 10|A 10|B 10|        step 1: 10 .. 50 ns
  // copy              |copy 30     |
  CHECK(s.steps[0].time == TimeFigures{{10}, {10}, {0}, {0}, {0}, {0}});
  CHECK(s.steps[1].time == TimeFigures{{40}, {10}, {0}, {10}, {0}, {20}});
}

TEST_CASE("summary: a step that only frees peaks at its start") {
  HandStep made;
  made.op("A", 5).alloc("t", 9).run();
  made.op("B", 5).at_step(1).run().free("t");
  const Summary s = summary_of(made);
  CHECK(s.peak_step == 0);
  CHECK(s.steps[1].peak == Moment{{9}, 1, {0}, "", "", Phase::initial});
  CHECK(s.steps[1].end == Bytes{0});
}

TEST_CASE("summary: the first of equal peaks counts") {
  HandStep made;
  made.op("A", 1).alloc("t", 9).run().free("t");
  made.op("B", 1).at_step(1).alloc("u", 9).run().free("u");
  const Summary s = summary_of(made);
  CHECK(s.peak_step == 0);
  CHECK(s.peak_tensors.at(0).tensor == "t");
  HandStep within;
  within.op("A", 1).alloc("t", 9).run().free("t").op("B", 1).alloc("u", 9).run().free("u");
  CHECK(summary_of(within).peak().peak == Moment{{9}, 0, {0}, "A", "", Phase::forward});
}

TEST_CASE("summary: an empty step") {
  const Summary s = summary_of(HandStep());
  CHECK(s.peak().peak == Moment{});
  CHECK(s.peak_tensors.empty());
  CHECK_FALSE(s.last().recompute_overhead.has_value());
}

TEST_CASE("summary: does it fit") {
  struct Case {
    std::string name;
    std::optional<Bytes> budget, usable;
    std::optional<bool> fits;
    std::optional<Bytes> margin;
    std::string limit_name;
  };
  const Case cases[] = {
      {"no limit, no answer", {}, {}, {}, {}, "dev"},
      {"to the byte", Bytes{280}, {}, true, Bytes{0}, "the budget"},
      {"one byte over", Bytes{279}, {}, false, Bytes{-1}, "the budget"},
      {"the device", {}, Bytes{300}, true, Bytes{20}, "dev"},
      {"the budget goes before the device", Bytes{290}, Bytes{100}, true, Bytes{10}, "the budget"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    ScenarioFacts facts;
    facts.device = "dev";
    facts.budget = c.budget;
    facts.usable = c.usable;
    const Summary s = summary_of(small_tide(), facts);
    CHECK(s.fits == c.fits);
    CHECK(s.margin == c.margin);
    CHECK(s.limit_name == c.limit_name);
  }
}

TEST_CASE("summary: with an allocator, reserved bytes decide") {
  const HandStep made = small_tide();
  Timeline timeline = simulate(made.step, {});
  timeline.allocator.allocated = {{280}, {290}, {285}};
  timeline.allocator.reserved = {{300}, {512}, {512}};
  ScenarioFacts facts;
  facts.budget = Bytes{500};
  Summary s = summarize(made.step, timeline, facts);
  CHECK(s.allocated_peak == Bytes{290});
  CHECK(s.reserved_peak == Bytes{512});
  CHECK(s.fits == false);
  CHECK(s.margin == Bytes{-12});
  timeline.out_of_memory = OutOfMemory{.storage = 0};
  s = summarize(made.step, timeline, facts);
  CHECK(s.fits == false);
  CHECK(s.by == "reserved");
  CHECK(s.margin == std::nullopt);
}

TEST_CASE("summary: warnings of the plan, the step and the policy") {
  struct Case {
    std::string name;
    HandStep made;
    std::optional<Bytes> no_checkpoint_peak;
    std::vector<std::string> warnings;
  };
  HandStep untouched;  // peak at the loss, recompute later and lower
  untouched.op("loss", 1).phase(Phase::loss).alloc("logits", 90).run().free("logits");
  untouched.op("A", 1).phase(Phase::recompute).alloc("t", 10).layer("0").run().free("t");
  HandStep at_once;  // two layers rebuilt before backward
  at_once.op("A", 1).phase(Phase::recompute).alloc("t", 10).layer("0").run();
  at_once.op("B", 1).phase(Phase::recompute).alloc("u", 10).layer("1").run().free("t").free("u");
  HandStep kept;
  kept.op("A", 1).alloc("b", 30).run().op("loss", 1).phase(Phase::loss).alloc("logits", 90).run().free("logits");
  kept.op("A", 1).phase(Phase::recompute).alloc("t", 10).layer("0").run({"b"}).free("t").free("b");
  HandStep half = at_once;
  half.op("C", 1).phase(Phase::recompute).alloc("v", 10).layer("2").run().free("v");
  const Case cases[] = {
      {"none", small_tide(), {}, {}},
      {"the peak fell", small_tide(), Bytes{281}, {}},
      {"untouched",
       untouched,
       {},
       {"this policy touches none of the tensors at the peak (loss; the largest: logits): recomputing more of the same "
        "cannot lower "
        "it"}},
      {"the whole model as one segment",
       at_once,
       Bytes{20},
       {"the peak is not below the 20 B of no checkpointing: all 2 recomputed layers are rebuilt at once, before "
        "backward has freed any of them"}},
      {"which still leaves something",
       at_once,
       Bytes{23},
       {"the peak is 3 B below the 23 B of no checkpointing: all 2 recomputed layers are rebuilt at once, before "
        "backward has freed any of them"}},
      {"most of them at once",
       half,
       Bytes{20},
       {"the peak is not below the 20 B of no checkpointing: 2 of the 3 recomputed layers are rebuilt and alive "
        "together"}},
      {"kept to recompute from",
       kept,
       Bytes{100},
       {"this policy touches none of the tensors at the peak (loss; the largest: logits, b): recomputing more of the "
        "same cannot lower it",
        "the peak is not below the 100 B of no checkpointing: 30 B are kept there to recompute from"}},
      {"no recompute, no remark", two_steps(), Bytes{100}, {}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    ScenarioFacts facts;
    facts.no_checkpoint_peak = c.no_checkpoint_peak;
    CHECK(summary_of(c.made, facts).warnings == c.warnings);
  }
  HandStep made = small_tide();
  made.step.warnings = {"from the step"};
  ScenarioFacts facts;
  facts.warnings = {"from the plan", "from the step"};
  CHECK(summary_of(made, facts).warnings == std::vector<std::string>{"from the plan", "from the step"});
}
