#include "tidemark/engine/arena.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/lifetimes.hpp"
#include "tidemark/base/errors.hpp"

using namespace tidemark;

namespace {

std::vector<Lifetime> of(std::vector<std::array<std::int64_t, 3>> rows) {
  std::vector<Lifetime> out;
  for (const auto& [lower, upper, size] : rows) out.push_back({lower, upper, Bytes{size}});
  return out;
}

}  // namespace

TEST_CASE("arena: the least height of small steps") {
  struct Case {
    std::string name;
    std::vector<Lifetime> lifetimes;
    std::int64_t load, height;
  };
  const Case cases[] = {
      {"nothing", {}, 0, 0},
      {"one", of({{0, 1, 5}}), 5, 5},
      {"one after another share", of({{0, 2, 5}, {2, 4, 3}}), 5, 5},
      {"together stand on each other", of({{0, 3, 5}, {2, 4, 3}}), 8, 8},
      {"minimalloc's example", of({{0, 3, 4}, {3, 9, 4}, {0, 9, 4}, {9, 21, 4}, {0, 21, 4}}), 12, 12},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(most_alive(c.lifetimes) == Bytes{c.load});
    const Arena arena = make_arena(c.lifetimes);
    CHECK(test::is_arrangement(c.lifetimes, arena));
    CHECK(arena.height == Bytes{c.height});
    CHECK(arena.is_optimal());
    CHECK(fit_arena(c.lifetimes, Bytes{c.height}).has_value());
    if (c.height > 0) CHECK(!fit_arena(c.lifetimes, Bytes{c.height - 1}).has_value());
  }
}

TEST_CASE("arena: a lifetime has a size and a length") {
  CHECK_THROWS_AS(make_arena(of({{0, 1, 0}})), InternalError);
  CHECK_THROWS_AS(make_arena(of({{1, 1, 5}})), InternalError);
}

TEST_CASE("arena: without effort the answer is still an arrangement") {
  std::vector<Lifetime> lifetimes;
  for (std::int64_t i = 0; i < 300; ++i) lifetimes.push_back({i, i + 1 + i * 7 % 40, Bytes{1 + i * 13 % 17}});
  const Arena best_fit = make_arena(lifetimes, {.search_up_to = 0, .first_fit_up_to = 0, .steps = 0});
  const Arena first_fit = make_arena(lifetimes, {.search_up_to = 0, .steps = 0});
  const Arena searched = make_arena(lifetimes, {.steps = 2'000'000});
  for (const Arena& arena : {best_fit, first_fit, searched}) {
    CHECK(test::is_arrangement(lifetimes, arena));
    CHECK(arena.lower_bound == most_alive(lifetimes));
  }
  CHECK(first_fit.height <= best_fit.height);
  CHECK(searched.height <= first_fit.height);
  CHECK(make_arena(lifetimes, {.steps = 2'000'000}) == searched);
}

TEST_CASE("arena: best fit takes the smallest gap, the lowest of equals, and lets the top one grow") {
  struct Case {
    std::string name;
    std::vector<Lifetime> lifetimes;
    std::vector<std::int64_t> offsets;
  };
  const Case cases[] = {
      {"the top gap grows", of({{0, 2, 4}, {2, 4, 6}}), {0, 0}},
      {"the smallest gap", of({{0, 2, 4}, {0, 9, 1}, {0, 2, 3}, {0, 9, 1}, {2, 4, 3}}), {0, 4, 5, 8, 5}},
      {"the lowest of equals", of({{0, 2, 3}, {0, 9, 1}, {0, 2, 3}, {0, 9, 1}, {2, 4, 3}}), {0, 3, 4, 7, 0}},
      {"neighbouring gaps join", of({{0, 2, 3}, {0, 3, 3}, {0, 9, 1}, {3, 5, 6}}), {0, 3, 6, 0}},
      {"in any order of ends", of({{0, 3, 3}, {0, 2, 3}, {0, 9, 1}, {3, 5, 6}}), {0, 3, 6, 0}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    std::vector<Bytes> expected;
    for (const std::int64_t offset : c.offsets) expected.push_back(Bytes{offset});
    CHECK(make_arena(c.lifetimes, {.search_up_to = 0, .first_fit_up_to = 0, .steps = 0}).offsets == expected);
  }
}

// A rectangle of time and memory cut up at random, again and again: all of it is in use all the time.
//    ___________
//   |____|______|      before it, one more lifetime that meets none of them
//   |__|_|__|___|
TEST_CASE("arena: a cut-up rectangle is put together again, over several turns of the search") {
  std::vector<Lifetime> pieces = of({{0, 1000, 1000}});
  std::uint64_t random = 3;
  const auto next = [&random](std::int64_t below) {
    random = random * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::int64_t>((random >> 33U) % static_cast<std::uint64_t>(below));
  };
  for (std::size_t i = 0; pieces.size() < 80; i = (i + 1) % pieces.size()) {
    Lifetime& piece = pieces[i];
    Lifetime rest = piece;
    if (const std::int64_t length = piece.upper - piece.lower; next(2) == 0 && length > 40) {
      rest.lower = piece.upper = piece.lower + length / 4 + next(length / 2);
    } else if (piece.size.count > 40) {
      rest.size.count = piece.size.count / 4 + next(piece.size.count / 2);
      piece.size -= rest.size;
    } else {
      continue;
    }
    pieces.push_back(rest);
  }
  pieces.push_back({-10, -5, Bytes{7}});
  const Arena arena = make_arena(pieces);
  CHECK(test::is_arrangement(pieces, arena));
  CHECK(arena.lower_bound == Bytes{1000});
  CHECK(arena.height == Bytes{1000});
}

// storage   0 |-----|   freed by event 3
//           1   |-------- never freed
TEST_CASE("arena: the lifetimes of a timeline, counted in events") {
  Step step;
  step.storages = {{.bytes = Bytes{4}}, {.bytes = Bytes{8}}};
  Timeline timeline;
  timeline.events = {{Nanos{}, Bytes{4}, 0, 1}, {Nanos{}, Bytes{12}, 1, 1}, {Nanos{}, Bytes{8}, 0, 0}};
  CHECK(lifetimes(timeline, step) == of({{0, 2, 4}, {1, 3, 8}}));
}
