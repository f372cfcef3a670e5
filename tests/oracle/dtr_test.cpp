// Does online eviction run as the simulator of DTR's authors ran it, eviction for eviction?
#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "support/csv.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/step/lower.hpp"
#include "tidemark/study/dtr.hpp"

using namespace tidemark;
using test::Row;
using test::split;

namespace {

const std::string folder = "tests/oracle/data/planners/";

struct Named {
  DtrLog log;
  std::vector<std::string> names;
  LayerGraph graph;  // the same as rows of a whole step
};

std::map<std::string, Named> logs() {
  std::map<std::string, Named> out;
  for (const Row& row : test::table(folder + "dtr_logs.csv")) {
    Named& named = out[row.at("log")];
    named.graph.is_whole_step = true;
    const auto number = [&](const std::string& name) {
      return static_cast<std::int32_t>(std::ranges::find(named.names, name) - named.names.begin());
    };
    if (row.at("what") == "release") {
      named.log.commands.push_back({DtrLog::What::release, number(row.at("value"))});
      continue;
    }
    const auto value = static_cast<std::int32_t>(named.names.size());
    LayerCost layer;
    layer.name = row.at("value");
    layer.output = Bytes{std::stoll(row.at("bytes"))};
    layer.forward_time = Nanos{std::stoll(row.at("cost"))};
    for (const std::string& read : split(row.at("reads"), ' '))
      if (!read.empty()) layer.inputs.push_back(number(read));
    named.names.push_back(row.at("value"));
    named.log.bytes.push_back(layer.output.count);
    named.log.cost.push_back(layer.forward_time.count);
    named.log.parents.push_back(layer.inputs);
    named.log.commands.push_back({row.at("what") == "constant" ? DtrLog::What::constant : DtrLog::What::call, value});
    named.graph.layers.push_back(layer);
  }
  return out;
}

}  // namespace

TEST_CASE("dtr: result, costs, peak and every eviction of each published run, and the same as a plan") {
  const auto all = logs();
  std::map<std::string, std::int64_t> model_cost;
  for (const auto& [name, named] : all)
    for (const std::int64_t cost : named.log.cost) model_cost[name] += cost;
  std::size_t rows = 0, ties = 0, plans = 0;
  for (const Row& row : test::table(folder + "dtr_runs.csv")) {
    const std::string name = row.at("log") + " " + row.at("heuristic") + " in " + row.at("budget");
    CAPTURE(name);
    const Named& named = all.at(row.at("log"));
    const auto heuristic = find_heuristic(row.at("heuristic"));
    REQUIRE(heuristic);
    const std::int64_t budget = std::stoll(row.at("budget"));
    const DtrRun run = run_dtr(named.log, budget, *heuristic, 10 * model_cost.at(row.at("log")));
    CHECK(std::to_string(run.model_cost) == row.at("model_cost"));
    if (row.at("tie") == "1") {  // the published choice then depends on the order of its pool
      if (run.end == DtrRun::End::ok) CHECK(run.peak <= budget);
      ++ties;
      continue;
    }
    std::string evictions;
    for (const DagMove& move : run.moves)
      if (move.is_drop) evictions += (evictions.empty() ? "" : " ") + named.names[static_cast<std::size_t>(move.row)];
    CHECK((run.end == DtrRun::End::ok ? "ok" : "oom") == row.at("result"));
    CHECK(std::to_string(run.again_cost) == row.at("again_cost"));
    CHECK(std::to_string(run.peak) == row.at("peak"));
    CHECK(evictions == row.at("evictions"));
    ++rows;
    if (run.end != DtrRun::End::ok) continue;
    const Dag dag = make_dag(named.graph, true);
    const Step step = lower(named.graph, to_plan(dtr_schedule(run, dag), dag), Convention::dtr, 1);
    const Timeline timeline = simulate(step, Device{});
    CHECK(timeline.peak == Bytes{run.peak});
    CHECK(timeline.end == Nanos{run.model_cost + run.again_cost});
    CHECK(!referee(step, timeline));
    ++plans;
  }
  CHECK(rows == 127);
  CHECK(ties == 17);
  CHECK(plans > 80);
}
