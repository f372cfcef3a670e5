// Do the planners of whole-step graphs reach the published optima, in plans that run?
#include <doctest/doctest.h>

#include <map>

#include "support/csv.hpp"
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
using test::split;

namespace {

const std::string folder = "tests/oracle/data/planners/";

std::map<std::string, LayerGraph> graphs() {
  std::map<std::string, LayerGraph> out;
  for (const Row& row : test::table(folder + "dags.csv")) {
    LayerGraph& graph = out[row.at("graph")];
    graph.is_whole_step = true;
    const auto costs = split(row.at("cost"), ' '), bytes = split(row.at("bytes"), ' ');
    const auto reads = split(row.at("reads"), ';');
    for (std::size_t i = 0; i < costs.size(); ++i) {
      LayerCost layer;
      layer.name = std::to_string(i);
      layer.forward_time = Nanos{std::stoll(costs[i])};
      layer.output = Bytes{std::stoll(bytes[i])};
      if (i < reads.size())
        for (const std::string& read : split(reads[i], ' '))
          if (!read.empty()) layer.inputs.push_back(std::stoi(read));
      graph.layers.push_back(layer);
    }
  }
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

TEST_CASE("checkmate: the optimum of the published rows of POET without paging") {
  if (!has_linear_solver()) return;
  const auto all = graphs();
  for (const Row& row : test::table(folder + "poet.csv")) {
    const std::string name = row.at("graph") + " in " + row.at("budget");
    CAPTURE(name);
    const Dag dag = make_dag(all.at(row.at("graph")), false);
    CHECK(cost_of(checkmate(dag, std::stoll(row.at("budget")), 60).schedule) == row.at("optimum"));
  }
}

TEST_CASE("search: the optimum over all orders of every row, and bounds that hold") {
  const auto all = graphs();
  for (const Row& row : test::table(folder + "dag_optima.csv")) {
    const std::string name = row.at("graph") + " in " + row.at("budget");
    CAPTURE(name);
    const Dag dag = make_dag(all.at(row.at("graph")), false);
    const std::int64_t budget = std::stoll(row.at("budget"));
    const DagBound bound = bound_dag(dag, budget, 16);
    CHECK(bound.cost >= dag.total());
    const DagSearchAnswer answer = search_dag(dag, budget, {300, bound.cost, nullptr});
    CHECK(cost_of(answer.schedule) == row.at("any_order"));
    if (!answer.schedule) continue;
    CHECK(bound.cost <= answer.schedule->cost);
    CHECK(answer.schedule->peak <= budget);
    check_runs(all.at(row.at("graph")), *answer.schedule);
  }
}
