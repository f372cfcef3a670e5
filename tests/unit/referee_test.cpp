#include "tidemark/engine/referee.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <limits>

#include "support/hand_step.hpp"
#include "tidemark/engine/simulate.hpp"

using namespace tidemark;
using tidemark::test::HandStep;

namespace {

constexpr Stream out = Stream::copy_out;

// event      0+w  1+x         2+y       3-x(14)    4+z   5-y          6-z
// compute   |A 10            |B 4      |          |C 6                |
// copy_out                   |D 4: x out          |
HandStep good() {
  return HandStep()
      .initial("w", 7)
      .op("A", 10)
      .alloc("x", 5)
      .run({"w", "x"})
      .record(0)
      .op("D", 4, out)
      .wait(0)
      .copy({"x"})
      .free("x")
      .op("B", 4)
      .alloc("y", 3)
      .run({"w", "y"})
      .op("C", 6)
      .alloc("z", 2)
      .run({"y", "z"})
      .free("y")
      .free("z");
}

std::string verdict(const std::optional<Violation>& found) {
  return found ? std::string(to_string(found->fault)) + ": " + found->message : "valid";
}

void erase_event(Timeline& t, std::size_t i) {
  const std::int64_t before = i == 0 ? 0 : t.events[i - 1].live.count;
  const Bytes change{t.events[i].live.count - before};
  t.events.erase(t.events.begin() + static_cast<std::ptrdiff_t>(i));
  for (std::size_t j = i; j < t.events.size(); ++j) t.events[j].live -= change;
}

void insert_copy(Timeline& t, std::size_t from, std::size_t to) {
  const MemoryEvent event = t.events[from];
  t.events.insert(t.events.begin() + static_cast<std::ptrdiff_t>(to), event);
}

std::vector<TimelineRow> rows_of(const Step& step, const Timeline& timeline) {
  std::vector<TimelineRow> rows;
  for (const MemoryEvent& event : timeline.events) {
    const StepStorage& storage = step.storages[event.storage];
    rows.push_back({.time = event.time,
                    .rank = storage.rank,
                    .is_alloc = event.is_alloc(),
                    .op = event.op() == no_id ? "" : step.names[step.ops[event.op()].name],
                    .tensor = step.names[storage.name],
                    .bytes = storage.bytes,
                    .live = event.live,
                    .id = event.storage});
  }
  return rows;
}

}  // namespace

