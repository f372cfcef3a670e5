// Do chains under `convention: rotor` take exactly the time and bytes of the published model?
#include <doctest/doctest.h>

#include "support/csv.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/program/outline.hpp"
#include "tidemark/step/lower.hpp"

using namespace tidemark;
using test::Row;
using test::table;

namespace {

const std::string folder = "tests/oracle/data/rotor/";

std::map<std::string, LayerGraph> published_chains() {
  std::map<std::string, LayerGraph> chains;
  for (const Row& row : table(folder + "chains.csv")) {
    const auto number = [&](const std::string& column) { return std::stoll(row.at(column)); };
    LayerGraph& graph = chains[row.at("chain")];
    graph.is_chain = true;
    const Bytes boundary{number("a")};
    if (graph.layers.empty())
      graph.input = boundary;
    else
      graph.layers.back().output = boundary;
    graph.loss_time = Nanos{number("u_b")};
    graph.loss_workspace = Bytes{number("o_b")};
    if (number("saved") == 0) continue;  // the loss
    LayerCost layer;
    layer.layer_activation = Bytes{number("saved")};
    layer.forward_time = Nanos{number("u_f")};
    layer.backward_time = Nanos{number("u_b")};
    layer.forward_workspace = Bytes{number("o_f")};
    layer.backward_workspace = Bytes{number("o_b")};
    graph.layers.push_back(layer);
  }
  return chains;
}

std::string peak_op(const Step& step, const Timeline& timeline) {
  return step.names[step.ops[timeline.events[timeline.peak_event].op()].name];
}

std::string tide(const Timeline& timeline) {
  std::string all;
  for (const OpSpan& op : timeline.ops)
    all += (all.empty() ? "" : " ") + to_string(op.peak) + "/" + to_string(op.after);
  return all;
}

/// Where segments begin: at layers that keep their input, and at the first of those that save everything.
std::string starts(const Plan& plan) {
  std::string all;
  bool saving = false;
  for (const PlanStep& step : plan.steps) {
    if (step.action != Action::forward) continue;
    if (step.keep == Keep::input || (step.keep == Keep::all && !saving))
      all += (all.empty() ? "" : " ") + std::to_string(step.layer);
    saving = step.keep == Keep::all;
  }
  return all;
}

Step by_sequence(const LayerGraph& graph, const std::string& sequence) {
  Policy policy;
  policy.kind = policy::Sequence{sequence};
  return lower(graph, make_plan(policy, outline(graph)), Convention::rotor, 1);
}

}  // namespace

TEST_CASE("rotor: time and exact peak of every published segmentation") {
  const auto chains = published_chains();
  std::size_t rows = 0;
  for (const Row& row : table(folder + "segments.csv")) {
    const std::string name =
        row.at("chain") + " " + row.at("rule") + " " + row.at("number") + " last " + row.at("checkpoint_last");
    CAPTURE(name);
    const LayerGraph& graph = chains.at(row.at("chain"));
    const int number = std::stoi(row.at("number"));
    Policy policy;
    if (row.at("rule") == "interval")
      policy.kind = policy::Interval{number, row.at("checkpoint_last") == "1"};
    else
      policy.kind = policy::Sequential{number};
    const Plan plan = make_plan(policy, outline(graph));
    CHECK(starts(plan) == row.at("starts"));
    const Step step = lower(graph, plan, Convention::rotor, 1);
    const Timeline timeline = simulate(step, Device{});
    CHECK(to_string(timeline.end) == row.at("time"));
    CHECK(to_string(timeline.peak) == row.at("peak"));
    Nanos recompute;
    for (const StepOp& op : step.ops)
      if (op.phase == Phase::recompute) recompute += op.time;
    CHECK(to_string(recompute) == row.at("recompute_time"));
    if (!row.at("peak_op").empty()) CHECK(peak_op(step, timeline) == row.at("peak_op"));
    ++rows;
  }
  CHECK(rows == 118);
}

TEST_CASE("rotor: bytes during and after every op of the published sequences") {
  const auto chains = published_chains();
  std::size_t ops = 0;
  for (const Row& row : table(folder + "sequences.csv")) {
    const std::string name = row.at("chain") + " within " + row.at("limit") + ": " + row.at("sequence");
    CAPTURE(name);
    const Step step = by_sequence(chains.at(row.at("chain")), row.at("sequence"));
    const Timeline timeline = simulate(step, Device{});
    CHECK(to_string(timeline.end) == row.at("time"));
    CHECK(to_string(timeline.peak) == row.at("peak"));
    if (row.at("tide").empty()) continue;
    CHECK(tide(timeline) == row.at("tide"));
    ops += step.ops.size();
  }
  CHECK(ops == 1285);
}

TEST_CASE("rotor: sequences with discards reach the optimum over all sequences within the limit") {
  const auto chains = published_chains();
  std::size_t discards = 0;
  for (const Row& row : table(folder + "exact.csv")) {
    const std::string name = row.at("chain") + " within " + row.at("limit") + ": " + row.at("sequence");
    CAPTURE(name);
    const Step step = by_sequence(chains.at(row.at("chain")), row.at("sequence"));
    const Timeline timeline = simulate(step, Device{});
    CHECK(to_string(timeline.end) == row.at("time"));
    CHECK(timeline.peak <= Bytes{std::stoll(row.at("limit"))});
    discards += row.at("sequence").find('D') != std::string::npos ? 1 : 0;
  }
  CHECK(discards == 66);
}
