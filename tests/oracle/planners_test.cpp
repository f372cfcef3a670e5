#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <sstream>
#include <tuple>
#include <utility>

#include "support/csv.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/plan/validity.hpp"
#include "tidemark/program/outline.hpp"
#include "tidemark/step/lower.hpp"
#include "tidemark/study/chain_exact.hpp"
#include "tidemark/study/revolve.hpp"
#include "tidemark/study/rotor.hpp"
#include "tidemark/study/two_level.hpp"

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
Simulated simulated(const ChainCosts& costs, const std::string& sequence, const Device& device = {}) {
  const LayerGraph graph = layers(costs);
  Policy policy;
  policy.kind = policy::Sequence{sequence};
  const Plan plan = make_plan(policy, outline(graph));
  check_plan(plan, outline(graph));
  const Step step = lower(graph, plan, Convention::rotor, 1);
  const Timeline timeline = simulate(step, device);
  CHECK(!referee(step, timeline));
  return {timeline.peak, timeline.end};
}

std::string time_of(const std::optional<ChainSchedule>& schedule) {
  return schedule ? std::to_string(schedule->time) : "";
}

}  // namespace

TEST_CASE("rotor and the exact optimum: every published time, and plans that keep what they promise") {
  const std::map<std::string, ChainCosts> all = chains();
  int better = 0, rows = 0;
  for (const Row& row : test::table("tests/oracle/data/planners/rotor_times.csv")) {
    ++rows;
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
  CHECK(rows == 194);
}

namespace {

/// Beaumont et al. 2019, as it stands there: stage i to stage l, the loss last, in m bytes beside the input of stage i.
struct Recurrence {
  static constexpr std::int64_t never = 1'000'000'000;
  const ChainCosts& c;
  std::map<std::tuple<std::size_t, std::size_t, std::int64_t>, std::int64_t> known;

  std::int64_t a(std::size_t i) const { return i < c.boundary.size() ? c.boundary[i] : 0; }
  std::int64_t saved(std::size_t i) const { return i < c.saved.size() ? c.saved[i] : 0; }
  std::int64_t u_f(std::size_t i) const { return i < c.stages() ? c.forward_time[i] : 0; }
  std::int64_t o_f(std::size_t i) const { return i < c.stages() ? c.forward_workspace[i] : 0; }

  std::int64_t least(std::size_t i, std::size_t l, std::int64_t m) {
    if (m < 0) return never;
    const auto [found, fresh] = known.try_emplace({i, l, m}, never);
    if (!fresh) return found->second;
    std::int64_t best = never;
    if (i == l) {
      const std::int64_t need =
          std::max(a(i + 1) + saved(i + 1) + o_f(i), a(i) + a(i + 1) + saved(i + 1) + c.backward_workspace[i]);
      if (m >= need) best = u_f(i) + c.backward_time[i];
    } else {
      std::int64_t need = a(l + 1) + a(i + 1) + o_f(i), forward = 0;
      for (std::size_t j = i + 1; j < l; ++j) need = std::max(need, a(l + 1) + a(j) + a(j + 1) + o_f(j));
      for (std::size_t j = i + 1; m >= need && j <= l; ++j) {
        forward += u_f(j - 1);
        best = std::min(best, forward + least(j, l, m - a(j)) + least(i, j - 1, m));
      }
      if (m >= need) best = std::min(best, least(i, i, m) + least(i + 1, l, m - saved(i + 1)));
    }
    return known[{i, l, m}] = std::min(best, never);
  }
};

}  // namespace

TEST_CASE("chains of any sizes: schedules fit and take the time they promise, the exact one the least") {
  std::mt19937_64 random(20260729);
  const auto up_to = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most + 1));
  };
  int schedules = 0, hasty = 0;
  for (int n = 0; n < 150; ++n) {
    ChainCosts costs;
    const std::int64_t stages = 2 + up_to(3);
    for (std::int64_t i = 0; i <= stages; ++i) {
      costs.boundary.push_back(1 + up_to(9));
      costs.saved.push_back(i == 0 ? 0 : costs.boundary.back() + up_to(9));
      costs.backward_time.push_back(1 + up_to(9));
      costs.backward_workspace.push_back(up_to(30));
      if (i == stages) break;
      costs.forward_time.push_back(1 + up_to(9));
      costs.forward_workspace.push_back(up_to(30));
    }
    Recurrence recurrence{costs, {}};
    for (std::int64_t limit = 20; limit <= 110; limit += 10) {
      CAPTURE(n);
      CAPTURE(limit);
      const auto published = rotor(costs, limit), tight = rotor(costs, limit, RotorVariant::tight);
      const ChainExact exact = chain_exact(costs, limit);
      CHECK(exact.is_proven);
      if (published) REQUIRE(tight);
      if (tight) REQUIRE(exact.schedule);
      if (published) CHECK(tight->time <= published->time);
      const std::int64_t time = recurrence.least(0, costs.stages(), limit - costs.boundary[0]);
      CHECK(time_of(published) == (time < Recurrence::never ? std::to_string(time) : ""));
      if (tight) CHECK(exact.schedule->time <= tight->time);
      const ChainExact cut_short = chain_exact(costs, limit, 30);
      if (exact.schedule && !cut_short.is_proven) {
        CHECK(cut_short.bound <= exact.schedule->time);
        ++hasty;
      }
      for (const auto& schedule : {tight, exact.schedule}) {
        if (!schedule) continue;
        const Simulated run = simulated(costs, schedule->sequence);
        CHECK(run.peak <= Bytes{limit});
        CHECK(run.time == Nanos{schedule->time});
        ++schedules;
      }
    }
  }
  CHECK(schedules > 500);
  CHECK(hasty > 100);
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

