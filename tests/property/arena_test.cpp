// Is every arena an arrangement, and as low as trying every order makes it?
#include "tidemark/engine/arena.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "support/lifetimes.hpp"

using namespace tidemark;

namespace {

rc::Gen<Lifetime> lifetime() {
  return rc::gen::map(rc::gen::tuple(rc::gen::inRange<std::int64_t>(0, 8), rc::gen::inRange<std::int64_t>(1, 6),
                                     rc::gen::inRange<std::int64_t>(1, 7)),
                      [](const auto& t) {
                        return Lifetime{std::get<0>(t), std::get<0>(t) + std::get<1>(t), Bytes{std::get<2>(t)}};
                      });
}

/// Each order, each lifetime at its lowest address: some order gives a least arena.
Bytes least_of_all_orders(const std::vector<Lifetime>& lifetimes) {
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  Bytes least{1 << 30};
  do {
    std::vector<Bytes> offsets(lifetimes.size(), Bytes{-1});
    Bytes height;
    for (const std::size_t i : order) {
      std::vector<std::pair<Bytes, Bytes>> taken;
      for (std::size_t j = 0; j < lifetimes.size(); ++j)
        if (offsets[j].count >= 0 && lifetimes[j].lower < lifetimes[i].upper && lifetimes[i].lower < lifetimes[j].upper)
          taken.emplace_back(offsets[j], offsets[j] + lifetimes[j].size);
      std::ranges::sort(taken);
      Bytes at;
      for (const auto& [begin, end] : taken)
        if (begin < at + lifetimes[i].size) at = std::max(at, end);
      offsets[i] = at;
      height = std::max(height, at + lifetimes[i].size);
    }
    least = std::min(least, height);
  } while (std::ranges::next_permutation(order).found);
  return least;
}

}  // namespace

TEST_CASE("arena: the least of all orders, for up to 6 lifetimes") {
  CHECK(rc::check([] {
    const auto lifetimes = *rc::gen::container<std::vector<Lifetime>>(*rc::gen::inRange<std::size_t>(1, 7), lifetime());
    const Arena arena = make_arena(lifetimes);
    RC_ASSERT(test::is_arrangement(lifetimes, arena));
    RC_ASSERT(arena.is_optimal());
    RC_ASSERT(arena.height == least_of_all_orders(lifetimes));
  }));
}

TEST_CASE("arena: an arrangement between its bounds, whatever the effort") {
  CHECK(rc::check([] {
    const auto lifetimes = *rc::gen::nonEmpty(rc::gen::container<std::vector<Lifetime>>(lifetime()));
    const ArenaEffort effort{.search_up_to = *rc::gen::element<std::size_t>(0, 500),
                             .first_fit_up_to = *rc::gen::element<std::size_t>(0, 500),
                             .steps = *rc::gen::inRange<std::int64_t>(0, 20'000)};
    const Arena arena = make_arena(lifetimes, effort);
    RC_ASSERT(test::is_arrangement(lifetimes, arena));
    RC_ASSERT(most_alive(lifetimes) <= arena.lower_bound);
    RC_ASSERT(arena.lower_bound <= arena.height);
    const auto fitted = fit_arena(lifetimes, arena.height, effort);
    RC_ASSERT(fitted.has_value() && fitted->height <= arena.height && test::is_arrangement(lifetimes, *fitted));
    RC_ASSERT(!fit_arena(lifetimes, arena.lower_bound - Bytes{1}, effort));
  }));
}
