// Do the planners of whole-step graphs reach the published optima, in plans that run?
#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "support/whole_steps.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/plan/validity.hpp"
#include "tidemark/program/outline.hpp"
#include "tidemark/step/lower.hpp"
#include "tidemark/study/checkmate.hpp"
#include "tidemark/study/dag_bound.hpp"
#include "tidemark/study/dag_search.hpp"
#include "tidemark/study/linear_program.hpp"

using namespace tidemark;
using test::Row;

namespace {

const std::string folder = "tests/oracle/data/planners/";

std::map<std::string, LayerGraph> graphs() {
  std::map<std::string, LayerGraph> out;
  for (const Row& row : test::table(folder + "dags.csv")) out[row.at("graph")] = test::whole_step(row);
  return out;
}

/// The plan runs as it was promised: the referee agrees, with these bytes at the peak and this time.
void check_runs(const LayerGraph& graph, const DagSchedule& schedule) {
  const Dag dag = make_dag(graph, false);
  const Plan plan = to_plan(schedule, dag);
  check_plan(plan, outline(graph));
  const Step step = lower(graph, plan, Convention::checkmate, 1);
  const Timeline timeline = simulate(step, Device{});
  CHECK(timeline.peak == Bytes{schedule.peak});
  CHECK(timeline.end == Nanos{schedule.cost});
  CHECK(!referee(step, timeline));
}

std::string cost_of(const std::optional<DagSchedule>& schedule) {
  return schedule ? std::to_string(schedule->cost) : "";
}

}  // namespace

TEST_CASE("checkmate: the optimum of every row, and the optimum without whole numbers") {
  if (!has_linear_solver()) return;
  const auto all = graphs();
  std::size_t rows = 0;
  for (const Row& row : test::table(folder + "dag_optima.csv")) {
    const std::string name = row.at("graph") + " in " + row.at("budget");
    CAPTURE(name);
    const Dag dag = make_dag(all.at(row.at("graph")), false);
    const std::int64_t budget = std::stoll(row.at("budget"));
    const auto relaxed = checkmate_relaxed(dag, budget);
    REQUIRE(relaxed);
    CHECK(*relaxed == doctest::Approx(std::stod(row.at("relaxed"))).epsilon(1e-4));
    const CheckmateAnswer answer = checkmate(dag, budget, 60);
    CHECK(answer.is_proven);
    CHECK(cost_of(answer.schedule) == row.at("optimum"));
    ++rows;
    if (!answer.schedule) continue;
    CHECK(answer.bound == answer.schedule->cost);
    CHECK(static_cast<double>(answer.bound) >= *relaxed - 1e-6);
    CHECK(answer.schedule->peak <= budget);
    check_runs(all.at(row.at("graph")), *answer.schedule);
  }
  CHECK(rows == 73);
}

namespace {

/// n layers, the loss, n gradients; the gradient of a layer reads the layer's own value and the gradient before it.
LayerGraph linear_step(int n) {
  LayerGraph graph;
  graph.is_whole_step = true;
  for (int row = 0; row <= 2 * n; ++row) {
    LayerCost layer;
    layer.name = std::to_string(row);
    layer.output = Bytes{1};
    layer.forward_time = Nanos{1};
    if (row > n) layer.inputs.push_back(2 * n - row);
    if (row > 0) layer.inputs.push_back(row - 1);
    graph.layers.push_back(layer);
  }
  return graph;
}

/// Of n layers those whose values stay to their gradients: every k-th, and all behind the last of those.
std::vector<bool> every_kth(int n, int k) {
  std::vector<bool> kept(static_cast<std::size_t>(n), false);
  for (int layer = 0; layer < n; ++layer)
    kept[static_cast<std::size_t>(layer)] = (layer + 1) % k == 0 || layer / k == n / k;
  return kept;
}

/// Rows in the order they run: what is not kept runs again, segment by segment, before the segment's gradients.
std::vector<std::int32_t> in_segments(int n, const std::vector<bool>& kept) {
  std::vector<std::int32_t> runs;
  for (int row = 0; row <= n; ++row) runs.push_back(row);
  for (int last = n - 1; last >= 0;) {
    int first = last;
    while (first > 0 && !kept[static_cast<std::size_t>(first - 1)]) --first;
    for (int layer = first; layer <= last; ++layer)
      if (!kept[static_cast<std::size_t>(layer)]) runs.push_back(layer);
    for (; last >= first; --last) runs.push_back(2 * n - last);
  }
  return runs;
}

/// Each gradient after a run from the first layer to its own.
std::vector<std::int32_t> from_the_start(int n) {
  std::vector<std::int32_t> runs;
  for (int row = 0; row <= n; ++row) runs.push_back(row);
  for (int layer = n - 1; layer >= 0; --layer) {
    for (int again = 0; again <= layer; ++again) runs.push_back(again);
    runs.push_back(2 * n - layer);
  }
  return runs;
}

}  // namespace