namespace {

/// A chain of steps alike, of states of `state` bytes and adjoint data of none.
ChainCosts uniform_chain(std::int64_t n, std::int64_t forward, std::int64_t backward, std::int64_t state) {
  const auto steps = static_cast<std::size_t>(n);
  ChainCosts out;
  out.forward_time.assign(steps, forward);
  out.backward_time.assign(steps, backward);
  out.backward_time.push_back(0);
  out.boundary.assign(steps + 1, state);
  out.saved.assign(steps + 1, state);
  out.saved[0] = 0;
  out.forward_workspace.assign(steps, 0);
  out.backward_workspace.assign(steps + 1, 0);
  return out;
}

struct Op {
  std::string kind;
  std::size_t step = 0;
};
std::vector<Op> ops_of(const std::string& sequence) {
  std::vector<Op> out;
  std::istringstream in(sequence);
  for (std::string word; in >> word;) {
    const std::size_t digits = word.find_first_of("0123456789");
    out.push_back({word.substr(0, digits), digits == std::string::npos ? 0 : std::stoul(word.substr(digits))});
  }
  return out;
}

/// Units in use while a step is reversed, at most: restarts that wait, and adjoint data but that of the step itself.
std::int64_t units_used(const std::string& sequence, std::int64_t n) {
  std::vector<bool> restart(static_cast<std::size_t>(n)), adjoint(static_cast<std::size_t>(n));
  std::int64_t most = 0;
  for (const Op& op : ops_of(sequence)) {
    if (op.kind == "Fc") restart[op.step] = true;
    if (op.kind == "Fe") {
      adjoint[op.step] = true;
      restart[op.step] = false;
    }
    if (op.kind != "B") continue;
    most = std::max<std::int64_t>(most, std::ranges::count(restart, true) + std::ranges::count(adjoint, true) - 1);
    adjoint[op.step] = false;
  }
  return most;
}

/// States that wait in memory and on the outer level, at most. In memory: kept by Fc until the step runs on from it.
std::pair<std::int64_t, std::int64_t> slots_used(const std::string& sequence, std::int64_t n) {
  std::vector<bool> memory(static_cast<std::size_t>(n)), outer(static_cast<std::size_t>(n));
  std::int64_t most_memory = 0, most_outer = 0;
  for (const Op& op : ops_of(sequence)) {
    if (op.kind[0] == 'F') memory[op.step] = op.kind == "Fc";
    if (op.kind == "Outx") outer[op.step] = true;
    if (op.kind == "B") memory[op.step] = outer[op.step] = false;
    most_memory = std::max<std::int64_t>(most_memory, std::ranges::count(memory, true));
    most_outer = std::max<std::int64_t>(most_outer, std::ranges::count(outer, true));
  }
  return {most_memory, most_outer};
}

}  // namespace

TEST_CASE("revolve: forward steps of every row, and sequences that take them") {
  std::size_t rows = 0;
  for (const Row& row : test::table("tests/oracle/data/planners/revolve.csv")) {
    ++rows;
    const std::int64_t n = std::stoll(row.at("n")), s = std::stoll(row.at("s"));
    CAPTURE(n);
    CAPTURE(s);
    CHECK(std::to_string(revolve_forward_steps(n, s)) == row.at("forward_steps"));
    std::istringstream ops(revolve_sequence(n, s));
    std::int64_t forwards = 0;
    for (std::string op; ops >> op;)
      if (op[0] == 'F') ++forwards;
    CHECK(std::to_string(forwards) == row.at("forward_steps"));
    const std::string sequence = revolve_sequence(n, s);
    CHECK(to_string(simulated(uniform_chain(n, 1, 0, 1), sequence).time) == row.at("forward_steps"));
    CHECK(slots_used(sequence, n).first <= s);
  }
  CHECK(rows == 193);
}

