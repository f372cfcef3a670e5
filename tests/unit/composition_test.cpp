#include "tidemark/engine/composition.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "support/hand_step.hpp"
#include "tidemark/base/errors.hpp"

using namespace tidemark;
using tidemark::test::HandStep;

TEST_CASE("compose: what it leaves, how high it rises, and where first") {
  //  a: +5 -3 (net 2, crest 5 after 1)      b: +4 -4 (net 0, crest 4 after 1)
  const Stretch a{Bytes{2}, Bytes{5}, 1, 2};
  const Stretch b{Bytes{0}, Bytes{4}, 1, 2};
  const Stretch fall{Bytes{-9}, Bytes{0}, 0, 1};
  struct Case {
    std::string name;
    Stretch first, second, made;
  };
  const Case cases[] = {
      {"the second one rises higher from what the first left", a, b, {Bytes{2}, Bytes{6}, 3, 4}},
      {"the first one's crest stands", b, Stretch{Bytes{0}, Bytes{3}, 1, 2}, {Bytes{0}, Bytes{4}, 1, 4}},
      {"of two equal crests the first", b, b, {Bytes{0}, Bytes{4}, 1, 4}},
      {"a fall before a rise hides it", fall, a, {Bytes{-7}, Bytes{0}, 0, 3}},
      {"a fall after a rise", a, fall, {Bytes{-7}, Bytes{5}, 1, 3}},
      {"nothing before", {}, a, a},
      {"nothing after", a, {}, a},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(compose(c.first, c.second) == c.made);
  }
}

TEST_CASE("power: equal layers in a row") {
  const Stretch layer{Bytes{2}, Bytes{5}, 1, 3};
  Stretch walked;
  for (std::uint64_t n = 0; n < 40; ++n) {
    CAPTURE(n);
    CHECK(power(layer, n) == walked);
    walked = compose(walked, layer);
  }
  // 10^15 layers: net 2 each, the last one's crest on top
  CHECK(power(layer, 1'000'000'000'000'000).crest == Bytes{1'999'999'999'999'998 + 5});
}

TEST_CASE("compose: past 2^63 is refused") {
  const Stretch huge{Bytes{std::numeric_limits<std::int64_t>::max()}, Bytes{std::numeric_limits<std::int64_t>::max()},
                     1, 1};
  const Stretch one{Bytes{1}, Bytes{1}, 1, 1};
  CHECK_THROWS_AS(compose(huge, one), InputError);
  CHECK_THROWS_AS(power(one, std::numeric_limits<std::uint64_t>::max()), InputError);
}

TEST_CASE("stretches: one a script, and their composition peaks where the scan does") {
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
      .run()
      .free("z");
  const std::vector<Stretch> row = stretches(made.step);
  CHECK(row ==
        std::vector<Stretch>{{Bytes{5}, Bytes{5}, 1, 2}, {Bytes{-2}, Bytes{3}, 1, 3}, {Bytes{0}, Bytes{4}, 1, 3}});
  Stretch whole;
  for (const Stretch& of : row) whole = compose(whole, of);
  CHECK(live_peak(made.step, whole) == live_peak(made.step));
}