TEST_CASE("referee: a planted fault in the timeline is caught by name") {
  struct Case {
    std::string name;
    std::function<void(Timeline&)> plant;
    std::string verdict;
  };
  const Case cases[] = {
      {"nothing", [](Timeline&) {}, "valid"},
      {"a wrong running total", [](Timeline& t) { t.events[2].live += Bytes{1}; },
       "wrong_total: 16 bytes are said to be live after the alloc of 'y', but 15 are"},
      {"a double free", [](Timeline& t) { insert_copy(t, 5, 6); }, "double_free: op 'C' frees 'y' again"},
      {"a double alloc", [](Timeline& t) { insert_copy(t, 1, 2); }, "double_alloc: op 'A' allocates 'x' again"},
      {"a free before the alloc",
       [](Timeline& t) {
         std::swap(t.events[0], t.events[3]);
         t.events[0].time = {};
       },
       "free_of_nothing: op 'D' frees 'x', which is not allocated"},
      {"a lost alloc and free", [](Timeline& t) { erase_event(t, 6), erase_event(t, 4); },
       "missing_event: op 'C' allocates 'z', but no event says so"},
      {"a lost free", [](Timeline& t) { erase_event(t, 5); }, "missing_event: op 'C' frees 'y', but no event says so"},
      {"time runs backwards", [](Timeline& t) { t.events[3].time = Nanos{9}; },
       "time_goes_back: 'x' at 9 ns stands after an event at 10 ns"},
      {"an event under another op", [](Timeline& t) { t.events[2].op_and_kind = MemoryEvent::pack(0, true); },
       "wrong_op: op 'A' allocates 'y', which is for op 'B' to do"},
      {"a storage nobody knows", [](Timeline& t) { t.events[2].storage = 99; },
       "unknown: storage 99 is not in the step"},
      {"two frees of one op swapped",
       [](Timeline& t) {
         std::swap(t.events[5], t.events[6]);
         t.events[5].live = Bytes{10};
         t.events[6].live = Bytes{7};
       },
       "wrong_order: the free of 'y' was issued before what stands above it"},
      {"a free earlier than its copy ends", [](Timeline& t) { t.events[3].time = Nanos{12}; },
       "read_of_freed: op 'D' still reads 'x' when op 'D' frees it"},
      {"a free later than it is due", [](Timeline& t) { t.events[5].time = t.events[6].time = Nanos{30}; },
       "wrong_time: op 'C' frees 'y' at 30 ns, but it is due at 20"},
      {"an op that never ran", [](Timeline& t) { t.ops[2] = {}; }, "missing_op: op 'B' never ran"},
      {"an op that is not there", [](Timeline& t) { t.ops.pop_back(); }, "missing_op: 3 ops ran, but the step has 4"},
      {"a kernel too short", [](Timeline& t) { t.ops[3].end = Nanos{19}; }, "wrong_time: op 'C' runs from 14 to 19 ns"},
      {"a start before the wait is over", [](Timeline& t) { t.ops[1].start = Nanos{9}, t.ops[1].end = Nanos{13}; },
       "early_start: op 'D' starts at 9 ns, but its stream and the host are there at 10"},
      {"a start for no reason late", [](Timeline& t) { t.ops[1].start = Nanos{11}, t.ops[1].end = Nanos{15}; },
       "wrong_time: op 'D' starts at 11 ns, but nothing keeps it after 10"},
      {"a wrong peak", [](Timeline& t) { t.peak += Bytes{1}; },
       "wrong_peak: the peak is said to be 16 bytes at event 2, but it is 15 at event 2"},
      {"a later peak event", [](Timeline& t) { t.peak_event = 3; },
       "wrong_peak: the peak is said to be 15 bytes at event 3, but it is 15 at event 2"},
      {"an op's peak too low", [](Timeline& t) { t.ops[3].peak = Bytes{11}; },
       "wrong_peak: op 'C' is said to peak at 11 bytes, but reaches 12"},
      {"an op's rest too high", [](Timeline& t) { t.ops[3].after += Bytes{1}; },
       "wrong_peak: op 'C' is said to leave 8 bytes, but leaves 7"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const HandStep made = good();
    Timeline timeline = simulate(made.step, {});
    c.plant(timeline);
    CHECK(verdict(referee(made.step, timeline)) == c.verdict);
  }
}

TEST_CASE("referee: a faulty step is caught in what simulate makes of it") {
  struct Case {
    std::string name;
    HandStep made;
    std::string verdict;
  };
  const Case cases[] = {
      {"a read of a freed tensor", HandStep().op("A", 1).alloc("x", 5).run({"x"}).free("x").op("B", 1).run({"x"}),
       "read_of_freed: op 'B' reads 'x', which op 'A' freed"},
      {"a read of a tensor another stream has been told to free",
       HandStep().op("A", 1).alloc("x", 5).run({"x"}).op("D", 9, out).copy({"x"}).free("x").op("B", 1).run({"x"}),
       "read_of_freed: op 'B' reads 'x', which op 'D' freed"},
      {"a leak", HandStep().op("A", 1).alloc("x", 5).run({"x"}), "leak: 'x', allocated by op 'A', is never freed"},
      {"a double free", HandStep().op("A", 1).alloc("x", 5).run({"x"}).free("x").op("B", 1).free("x"),
       "double_free: op 'B' frees 'x' again"},
      {"a free while a copy still reads",
       HandStep().op("A", 1).alloc("x", 5).run({"x"}).op("D", 9, out).copy({"x"}).op("B", 1).run().free("x"),
       "read_of_freed: op 'D' still reads 'x' when op 'B' frees it"},
      {"a prefetch nobody waits for",
       HandStep()
           .op("P", 9, Stream::copy_in)
           .alloc("p", 5)
           .copy({"p"})
           .op("B", 1)
           .run({"p"})
           .op("C", 20)
           .run()
           .free("p"),
       "read_too_early: op 'B' reads 'p' before op 'P' has made it"},
      {"a kernel twice", HandStep().op("A", 0).run().run(), "repeated_op: op 'A' runs 2 times"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(verdict(referee(c.made.step, simulate(c.made.step, {}))) == c.verdict);
  }
  HandStep idle;
  idle.op("A", 1);
  idle.step.ops[0].flops = 8;
  CHECK(verdict(referee(idle.step, simulate(idle.step, {}))) == "missing_op: op 'A' never ran");
  HandStep unborn;
  unborn.op("A", 1).alloc("x", 5).run({"x"}).free("x");
  std::swap(unborn.step.instructions[0], unborn.step.instructions[1]);
  CHECK(verdict(referee(unborn.step, simulate(unborn.step, {}))) ==
        "read_of_nothing: op 'A' reads 'x', which is not allocated");
}

TEST_CASE("referee: a step and a timeline that do not belong together") {
  struct Case {
    std::string name;
    std::function<void(Step&, Timeline&)> plant;
    std::string verdict;
  };
  const Case cases[] = {
      {"an initial storage", [](Step& s, Timeline&) { s.initial.push_back(9); },
       "unknown: initial storage 9 is not in the step"},
      {"an instruction's storage", [](Step& s, Timeline&) { s.instructions[0].index = 9; },
       "unknown: instruction 0 names what is not in the step"},
      {"an instruction's op", [](Step& s, Timeline&) { s.instructions[1].op = 9; },
       "unknown: instruction 1 names what is not in the step"},
      {"an instruction's event", [](Step& s, Timeline&) { s.instructions[2].index = 9; },
       "unknown: instruction 2 names what is not in the step"},
      {"a read", [](Step& s, Timeline&) { s.reads[0] = 9; },
       "unknown: op 'A' reads storage 9, which is not in the step"},
      {"an alloc that is not in the list", [](Step& s, Timeline&) { s.initial.clear(); },
       "unknown: no op allocates 'w', which the step does not"},
      {"a record that is not in the list", [](Step& s, Timeline&) { s.instructions.erase(s.instructions.begin() + 2); },
       "early_start: op 'D' waits for event 0, which is never recorded"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    HandStep made = good();
    Timeline timeline = simulate(made.step, {});
    c.plant(made.step, timeline);
    CHECK(verdict(referee(made.step, timeline)) == c.verdict);
  }
}

TEST_CASE("referee: two ranks that wait for each other's events in turn") {
  HandStep made;
  made.initial("w0", 1).initial("w1", 2, 1);
  made.op("B", 5, Stream::compute, 1).wait(0).alloc("y", 3).run().record(1).free("y");
  made.op("A", 10).alloc("x", 4).run().record(0).wait(1).free("x");
  Timeline timeline = simulate(made.step, {});
  CHECK(verdict(referee(made.step, timeline)) == "valid");
  timeline.ops[0].start = Nanos{9};
  timeline.ops[0].end = Nanos{14};
  CHECK(verdict(referee(made.step, timeline)) ==
        "early_start: op 'B' starts at 9 ns, but its stream and the host are there at 10");
}

TEST_CASE("referee: a planted fault in bare rows, and in rows beside their step") {
  using Rows = std::vector<TimelineRow>;
  const auto erase = [](Rows& rows, std::size_t i) {
    const Bytes change = rows[i].is_alloc ? rows[i].bytes : Bytes{} - rows[i].bytes;
    rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(i));
    for (std::size_t j = i; j < rows.size(); ++j) rows[j].live -= change;
  };
  struct Case {
    std::string name;
    std::function<void(Rows&)> plant;
    std::string alone, beside_step;
    std::size_t row;
  };
  const std::string again = "double_free: 'y' is freed again (id 2)";
  const std::string total = "wrong_total: 16 bytes are said to be live after the alloc of 'y', but 15 are";
  const std::string back = "time_goes_back: 'x' at 9 ns stands after a row at 10 ns";
  const std::string size = "wrong_size: 4 bytes of 'x' are freed under id 1, which holds 5 bytes of 'x'";
  const std::string held = "double_alloc: 'y' is allocated under id 1, which 'x' still holds";
  const std::string none = "free_of_nothing: 'x' is freed, but nothing was allocated under id 9";
  const std::string past = "wrong_total: live bytes pass 2^63";
  const std::string zero = "wrong_size: 'y' has 0 bytes";
  const Case cases[] = {
      {"nothing", [](Rows&) {}, "valid", "valid", 0},
      {"a wrong running total", [](Rows& r) { r[2].live = Bytes{16}; }, total, total, 2},
      {"a double free", [](Rows& r) { r.insert(r.begin() + 6, r[5]); }, again, again, 6},
      {"time runs backwards", [](Rows& r) { r[3].time = Nanos{9}; }, back, back, 3},
      {"another size freed", [](Rows& r) { r[3].bytes = Bytes{4}; }, size, size, 3},
      {"an id in use", [](Rows& r) { r[2].id = 1; }, held, held, 2},
      {"an id never allocated", [](Rows& r) { r[3].id = 9; }, none, none, 3},
      {"no bytes", [](Rows& r) { r[2].bytes = Bytes{}; }, zero, zero, 2},
      {"a lost free: rows alone cannot know", [&](Rows& r) { erase(r, 5); }, "valid",
       "missing_event: op 'C' frees 'y', but no event says so", Violation::no_event},
      {"a missing op: rows alone cannot know", [&](Rows& r) { erase(r, 5), erase(r, 2); }, "valid",
       "missing_event: op 'C' allocates 2 bytes of 'z' where the step's next alloc is op 'B', 3 bytes of 'y'", 3},
      {"one alloc too many",
       [](Rows& r) {
         r.push_back(r[0]);
         r.back().id = 99;
         r.back().time = Nanos{20};
         r.back().live = Bytes{14};
       },
       "valid", "unknown: 'w' is one alloc more than the step makes", 7},
      {"a rank the step does not have", [](Rows& r) { r[0].rank = 1, r[1].live = Bytes{5}, r.resize(2); }, "valid",
       "unknown: the step has no rank 1", 0},
      {"more than can be counted", [](Rows& r) { r[1].bytes = Bytes{std::numeric_limits<std::int64_t>::max()}; }, past,
       past, 1},
      {"a free by another op", [](Rows& r) { r[5].op = "B"; }, "valid",
       "wrong_op: op 'B' frees 'y', which is for op 'C' to do", 5},
  };
  const HandStep made = good();
  const Rows truth = rows_of(made.step, simulate(made.step, {}));
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Rows rows = truth;
    c.plant(rows);
    CHECK(verdict(referee(rows)) == c.alone);
    const std::optional<Violation> found = referee(made.step, rows);
    CHECK(verdict(found) == c.beside_step);
    if (found) CHECK(found->event == c.row);
  }
}
