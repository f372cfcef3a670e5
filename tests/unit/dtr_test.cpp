// Online eviction on logs short enough to follow by hand. Published runs are compared in tests/oracle/dtr_test.cpp.
#include "tidemark/study/dtr.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace tidemark;

namespace {

using What = DtrLog::What;

/// "3" runs value 3, "-3" drops it.
std::string moves(const DtrRun& run) {
  std::string out;
  for (const DagMove& move : run.moves)
    out += (out.empty() ? "" : " ") + std::string(move.is_drop ? "-" : "") + std::to_string(move.row);
  return out;
}

}  // namespace

TEST_CASE("dtr: each heuristic drops another value first") {
  // Value 0 is a constant; all others read it alone. 1 is the oldest, 2 the largest, 3 the cheapest for its bytes.
  const DtrLog log{.cost = {0, 6, 12, 4, 1},
                   .bytes = {1, 1, 6, 4, 1},
                   .parents = {{}, {0}, {0}, {0}, {0}},
                   .commands = {{What::constant, 0},
                                {What::call, 1},
                                {What::call, 2},
                                {What::call, 3},
                                {What::call, 4},
                                {What::release, 1},
                                {What::release, 2},
                                {What::release, 3}}};
  struct Case {
    std::string heuristic, moves;
  };
  const Case cases[] = {
      {"h_LRU", "0 1 2 3 -1 4 -2 -3"},   {"h_size", "0 1 2 3 -2 4 -1 -3"},
      {"h_MSPS", "0 1 2 3 -3 4 -1 -2"},   // 6 / 1, 12 / 6, 4 / 4
      {"h_local", "0 1 2 3 -1 4 -2 -3"},  // 6 / (1 * 16), 12 / (6 * 4); 3 was made now
      {"h_DTR", "0 1 2 3 -1 4 -2 -3"},   {"h_DTR_eq", "0 1 2 3 -1 4 -2 -3"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.heuristic);
    const DtrRun run = run_dtr(log, 12, *find_heuristic(c.heuristic), 0);
    CHECK(run.end == DtrRun::End::ok);
    CHECK(moves(run) == c.moves);
    CHECK(moves(run_dtr(log, 13, *find_heuristic(c.heuristic), 0)) == "0 1 2 3 4 -1 -2 -3");
  }
}

TEST_CASE("dtr: what is gone and read again runs again, up to a limit") {
  const DtrLog log{.cost = {0, 10, 1, 1},
                   .bytes = {1, 1, 2, 1},
                   .parents = {{}, {0}, {0}, {1}},
                   .commands = {{What::constant, 0},
                                {What::call, 1},
                                {What::call, 2},
                                {What::release, 2},
                                {What::call, 3},
                                {What::release, 1},
                                {What::release, 0}}};
  const DtrRun run = run_dtr(log, 3, DtrHeuristic::lru, 10);
  CHECK(run.end == DtrRun::End::ok);
  CHECK(moves(run) == "0 1 -1 2 -2 1 3 -1");
  CHECK(run.model_cost == 12);
  CHECK(run.again_cost == 10);
  CHECK(run.peak == 3);
  CHECK(run_dtr(log, 3, DtrHeuristic::lru, 9).end == DtrRun::End::thrashing);
  CHECK(run_dtr(log, 2, DtrHeuristic::lru, 10).end == DtrRun::End::out_of_memory);  // the constant stays
}

TEST_CASE("dtr: a value costs what is gone before it, too") {
  // 1 goes for 4; then 2 would need it back, so that 3 goes for 5: (1 + 6) / 1 against 2 / 1
  const DtrLog log{.cost = {0, 6, 1, 2, 3, 1},
                   .bytes = {1, 10, 1, 1, 1, 10},
                   .parents = {{}, {0}, {1}, {0}, {0}, {0}},
                   .commands = {{What::constant, 0},
                                {What::call, 1},
                                {What::call, 2},
                                {What::call, 3},
                                {What::call, 4},
                                {What::call, 5},
                                {What::release, 1},
                                {What::release, 2},
                                {What::release, 3},
                                {What::release, 4}}};
  CHECK(moves(run_dtr(log, 13, DtrHeuristic::msps, 0)) == "0 1 2 3 -1 4 -3 5 -2 -4");
}

TEST_CASE("dtr: but by h_MSPS not what is gone behind it") {
  // 2, which reads 1, goes for 4; then 1 for 5: 1 / 1 against 2 / 1
  const DtrLog log{.cost = {0, 1, 6, 2, 3, 1},
                   .bytes = {1, 1, 10, 1, 1, 10},
                   .parents = {{}, {0}, {1}, {0}, {0}, {0}},
                   .commands = {{What::constant, 0},
                                {What::call, 1},
                                {What::call, 2},
                                {What::call, 3},
                                {What::call, 4},
                                {What::call, 5},
                                {What::release, 1},
                                {What::release, 2},
                                {What::release, 3},
                                {What::release, 4}}};
  CHECK(moves(run_dtr(log, 13, DtrHeuristic::msps, 0)) == "0 1 2 3 -2 4 -1 5 -3 -4");
}

TEST_CASE("dtr: of equal values the last goes, and what was not released is there at the end") {
  const DtrLog log{
      .cost = {0, 1, 1, 1},
      .bytes = {1, 1, 1, 1},
      .parents = {{}, {0}, {0}, {0}},
      .commands = {{What::constant, 0}, {What::call, 1}, {What::call, 2}, {What::call, 3}, {What::release, 3}}};
  const DtrRun run = run_dtr(log, 3, DtrHeuristic::size, 1);
  CHECK(run.end == DtrRun::End::ok);
  CHECK(moves(run) == "0 1 2 -2 3 -3 2");
  CHECK(run.again_cost == 1);
}
