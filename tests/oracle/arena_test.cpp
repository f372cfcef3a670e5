// Are the arenas of published instances as low as they can be?
#include "tidemark/engine/arena.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/csv.hpp"
#include "support/lifetimes.hpp"

using namespace tidemark;

TEST_CASE("arena: minimalloc's optima, each with its proof") {
  const auto rows = test::table("tests/oracle/data/static_alloc.csv");
  const auto optima = test::table("tests/oracle/data/static_alloc_optima.csv");
  CHECK(optima.size() == 11);
  for (const test::Row& expected : optima) {
    const std::string instance = expected.at("instance");
    CAPTURE(instance);
    std::vector<Lifetime> lifetimes;
    for (const test::Row& row : rows)
      if (row.at("instance") == instance)
        lifetimes.push_back(
            {std::stoll(row.at("lower")), std::stoll(row.at("upper")), Bytes{std::stoll(row.at("size"))}});
    CHECK(std::to_string(most_alive(lifetimes).count) == expected.at("max_load"));
    const Arena arena = make_arena(lifetimes);
    CHECK(test::is_arrangement(lifetimes, arena));
    CHECK(std::to_string(arena.height.count) == expected.at("optimum"));
    CHECK(arena.is_optimal());
  }
}
