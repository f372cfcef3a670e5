#include <doctest/doctest.h>

#include <map>
#include <sstream>

#include "support/csv.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/program/outline.hpp"
#include "tidemark/step/lower.hpp"
#include "tidemark/study/chain_exact.hpp"
#include "tidemark/study/revolve.hpp"
#include "tidemark/study/rotor.hpp"

using namespace tidemark;
using test::Row;

namespace {

std::vector<std::int64_t> numbers(const std::string& text) {
  std::vector<std::int64_t> out;
  for (const std::string& word : test::split(text, ' ')) out.push_back(std::stoll(word));
  return out;
}

std::map<std::string, ChainCosts> chains() {
  std::map<std::string, ChainCosts> out;
  for (const Row& row : test::table("tests/oracle/data/planners/chains.csv"))
    out[row.at("chain")] = {numbers(row.at("u_f")),  numbers(row.at("u_b")), numbers(row.at("a")),
                            numbers(row.at("abar")), numbers(row.at("o_f")), numbers(row.at("o_b"))};
  return out;
}

/// The chain as a layer graph under rotor's convention.
LayerGraph layers(const ChainCosts& costs) {
  LayerGraph graph;
  graph.is_chain = true;
  graph.input = Bytes{costs.boundary[0]};
  for (std::size_t i = 0; i < costs.stages(); ++i) {
    LayerCost layer;
    layer.name = std::to_string(i);
    if (i > 0) layer.inputs = {static_cast<std::int32_t>(i) - 1};
    layer.layer_activation = Bytes{costs.saved[i + 1]};
    layer.output = Bytes{costs.boundary[i + 1]};
    layer.gradient = Bytes{costs.boundary[i]};
    layer.forward_workspace = Bytes{costs.forward_workspace[i]};
    layer.backward_workspace = Bytes{costs.backward_workspace[i]};
    layer.forward_time = Nanos{costs.forward_time[i]};
    layer.backward_time = Nanos{costs.backward_time[i]};
    graph.layers.push_back(layer);
  }
  graph.output_gradient = Bytes{costs.boundary.back()};
  graph.loss_time = Nanos{costs.backward_time.back()};
  graph.loss_workspace = Bytes{costs.backward_workspace.back()};
  return graph;
}

struct Simulated {
  Bytes peak;
  Nanos time;
};
Simulated simulated(const ChainCosts& costs, const std::string& sequence) {
  const LayerGraph graph = layers(costs);
  Policy policy;
  policy.kind = policy::Sequence{sequence};
  const Plan plan = make_plan(policy, outline(graph));
  const Timeline timeline = simulate(lower(graph, plan, Convention::rotor, 1), Device{});
  return {timeline.peak, timeline.end};
}

std::string time_of(const std::optional<ChainSchedule>& schedule) {
  return schedule ? std::to_string(schedule->time) : "";
}

}  // namespace

TEST_CASE("rotor and the exact optimum: every published time, and plans that keep what they promise") {
  const std::map<std::string, ChainCosts> all = chains();
  int better = 0;
  for (const Row& row : test::table("tests/oracle/data/planners/rotor_times.csv")) {
    const std::string name = row.at("chain") + " " + row.at("limit");
    CAPTURE(name);
    const ChainCosts& costs = all.at(row.at("chain"));
    const std::int64_t limit = std::stoll(row.at("limit"));
    const auto published = rotor(costs, limit);
    const auto tight = rotor(costs, limit, RotorVariant::tight);
    const ChainExact searched = chain_exact(costs, limit);
    CHECK(searched.is_proven);
    const auto& exact = searched.schedule;
    CHECK(time_of(published) == row.at("rotor_time"));
    CHECK(time_of(exact) == row.at("exact_time"));
    if (published) REQUIRE(tight);
    if (tight) REQUIRE(exact);
    if (published) CHECK(tight->time <= published->time);
    if (tight) CHECK(exact->time <= tight->time);
    if (tight && (!published || tight->time < published->time)) ++better;
    for (const auto& schedule : {tight, exact}) {
      if (!schedule) continue;
      const Simulated run = simulated(costs, schedule->sequence);
      CHECK(run.peak <= Bytes{limit});
      CHECK(run.time == Nanos{schedule->time});
    }
  }
  CHECK(better > 0);
}

TEST_CASE("rotor in slots stays within the bytes") {
  for (const auto& [name, costs] : chains()) {
    CAPTURE(name);
    ChainCosts bytes = costs;
    for (auto* list : {&bytes.boundary, &bytes.saved, &bytes.forward_workspace, &bytes.backward_workspace})
      for (std::int64_t& size : *list) size *= 1'000'003;
    const std::int64_t limit = 60 * std::int64_t{1'000'003};
    const SlottedChain slotted = in_slots(bytes, limit, 100);
    CHECK(slotted.limit <= 100);
    if (const auto schedule = rotor(slotted.costs, slotted.limit, RotorVariant::tight))
      CHECK(simulated(bytes, schedule->sequence).peak <= Bytes{limit});
  }
}

TEST_CASE("revolve: forward steps of every row, and sequences that take them") {
  for (const Row& row : test::table("tests/oracle/data/planners/revolve.csv")) {
    const std::int64_t n = std::stoll(row.at("n")), s = std::stoll(row.at("s"));
    CAPTURE(n);
    CAPTURE(s);
    CHECK(std::to_string(revolve_forward_steps(n, s)) == row.at("forward_steps"));
    std::istringstream ops(revolve_sequence(n, s));
    std::int64_t forwards = 0;
    for (std::string op; ops >> op;)
      if (op[0] == 'F') ++forwards;
    CHECK(std::to_string(forwards) == row.at("forward_steps"));
    if (n <= 12) {  // and it is a schedule: it runs, in slots of one byte with save-all objects of none
      ChainCosts unit{std::vector<std::int64_t>(static_cast<std::size_t>(n), 1),
                      std::vector<std::int64_t>(static_cast<std::size_t>(n) + 1, 0),
                      std::vector<std::int64_t>(static_cast<std::size_t>(n) + 1, 1),
                      std::vector<std::int64_t>(static_cast<std::size_t>(n) + 1, 0),
                      std::vector<std::int64_t>(static_cast<std::size_t>(n), 0),
                      std::vector<std::int64_t>(static_cast<std::size_t>(n) + 1, 0)};
      CHECK(simulated(unit, revolve_sequence(n, s)).time == Nanos{std::stoll(row.at("forward_steps"))});
    }
  }
}

TEST_CASE("mixed and two-level checkpointing: every row") {
  for (const Row& row : test::table("tests/oracle/data/planners/mixed.csv"))
    CHECK(std::to_string(mixed_forward_steps(std::stoll(row.at("n")), std::stoll(row.at("s")))) ==
          row.at("forward_steps"));
  for (const Row& row : test::table("tests/oracle/data/planners/two_level.csv")) {
    const std::string name = row.at("n") + " steps, " + row.at("ram_slots") + " in RAM, " + row.at("disk_slots") +
                             " on disk, " + row.at("uf") + " " + row.at("ub") + " " + row.at("wd") + " " + row.at("rd");
    CAPTURE(name);
    const TwoLevelCosts costs{std::stod(row.at("uf")), std::stod(row.at("ub")), std::stod(row.at("wd")),
                              std::stod(row.at("rd"))};
    CHECK(two_level_makespan(std::stoll(row.at("n")), std::stoll(row.at("ram_slots")), std::stoll(row.at("disk_slots")),
                             costs) == std::stod(row.at("makespan")));
  }
}
