#include "tidemark/engine/simulate.hpp"

#include <doctest/doctest.h>

#include "support/hand_step.hpp"
#include "tidemark/base/errors.hpp"

using namespace tidemark;
using tidemark::test::HandStep;
using tidemark::test::lines_of;
using tidemark::test::shown;
using tidemark::test::shown_ops;

namespace {

using Rows = std::vector<std::string>;

constexpr Stream out = Stream::copy_out;
constexpr Stream in = Stream::copy_in;
constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

}  // namespace

TEST_CASE("simulate: events on a hand-drawn timeline") {
  struct Case {
    std::string name;
    HandStep made;
    Rows events, ops;
  };
  const Case cases[] = {
      // A |==========|          B |=====|
      //   +x         10           +y -x  15
      {"one stream: what a script allocates first counts from the op's start, what it frees last until its end",
       HandStep().op("A", 10).alloc("x", 5).run().op("B", 5).alloc("y", 3).run().free("x"),
       {"0 +x 5", "10 +y 8", "15 -x 3"},
       {"A 0..10 peak 5 after 5", "B 10..15 peak 8 after 3"}},
      {"initial storages come first, at time 0",
       HandStep().initial("w", 7).op("A", 2).alloc("x", 1).run(),
       {"0 +w 7", "0 +x 8"},
       {"A 0..2 peak 8 after 8"}},
      {"an op of zero length still allocates before it frees",
       HandStep().op("A", 0).alloc("x", 5).run().free("x").op("B", 0).alloc("y", 5).run(),
       {"0 +x 5", "0 -x 0", "0 +y 5"},
       {"A 0..0 peak 5 after 0", "B 0..0 peak 5 after 5"}},
      // compute  |A 10       |B 4 |C 20                |
      // copy_out             |D 8      -x (18)
      {"a copied storage leaves when its copy has ended, while the host goes on",
       HandStep()
           .op("A", 10)
           .alloc("x", 5)
           .run()
           .op("D", 8, out)
           .copy({"x"})
           .free("x")
           .op("B", 4)
           .alloc("y", 3)
           .run()
           .op("C", 20)
           .alloc("z", 2)
           .run(),
       {"0 +x 5", "10 +y 8", "14 +z 10", "18 -x 5"},
       {"A 0..10 peak 5 after 5", "D 10..18 peak 10 after 5", "B 10..14 peak 8 after 8", "C 14..34 peak 10 after 5"}},
      {"at one instant a copy's free goes before what the host issued later",
       HandStep()
           .op("A", 10)
           .alloc("x", 5)
           .run()
           .op("D", 4, out)
           .copy({"x"})
           .free("x")
           .op("B", 4)
           .run()
           .op("C", 1)
           .alloc("y", 3)
           .run(),
       {"0 +x 5", "14 -x 0", "14 +y 3"},
       {"A 0..10 peak 5 after 5", "D 10..14 peak 5 after 0", "B 10..14 peak 5 after 0", "C 14..15 peak 3 after 3"}},
      {"a copy of zero length frees at once",
       HandStep().op("A", 10).alloc("x", 5).run().op("D", 0, out).copy({"x"}).free("x").op("C", 1).alloc("y", 3).run(),
       {"0 +x 5", "10 -x 0", "10 +y 3"},
       {"A 0..10 peak 5 after 5", "D 10..10 peak 5 after 0", "C 10..11 peak 3 after 3"}},
      // compute  |A 10      |            wait |B 1|
      // copy_in  |P 25 (issued at 0, +p at 0) |
      {"compute waits for a prefetch, which allocates when it is issued",
       HandStep()
           .op("P", 25, in)
           .alloc("p", 9)
           .copy({"p"})
           .record(0)
           .op("A", 10)
           .alloc("x", 1)
           .run()
           .op("B", 1)
           .wait(0)
           .run({"p"})
           .free("p"),
       {"0 +p 9", "0 +x 10", "26 -p 1"},
       {"P 0..25 peak 10 after 10", "A 0..10 peak 10 after 10", "B 25..26 peak 10 after 1"}},
      // compute  |A 10 (record)|B 10     |
      // copy_out               |D: waits for A, 10..13|
      {"a copy waits for the kernel whose event it was given",
       HandStep()
           .op("A", 10)
           .alloc("x", 4)
           .run()
           .record(0)
           .op("D", 3, out)
           .wait(0)
           .copy({"x"})
           .free("x")
           .op("B", 10)
           .run(),
       {"0 +x 4", "13 -x 0"},
       {"A 0..10 peak 4 after 4", "D 10..13 peak 4 after 0", "B 10..20 peak 4 after 0"}},
      // copy_out |D 10..20|  copy_in |E 10..15|: E's free is due first though issued later
      {"two copy streams: frees go by time, not by issue",
       HandStep()
           .op("A", 10)
           .alloc("x", 4)
           .alloc("y", 2)
           .run()
           .op("D", 10, out)
           .copy({"x"})
           .free("x")
           .op("E", 5, in)
           .copy({"y"})
           .free("y")
           .op("B", 30)
           .run(),
       {"0 +x 4", "0 +y 6", "15 -y 4", "20 -x 0"},
       {"A 0..10 peak 6 after 6", "D 10..20 peak 6 after 0", "E 10..15 peak 6 after 4", "B 10..40 peak 6 after 0"}},
      {"two copy streams at one instant: the lower host sequence first",
       HandStep()
           .op("A", 10)
           .alloc("x", 4)
           .alloc("y", 2)
           .run()
           .op("D", 5, Stream::comm)
           .copy({"x"})
           .free("x")
           .op("E", 5, in)
           .copy({"y"})
           .free("y"),
       {"0 +x 4", "0 +y 6", "15 -x 2", "15 -y 0"},
       {"A 0..10 peak 6 after 6", "D 10..15 peak 6 after 2", "E 10..15 peak 6 after 0"}},
      // compute  |A 10      |B 4 +z -z|C 9 +v 4      |
      // copy_out            |D 5: x     |E 5: y      | F, no kernel: -u (20)
      {"a queued copy's peak counts from its own start, and an op without a kernel waits its turn",
       HandStep()
           .op("A", 10)
           .alloc("x", 1)
           .alloc("y", 1)
           .alloc("u", 1)
           .run()
           .op("D", 5, out)
           .copy({"x"})
           .free("x")
           .op("E", 5, out)
           .copy({"y"})
           .free("y")
           .op("F", 0, out)
           .free("u")
           .op("B", 4)
           .alloc("z", 9)
           .run()
           .free("z")
           .op("C", 9)
           .alloc("v", 4)
           .run(),
       {"0 +x 1", "0 +y 2", "0 +u 3", "10 +z 12", "14 -z 3", "14 +v 7", "15 -x 6", "20 -y 5", "20 -u 4"},
       {"A 0..10 peak 3 after 3", "D 10..15 peak 12 after 6", "E 15..20 peak 6 after 5", "F 10..10 peak 5 after 4",
        "B 10..14 peak 12 after 3", "C 14..23 peak 7 after 4"}},
      // compute  |A 2|B 10 +z -z |C 9         |
      // copy_out     |D 3: x|    |E 4: y      |
      {"a copy's peak forgets what was before it started",
       HandStep()
           .op("A", 2)
           .alloc("x", 1)
           .alloc("y", 1)
           .run()
           .op("D", 3, out)
           .copy({"x"})
           .free("x")
           .op("B", 10)
           .alloc("z", 90)
           .run()
           .free("z")
           .op("E", 4, out)
           .copy({"y"})
           .free("y")
           .op("C", 9)
           .run(),
       {"0 +x 1", "0 +y 2", "2 +z 92", "5 -x 91", "12 -z 1", "16 -y 0"},
       {"A 0..2 peak 2 after 2", "D 2..5 peak 92 after 91", "B 2..12 peak 92 after 1", "E 12..16 peak 1 after 0",
        "C 12..21 peak 1 after 0"}},
      {"an op without a kernel stands at its script's moment",
       HandStep().op("A", 10).alloc("x", 4).run().op("drop", 99).free("x").op("never", 1),
       {"0 +x 4", "10 -x 0"},
       {"A 0..10 peak 4 after 4", "drop 10..10 peak 4 after 0", "never -1..-1 peak 0 after 0"}},
      // rank 0  |A 10 (record)|            rank 1  |wait......|B 5|
      {"two ranks: each its own memory and clocks, one waits for the other",
       HandStep()
           .initial("w0", 1)
           .initial("w1", 2, 1)
           .op("B", 5, Stream::compute, 1)
           .wait(0)
           .alloc("y", 3)
           .run()
           .op("A", 10)
           .alloc("x", 4)
           .run()
           .record(0),
       {"0 +w0 1", "0 +x 5", "0 +w1 2", "10 +y 5"},
       {"B 10..15 peak 5 after 5", "A 0..10 peak 5 after 5"}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Timeline timeline = simulate(c.made.step, {});
    CHECK(shown(timeline, c.made.step) == lines_of(c.events));
    CHECK(shown_ops(timeline, c.made.step) == lines_of(c.ops));
  }
}

TEST_CASE("simulate: the peak is the first event that reaches it") {
  HandStep made;
  made.op("A", 1).alloc("x", 5).run().free("x").op("B", 1).alloc("y", 5).run();
  const Timeline timeline = simulate(made.step, {});
  CHECK(timeline.peak == Bytes{5});
  CHECK(timeline.peak_event == 0);
  CHECK(timeline.end == Nanos{2});
}

TEST_CASE("simulate: how long an op takes without a given time") {
  Device device;
  device.flops[static_cast<std::size_t>(DType::float32)] = 1e12;
  device.memory_bandwidth = 1e12;
  device.copy_to_host = 10e9;
  device.copy_to_device = 20e9;
  device.launch_time = Nanos{7};
  struct Case {
    std::string name;
    Do what;
    Stream stream;
    std::int64_t flops, moved, took;
  };
  const Case cases[] = {
      {"compute bound", Do::compute, Stream::compute, 5000, 3000, 12},
      {"memory bound", Do::compute, Stream::compute, 3000, 5000, 12},
      {"a copy to the host", Do::copy, out, 0, 5000, 500},
      {"a copy to the device", Do::copy, in, 0, 5000, 250},
      {"a copy within the device", Do::copy, Stream::compute, 0, 5000, 12},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    HandStep made;
    made.op("A", 0, c.stream);
    StepOp& op = made.step.ops.back();
    op.has_time = false;
    op.flops = c.flops;
    op.moved = Bytes{c.moved};
    c.what == Do::copy ? made.copy() : made.run();
    CHECK(simulate(made.step, device).ops[0].end == Nanos{c.took});
  }
}

TEST_CASE("simulate: what cannot be counted is refused, naming the op") {
  struct Case {
    std::string name;
    HandStep made;
    std::string message;
  };
  const Case cases[] = {
      {"bytes", HandStep().initial("w", huge).op("A", 1).alloc("x", 1).run(), "error: op 'A': live bytes pass 2^63"},
      {"initial bytes", HandStep().initial("w", huge).initial("v", 1), "error: initial storages: live bytes pass 2^63"},
      {"time", HandStep().op("A", 5).run().op("B", huge - 5).run(), "error: op 'B': time passes 2^63 ns"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK_THROWS_WITH_AS(simulate(c.made.step, {}), c.message.c_str(), InputError);
  }
  HandStep slow;
  slow.op("A", 0).run();
  slow.step.ops[0].has_time = false;
  slow.step.ops[0].flops = huge;
  Device device;
  device.flops.fill(1);
  CHECK_THROWS_WITH_AS(simulate(slow.step, device), "error: op 'A': time passes 2^63 ns", InputError);
}

TEST_CASE("simulate: a broken step is our mistake") {
  struct Case {
    std::string name;
    HandStep made;
    std::string message;
  };
  Case cases[] = {
      {"a wait for an event nobody records", HandStep().op("A", 1).wait(0).run(),
       "op 'A' waits for event 0, which nothing before it records"},
      {"two ranks that wait for each other",
       HandStep().initial("w", 1, 1).op("A", 1).wait(0).record(1).op("B", 1, Stream::compute, 1).wait(1).record(0),
       "op 'A' waits for event 0, which nothing before it records"},
      {"a storage that is not there", HandStep().op("A", 1).alloc("x", 1), "a storage id is out of range"},
      {"an op that is not there", HandStep().op("A", 1).run(), "an op id is out of range"},
      {"a negative time", HandStep().op("A", -1).run(), "an op's time is negative"},
  };
  cases[2].made.step.instructions[0].index = 1;
  cases[3].made.step.instructions[0].index = 1;
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK_THROWS_WITH_AS(simulate(c.made.step, {}), c.message.c_str(), InternalError);
  }
}

TEST_CASE("live_peak: the scan agrees with the simulation on one stream") {
  HandStep made;
  made.initial("w", 2)
      .op("A", 1)
      .alloc("x", 5)
      .run()
      .op("B", 1)
      .alloc("y", 3)
      .run()
      .free("x")
      .op("C", 1)
      .alloc("z", 4)
      .run();
  const Peak peak = live_peak(made.step);
  CHECK(peak == Peak{Bytes{10}, 2});
  CHECK(peak.bytes == simulate(made.step, {}).peak);
  HandStep twice;
  twice.op("A", 1).alloc("x", 5).run().free("x").op("B", 1).alloc("y", 5).run();
  CHECK(live_peak(twice.step) == Peak{Bytes{5}, 0});
  HandStep wide;
  wide.initial("w", huge).op("A", 1).alloc("x", 1).run();
  CHECK_THROWS_AS(live_peak(wide.step), InputError);
}
