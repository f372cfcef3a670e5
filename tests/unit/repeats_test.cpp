#include "tidemark/engine/repeats.hpp"

#include <doctest/doctest.h>

#include "support/hand_step.hpp"
#include "tidemark/engine/simulate.hpp"

using namespace tidemark;
using tidemark::test::HandStep;

namespace {

/// A piece that rises by `crest`, ends at `net`, and takes `time`; the crest is at its second of three instructions.
Piece piece(std::int64_t net, std::int64_t crest, std::int64_t time) {
  Piece out;
  out.stretch = {Bytes{net}, Bytes{crest}, crest > 0 ? std::size_t{2} : std::size_t{0}, 3};
  out.net[0] = Bytes{net};
  out.at_crest[0] = Bytes{crest};
  out.time[1] = Nanos{time};
  out.events = 2;
  out.ops = 1;
  return out;
}

}  // namespace

TEST_CASE("repeats: nested groups peak where the row written out does") {
  // (up up up down) x 3: each time nets 3 * 2 - 5 = 1, so the last time round stands highest
  const Piece up = piece(2, 4, 10), down = piece(-5, 0, 100), rest = piece(0, 0, 1);
  Repeats repeats;
  repeats.add(rest);
  const std::size_t group = repeats.open(3, 4);
  repeats.add(up, 3, 0, 1);
  repeats.add(down, 1, 3);
  repeats.close();
  repeats.add(rest, 0);
  repeats.finish();
  CHECK(repeats.whole().net == Bytes{3});
  CHECK(repeats.whole().crest == Bytes{1 + 1 + 2 + 2 + 4});
  const auto crest = repeats.crest();
  REQUIRE(crest.has_value());
  CHECK(crest->piece == &up);
  CHECK(crest->block == 2 + 2 * 4);
  CHECK(crest->group == group);
  CHECK(crest->turn == 2);
  CHECK(crest->before.net[0] == Bytes{1 + 1 + 2 + 2});
  CHECK(crest->before.time[1] == 1 + 2 * (3 * 10 + 100) + 2 * 10);
  CHECK(repeats.sums().time[1] == 1 + 3 * 130);
  CHECK(repeats.sums().events == 2 * 13);
  CHECK(repeats.sums(group).ops == 4);
  CHECK(repeats.level_before_last(down) == Bytes{1 + 1 + 6});
  CHECK(repeats.level_before_last(up) == Bytes{1 + 1 + 4});
}

TEST_CASE("repeats: nothing rises above the start") {
  const Piece down = piece(-2, 0, 1);
  Repeats repeats;
  repeats.add(down, 4);
  repeats.finish();
  CHECK_FALSE(repeats.crest().has_value());
  CHECK(repeats.whole().net == Bytes{-8});
}

TEST_CASE("pieces: what a run of instructions adds up to") {
  HandStep made;
  made.initial("w", 2).op("A", 1).alloc("x", 5).run().op("B", 1).alloc("y", 3).run().free("x").free("y");
  const Device device;
  const OpTimes times(device);
  const Step& step = made.step;
  CHECK(has_one_stream(step));
  const Piece all = piece_of(step, times, {0, step.instructions.size(), 0, step.ops.size()});
  CHECK(all.stretch == Stretch{Bytes{0}, Bytes{8}, 3, 6});
  CHECK(all.events == 4);
  CHECK(all.ops == 2);
  CHECK(all.crest_op == 1);
  CHECK(live_peak(step).bytes == Bytes{2} + all.stretch.crest);
  CHECK(alike(all, all));
  // the same figures in another order are not alike
  HandStep other;
  other.initial("w", 2).op("A", 1).alloc("x", 5).run().op("B", 1).alloc("y", 3).run().free("y").free("x");
  const Piece turned = piece_of(other.step, times, {0, other.step.instructions.size(), 0, other.step.ops.size()});
  CHECK(turned.stretch == all.stretch);
  CHECK_FALSE(alike(turned, all));
}