TEST_CASE("mixed: forward steps of every row, in schedules that run within their units") {
  const Mixed mixed(100, 50);
  std::size_t rows = 0;
  for (const Row& row : test::table("tests/oracle/data/planners/mixed.csv")) {
    const std::int64_t n = std::stoll(row.at("n")), units = std::stoll(row.at("s"));
    const std::string name = std::to_string(n) + " steps in " + std::to_string(units) + " units";
    CAPTURE(name);
    CHECK(std::to_string(mixed.forward_steps(n, units)) == row.at("forward_steps"));
    const std::string sequence = mixed.sequence(n, units);
    const Simulated run = simulated(uniform_chain(n, 1, 0, 1), sequence);
    CHECK(to_string(run.time) == row.at("forward_steps"));
    CHECK(units_used(sequence, n) <= units);
    ++rows;
  }
  CHECK(rows == 93);
}

TEST_CASE("two levels: the least makespan of every row, in schedules that run in that time within their slots") {
  std::size_t rows = 0, copies = 0;
  for (const Row& row : test::table("tests/oracle/data/planners/two_level.csv")) {
    const std::string name = row.at("n") + " steps, " + row.at("ram_slots") + " in RAM, " + row.at("disk_slots") +
                             " on disk, " + row.at("uf") + " " + row.at("ub") + " " + row.at("wd") + " " + row.at("rd");
    CAPTURE(name);
    // Halves occur: in half units.
    const auto twice = [&](const std::string& column) { return std::llround(2 * std::stod(row.at(column))); };
    const std::int64_t n = std::stoll(row.at("n")), memory = std::stoll(row.at("ram_slots")),
                       outer = std::stoll(row.at("disk_slots"));
    const TwoLevelSchedule found = two_level(n, memory, outer, {twice("uf"), twice("ub"), twice("wd"), twice("rd")});
    CHECK(found.makespan == twice("makespan"));
    // A state of 1000 bytes takes the link as many nanoseconds as the row says.
    Device device;
    device.copy_to_host = 1e12 / static_cast<double>(twice("wd"));
    device.copy_to_device = 1e12 / static_cast<double>(twice("rd"));
    const Simulated run = simulated(uniform_chain(n, twice("uf"), twice("ub"), 1000), found.sequence, device);
    CHECK(run.time == Nanos{twice("makespan")});
    const auto [in_memory, on_outer] = slots_used(found.sequence, n);
    CHECK(in_memory <= memory);
    CHECK(on_outer <= outer);
    ++rows;
    copies += found.sequence.find("Inx") != std::string::npos ? 1 : 0;
  }
  CHECK(rows == 384);
  CHECK(copies > 50);
}

TEST_CASE("action lists of a published package run, with its forward steps, copies and slots") {
  std::size_t rows = 0;
  for (const Row& row : test::table("tests/oracle/data/planners/action_lists.csv")) {
    const std::string name = row.at("schedule") + " of " + row.at("n"), sequence = row.at("sequence");
    CAPTURE(name);
    const std::int64_t n = std::stoll(row.at("n"));
    CHECK(to_string(simulated(uniform_chain(n, 1, 0, 1), sequence).time) == row.at("forward_steps"));
    const std::vector<Op> ops = ops_of(sequence);
    CHECK(std::to_string(std::ranges::count(ops, "Outx", &Op::kind)) == row.at("disk_writes"));
    CHECK(std::to_string(std::ranges::count(ops, "Inx", &Op::kind)) == row.at("disk_reads"));
    const auto [in_memory, on_outer] = slots_used(sequence, n);
    const std::int64_t slots = row.at("schedule") == "Mixed" ? units_used(sequence, n) : in_memory;
    CHECK(std::to_string(slots) == row.at("ram_slots"));
    CHECK(std::to_string(on_outer) == row.at("disk_slots"));
    ++rows;
  }
  CHECK(rows == 20);
}

TEST_CASE("planners: the shortest path of long chains ends with the optimum or with a bound below any schedule") {
  ChainCosts costs;
  for (int i = 0; i <= 60; ++i) {
    costs.boundary.push_back(1);
    costs.saved.push_back(i == 0 ? 0 : 3);
    costs.backward_time.push_back(i < 60 ? 2 : 0);
    costs.backward_workspace.push_back(0);
    if (i == 60) break;
    costs.forward_time.push_back(1);
    costs.forward_workspace.push_back(0);
  }
  const ChainExact roomy = chain_exact(costs, 61 + 3 * 60, 100'000);
  REQUIRE(roomy.schedule);
  CHECK(roomy.schedule->time == 60 * 3);
  CHECK(simulated(costs, roomy.schedule->sequence).time == Nanos{60 * 3});
  for (const std::int64_t limit : {40, 60, 100}) {
    CAPTURE(limit);
    const auto tight = rotor(costs, limit, RotorVariant::tight);
    REQUIRE(tight);
    const ChainExact hasty = chain_exact(costs, limit, 20'000);
    CHECK(!hasty.is_proven);
    CHECK(hasty.bound > 60 * 3);
    CHECK(hasty.bound <= tight->time);
  }
}