TEST_CASE("checkmate: cost and peak of the published baselines") {
  std::size_t rows = 0;
  for (const Row& row : test::table(folder + "checkmate_baselines.csv")) {
    const std::string strategy = row.at("strategy"), name = strategy + " of " + row.at("n");
    CAPTURE(name);
    const int n = std::stoi(row.at("n"));
    int k = 1;  // keep every k-th; greedy within b bytes: the first that passes b
    if (strategy.starts_with("sqrt")) k = static_cast<int>(std::sqrt(n));
    if (strategy == "greedy_b2") k = 3;
    if (strategy == "greedy_bhalf") k = n / 2 + 1;
    const LayerGraph graph = linear_step(n);
    const Dag dag = make_dag(graph, false);
    const auto schedule = measure(dag, strategy == "last" ? from_the_start(n) : in_segments(n, every_kth(n, k)));
    REQUIRE(schedule);
    CHECK(std::to_string(schedule->cost) == row.at("total_cost"));
    if (strategy == "all" || strategy == "last")
      CHECK(std::to_string(schedule->peak) == row.at("peak"));
    else
      CHECK(schedule->peak <= std::stoll(row.at("peak")));
    check_runs(graph, *schedule);
    ++rows;
  }
  CHECK(rows == 30);
}

TEST_CASE("checkmate: the optimum of the published rows of POET without paging") {
  if (!has_linear_solver()) return;
  const auto all = graphs();
  std::size_t rows = 0;
  for (const Row& row : test::table(folder + "poet.csv")) {
    const std::string name = row.at("graph") + " in " + row.at("budget");
    CAPTURE(name);
    const Dag dag = make_dag(all.at(row.at("graph")), false);
    CHECK(cost_of(checkmate(dag, std::stoll(row.at("budget")), 60).schedule) == row.at("optimum"));
    ++rows;
  }
  CHECK(rows == 7);
}

TEST_CASE("search: the optimum over all orders of every row, and bounds that hold") {
  const auto all = graphs();
  std::size_t rows = 0;
  for (const Row& row : test::table(folder + "dag_optima.csv")) {
    const std::string name = row.at("graph") + " in " + row.at("budget");
    CAPTURE(name);
    const Dag dag = make_dag(all.at(row.at("graph")), false);
    const std::int64_t budget = std::stoll(row.at("budget"));
    const DagBound bound = bound_dag(dag, budget, 16);
    CHECK(bound.cost >= dag.total());
    const DagSearchAnswer answer = search_dag(dag, budget, {300, bound.cost, nullptr});
    CHECK(cost_of(answer.schedule) == row.at("any_order"));
    ++rows;
    if (!answer.schedule) continue;
    CHECK(bound.cost <= answer.schedule->cost);
    CHECK(answer.schedule->peak <= budget);
    check_runs(all.at(row.at("graph")), *answer.schedule);
  }
  CHECK(rows == 73);
}
