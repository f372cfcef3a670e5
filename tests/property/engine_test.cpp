#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <functional>

#include "support/random_step.hpp"
#include "tidemark/engine/composition.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/engine/simulate.hpp"

using namespace tidemark;
using tidemark::test::make_step;
using tidemark::test::Move;
using tidemark::test::moves;

namespace {

void accept(const Step& step, const Timeline& timeline) {
  const std::optional<Violation> found = referee(step, timeline);
  if (found) RC_FAIL(std::string(to_string(found->fault)) + ": " + found->message);
}

/// The same moves, each freeing nothing but what it allocates itself: equal layers then are equal stretches.
std::vector<Move> self_contained(std::vector<Move> layer) {
  for (Move& move : layer) {
    move.meets.clear();
    auto own = static_cast<unsigned>(move.allocs.size());
    move.frees.resize(std::min<std::size_t>(move.frees.size(), own));
    for (unsigned& f : move.frees) f %= own--;
  }
  return layer;
}

/// Without its last script, which frees what is left.
Step without_end(Step step) {
  while (!step.instructions.empty() && step.instructions.back().op == step.ops.size() - 1) step.instructions.pop_back();
  return step;
}

}  // namespace

TEST_CASE("any step: the referee accepts what simulate makes of it") {
  CHECK(rc::check("one rank, four streams", [] {
    const Step step = make_step(*moves(4, 1));
    accept(step, simulate(step, {}));
  }));
  CHECK(rc::check("three ranks", [] {
    Step step = make_step(*moves(4, 3), 3);
    const Timeline timeline = simulate(step, {});
    accept(step, timeline);
    // How the ranks' lists are woven together is no matter, even if a wait then stands above its record.
    std::ranges::stable_sort(step.instructions, std::ranges::greater{},
                             [&](const Instruction& at) { return step.ops[at.op].rank; });
    RC_ASSERT(simulate(step, {}) == timeline);
    accept(step, timeline);
  }));
}

TEST_CASE("any step: the same bytes out, and the same with the live allocator behind the seam") {
  CHECK(rc::check([] {
    const Step step = make_step(*moves(4, 1));
    const Timeline timeline = simulate(step, {});
    RC_ASSERT(timeline == simulate(step, {}));
    LiveAllocator live(step);
    const Timeline beside = simulate(step, {}, live);
    RC_ASSERT(beside.events == timeline.events);
    RC_ASSERT(beside.ops == timeline.ops);
    RC_ASSERT(beside.allocator.allocated.size() == timeline.events.size());
    RC_ASSERT(!beside.out_of_memory);
    // The host lets go at once; live bytes wait for the stream.
    for (std::size_t i = 0; i < timeline.events.size(); ++i)
      RC_ASSERT(beside.allocator.allocated[i] <= timeline.events[i].live);
  }));
}

TEST_CASE("any step without times: every stream's order is the host's") {
  CHECK(rc::check([] {
    std::vector<Move> all = *moves(4, 1);
    for (Move& move : all) move.time = 0;
    const Step step = make_step(all);
    const Timeline timeline = simulate(step, {});
    const Peak peak = live_peak(step);
    RC_ASSERT(timeline.peak == peak.bytes);
    std::vector<StorageId> issued = step.initial, happened;
    for (const Instruction& at : step.instructions)
      if (at.what == Do::alloc || at.what == Do::free) issued.push_back(at.index);
    for (const MemoryEvent& event : timeline.events) happened.push_back(event.storage);
    RC_ASSERT(issued == happened);
  }));
}

TEST_CASE("any step of one stream: composition, the scan and the simulation agree") {
  CHECK(rc::check("the whole", [] {
    const Step step = make_step(*moves(1, 1));
    Stretch whole;
    for (const Stretch& of : stretches(step)) whole = compose(whole, of);
    const Timeline timeline = simulate(step, {});
    const Peak peak = live_peak(step, whole);
    RC_ASSERT(peak == live_peak(step));
    RC_ASSERT(peak.bytes == timeline.peak);
    if (timeline.peak_event >= step.initial.size())
      RC_ASSERT(step.instructions[peak.instruction].index == timeline.events[timeline.peak_event].storage);
  }));
  CHECK(rc::check("compose is associative", [] {
    Stretch from_left, from_right;
    const std::vector<Stretch> row = stretches(make_step(*moves(1, 1)));
    for (std::size_t i = 0; i < row.size(); ++i) from_left = compose(from_left, row[i]);
    for (std::size_t i = row.size(); i > 0; --i) from_right = compose(row[i - 1], from_right);
    RC_ASSERT(from_left == from_right);
  }));
  CHECK(rc::check("equal layers: the power of one is the simulation of all", [] {
    const std::vector<Move> layer = self_contained(*moves(1, 1));
    const auto times = *rc::gen::inRange(1, 9);
    std::vector<Move> layers;
    for (int i = 0; i < times; ++i) layers.insert(layers.end(), layer.begin(), layer.end());
    const Step one = without_end(make_step(layer));
    const Step all = without_end(make_step(layers));
    Stretch whole;
    for (const Stretch& part : stretches(one)) whole = compose(whole, part);
    RC_ASSERT(live_peak(all, power(whole, static_cast<std::uint64_t>(times))) == live_peak(all));
    RC_ASSERT(live_peak(all).bytes == simulate(all, {}).peak);
  }));
}
