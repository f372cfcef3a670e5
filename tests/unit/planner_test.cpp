#include <doctest/doctest.h>

#include <algorithm>

#include "tidemark/base/errors.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/input/plan_file.hpp"
#include "tidemark/study/dag.hpp"
#include "tidemark/study/frontier.hpp"
#include "tidemark/study/kept_bound.hpp"
#include "tidemark/study/pipeline.hpp"
#include "tidemark/study/plan_methods.hpp"
#include "tidemark/study/planner.hpp"

using namespace tidemark;

namespace {

Scenario chain(int layers) {
  LayerGraph graph;
  graph.is_chain = true;
  graph.input = Bytes{10};
  for (int i = 0; i < layers; ++i) {
    LayerCost layer;
    layer.name = std::to_string(i);
    if (i > 0) layer.inputs = {i - 1};
    layer.layer_activation = Bytes{30 + 7 * (i % 3)};
    layer.output = Bytes{10};
    layer.gradient = Bytes{10};
    layer.forward_flops = Flops{100 + 20 * (i % 2)};
    layer.backward_flops = Flops{200 + 40 * (i % 2)};
    layer.forward_time = Nanos{100 + 20 * (i % 2)};
    layer.backward_time = Nanos{200 + 40 * (i % 2)};
    graph.layers.push_back(layer);
  }
  graph.output_gradient = Bytes{10};
  Scenario scenario;
  scenario.family = "chain";
  scenario.model = graph;
  scenario.convention = Convention::rotor;
  return scenario;
}

/// 1 B/ns to the host, 0.5 B/ns back.
Scenario linked(Scenario scenario) {
  scenario.device.copy_to_host = 1e9;
  scenario.device.copy_to_device = 5e8;
  return scenario;
}

Scenario gpt() {
  TransformerSpec spec;
  spec.model_type = "gpt2";
  spec.layers = 4;
  spec.hidden = 64;
  spec.heads = spec.kv_heads = 4;
  spec.head_dim = 16;
  spec.ffn_hidden = 256;
  spec.vocab = 100;
  spec.max_positions = 128;
  spec.activation = "gelu";
  Scenario scenario;
  scenario.family = "transformer";
  scenario.model = spec;
  scenario.training.profile = *find_profile("pytorch-cuda");
  scenario.training.batch = {.size = 2, .sequence = 128};
  return scenario;
}

}  // namespace

TEST_CASE("planners: what they return fits, runs, and costs what they say") {
  struct Case {
    std::string name;
    Scenario scenario;
    std::string method;
    std::int64_t percent;  // budget, of the peak without recomputation
  };
  const Case cases[] = {
      {"uniform on a chain", chain(8), "uniform", 70},
      {"block on a chain", chain(8), "block", 80},
      {"chen on a chain", chain(8), "chen", 70},
      {"revolve", chain(8), "revolve", 60},
      {"mixed", chain(8), "mixed", 60},
      {"two levels", chain(8), "two_level", 45},
      {"two levels and a link", linked(chain(8)), "two_level", 45},
      {"rotor", chain(8), "rotor", 55},
      {"rotor_tight", chain(8), "rotor_tight", 55},
      {"chain_exact", chain(8), "chain_exact", 45},
      {"auto on a chain", chain(8), "auto", 50},
      {"auto on a long chain", chain(20), "auto", 40},
      {"uniform on a transformer", gpt(), "uniform", 90},
      {"search on a transformer", gpt(), "search", 80},
      {"auto on a transformer", gpt(), "auto", 70},
      {"a budget that needs nothing", gpt(), "auto", 100},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Bytes without = run(c.scenario).timeline.peak;
    const Bytes budget{without.count * c.percent / 100};
    const PlanAnswer answer = find_plan(c.scenario, budget, {.method = c.method});
    CHECK(answer.without.peak == without);
    REQUIRE(answer.best);
    CHECK(answer.best->cost.peak <= budget);
    CHECK((answer.best->cost.recompute == Flops{} || c.percent < 100));
    // Written, read and run again: the same peak and time, and the referee agrees.
    Scenario again = c.scenario;
    again.policy.kind =
        policy::Given{parse_plan(write_plan(answer.best->plan, answer.outline), "plan.yaml", answer.outline)};
    const Run result = run(again);
    CHECK(result.timeline.peak == answer.best->cost.peak);
    CHECK(result.timeline.end == answer.best->cost.time);
    CHECK(!referee(result.step, result.timeline));
    CHECK(answer.best->cost.recompute.count >= answer.bound.recompute.count);
  }
}

namespace {

/// Layers of equal size whose recomputation all comes at the start of backward.
Scenario trap() {
  Scenario scenario = chain(8);
  auto& graph = std::get<LayerGraph>(scenario.model);
  for (LayerCost& layer : graph.layers) layer.layer_activation = Bytes{100};
  scenario.policy.schedule = RecomputeSchedule::up_front;
  return scenario;
}

/// A chain of which every third layer reads past the one before it too.
Scenario branches() {
  Scenario scenario = chain(7);
  scenario.family = "graph";
  scenario.convention = Convention::framework;
  auto& graph = std::get<LayerGraph>(scenario.model);
  graph.is_chain = false;
  for (std::size_t i = 3; i < graph.layers.size(); i += 3)
    graph.layers[i].inputs = {static_cast<std::int32_t>(i) - 2, static_cast<std::int32_t>(i) - 1};
  return scenario;
}

Scenario mlp() {
  return parse_scenario("model: {family: mlp, layers: 5, rows: 8, width: 4, hidden: 16}\noptimizer: {kind: adamw}\n",
                        "t.yaml");
}

/// Ops by hand: two blocks with a sum past them.
Scenario residual() { return read_scenario("scenarios/program-mlp.yaml"); }

Scenario of_steps(Scenario scenario, int steps) {
  scenario.training.loop.steps = steps;
  return scenario;
}
Scenario as_log(Scenario scenario) {
  scenario.convention = Convention::dtr;
  return scenario;
}

Scenario whole_step() {
  LayerGraph graph;
  graph.is_whole_step = true;
  // Four rows forward, the loss, four gradients that read what forward made.
  const std::vector<std::vector<std::int32_t>> reads = {{}, {0}, {1}, {2}, {3}, {3, 4}, {2, 5}, {1, 6}, {0, 7}};
  for (std::size_t i = 0; i < reads.size(); ++i) {
    LayerCost row;
    row.name = std::to_string(i);
    row.inputs = reads[i];
    row.output = Bytes{static_cast<std::int64_t>(10 + i % 3)};
    row.forward_time = Nanos{static_cast<std::int64_t>(100 + 10 * i)};
    graph.layers.push_back(row);
  }
  Scenario scenario;
  scenario.family = "graph";
  scenario.model = graph;
  scenario.convention = Convention::checkmate;
  return scenario;
}

}  // namespace

TEST_CASE("planners: every method, every budget: the referee, the peak, the time and the bound") {
  struct Model {
    std::string name;
    Scenario scenario;
  };
  const Model models[] = {{"chain", chain(6)},          {"chain with a link", linked(chain(6))},
                          {"up front", trap()},         {"chain of 2 steps", of_steps(chain(5), 2)},
                          {"branches", branches()},     {"mlp", mlp()},
                          {"residual", residual()},     {"whole step", whole_step()},
                          {"log", as_log(whole_step())}};
  int planned = 0;
  for (const Model& model : models)
    for (const std::string& method : plan_methods())
      for (const int percent : {55, 85}) {
        const std::string name = method + " on " + model.name + " at " + std::to_string(percent) + " %";
        CAPTURE(name);
        const Bytes without = run(model.scenario).timeline.peak;
        const Bytes budget{without.count * percent / 100};
        std::optional<PlanAnswer> answer;
        try {
          answer = find_plan(model.scenario, budget, {.method = method, .seconds = 5});
        } catch (const InputError&) {
          continue;  // the method does not take the model, or this build has no solver
        }
        if (!answer->best) {
          const bool elsewhere =
              std::ranges::find(answer->notes, "other methods have plans that fit: try auto") != answer->notes.end();
          CHECK((answer->nearest.peak > budget) != elsewhere);
          CHECK(!answer->nearest.alive.empty());
          continue;
        }
        ++planned;
        Scenario again = model.scenario;
        again.policy = {};
        again.policy.kind =
            policy::Given{parse_plan(write_plan(answer->best->plan, answer->outline), "plan.yaml", answer->outline)};
        const Run result = run(again);
        CHECK(result.timeline.peak == answer->best->cost.peak);
        CHECK(result.timeline.peak <= budget);
        CHECK(result.timeline.end == answer->best->cost.time);
        CHECK(!referee(result.step, result.timeline));
        CHECK(answer->bound.time <= answer->best->cost.time);
        CHECK(answer->bound.recompute <= answer->best->cost.recompute);
        CHECK(answer->bound.recomputes <= answer->best->cost.recomputes);
        CHECK(!answer->bound.proof.empty());
      }
  CHECK(planned > 60);
}

TEST_CASE("planners: under a framework's checkpointing every method's plans run as predicted") {
  const auto llama = [](const std::string& profile, const std::string& checkpointing) {
    return parse_scenario("profile: " + profile +
                              "\nmodel: {family: transformer, model_type: llama, layers: 2, hidden: 64, heads: 4, "
                              "kv_heads: 2, ffn_hidden: 128, vocab: 100, attention: sdpa}\n"
                              "batch: {size: 1, sequence: 256}\ndevice: h100-80gb\n"
                              "policy: {kind: none, checkpointing: {kind: " +
                              checkpointing + "}}\n",
                          "t.yaml");
  };
  int planned = 0;
  for (const std::string profile : {"torchtitan", "pytorch-cuda", "pytorch-2.6-cpu"})
    for (const std::string checkpointing : {"nonreentrant", "nonreentrant, early_stop: false", "reentrant"})
      for (const std::string method : {"auto", "uniform", "block", "chen", "knapsack", "search"})
        for (const int percent : {0, 60}) {
          const std::string name = method + ", " + profile + ", " + checkpointing + ", " + std::to_string(percent);
          CAPTURE(name);
          const Scenario scenario = llama(profile, checkpointing);
          Scenario full = scenario;
          full.policy.kind = policy::Full{};
          const Bytes most = run(scenario).timeline.peak, least = run(full).timeline.peak;
          REQUIRE(least < most);
          const Bytes budget{least.count + (most - least).count * percent / 100};
          const PlanAnswer answer = find_plan(scenario, budget, {.method = method});
          if (!answer.best) continue;
          ++planned;
          CHECK(answer.best->plan.checkpointing == scenario.policy.checkpointing);
          Scenario again = scenario;
          again.policy = {};
          again.policy.kind =
              policy::Given{parse_plan(write_plan(answer.best->plan, answer.outline), "plan.yaml", answer.outline)};
          const Run result = run(again);
          CHECK(result.timeline.peak == answer.best->cost.peak);
          CHECK(result.timeline.peak <= budget);
          CHECK(result.timeline.end == answer.best->cost.time);
          CHECK(!referee(result.step, result.timeline));
        }
  CHECK(planned > 60);
}

/// Each is a region of its own: none takes what another one makes again.
TEST_CASE("checkpointed functions of one block run as a policy, and as its plan") {
  for (const std::string checkpointing : {"nonreentrant", "reentrant"}) {
    CAPTURE(checkpointing);
    Scenario scenario = parse_scenario(
        "profile: torchtitan\nmodel: {family: transformer, model_type: llama, layers: 2, hidden: 64, heads: 4, "
        "kv_heads: 2, ffn_hidden: 128, vocab: 100, attention: sdpa}\nbatch: {size: 1, sequence: 64}\n"
        "policy: {kind: selective, recompute: [core_attn, mlp], checkpointing: {kind: " +
            checkpointing + "}}\n",
        "t.yaml");
    const auto flops_again = [&](const std::vector<std::string>& modules) {
      std::get<policy::Selective>(scenario.policy.kind).recompute = modules;
      const Run result = run(scenario);
      CHECK(!referee(result.step, result.timeline));
      std::int64_t flops = 0;
      for (const StepOp& op : result.step.ops) flops += op.phase == Phase::recompute ? op.flops : 0;
      return flops;
    };
    CHECK(flops_again({"core_attn", "mlp"}) == flops_again({"core_attn"}) + flops_again({"mlp"}));
  }
}

TEST_CASE("planners: where nothing fits, every method of chains names the same least budget and what binds there") {
  for (const std::string& method : plan_methods()) {
    CAPTURE(method);
    PlanAnswer answer;
    try {
      answer = find_plan(chain(4), Bytes{30}, {.method = method});
    } catch (const InputError&) {
      continue;  // the method does not take chains
    }
    CHECK(!answer.best);
    // What only copies to the host can do is two_level's own.
    CHECK(answer.nearest.peak.count == (method == "two_level" ? 74 : 84));
    CHECK(!answer.nearest.op.empty());
    std::int64_t alive = 0;
    for (const auto& [name, bytes] : answer.nearest.alive) alive += bytes.count;
    CHECK(alive == answer.nearest.peak.count);
  }
}

TEST_CASE("planners: a whole step where nothing fits ends, and names the op that binds") {
  for (const int steps : {1, 3})
    for (const std::string method : {"checkmate", "search", "dtr"}) {
      CAPTURE(steps);
      CAPTURE(method);
      Scenario scenario = whole_step();
      scenario.training.loop.steps = steps;
      PlanAnswer answer;
      try {
        answer = find_plan(scenario, Bytes{1}, {.method = method, .seconds = 5});
      } catch (const InputError&) {
        CHECK(method == "checkmate");  // a build without the solver
        continue;
      }
      CHECK(!answer.best);
      // Row 6 reads 2 and 5; 2 is made again from 1 while 5 waits: 12 + 11 + 12, and no order has less.
      CHECK(answer.nearest.peak.count == 35);
      CHECK(answer.nearest.op == "2");
      CHECK(!answer.nearest.alive.empty());
      if (method != "checkmate") continue;
      CHECK(answer.bound.proof == "every op runs once");  // where there is no schedule, none is the cheapest
      CHECK(answer.notes == std::vector<std::string>{"proven: no schedule of this shape fits"});
    }
}

TEST_CASE("planners: fewer saved bytes can be a higher peak, and search does not fall for it") {
  const Scenario scenario = trap();
  const Bytes without = run(scenario).timeline.peak;
  const Bytes budget{without.count * 3 / 4};
  const PlanAnswer knapsack = find_plan(scenario, budget, {.method = "knapsack"});
  CHECK(!knapsack.best);                  // at no budget of saved bytes
  CHECK(knapsack.nearest.peak < budget);  // of segments
  CHECK(knapsack.notes.back() == "other methods have plans that fit: try auto");
  const PlanAnswer searched = find_plan(scenario, budget, {.method = "search"});
  REQUIRE(searched.best);
  CHECK(searched.best->cost.peak <= budget);
}

TEST_CASE("a front: ascending peaks, falling costs, every plan within its budget") {
  const std::vector<FrontierPoint> points = find_frontier(chain(5), 6, {});
  REQUIRE(points.size() > 2);
  CHECK(points.back().plan.cost.recompute == Flops{});
  for (std::size_t i = 0; i < points.size(); ++i) {
    CHECK(points[i].plan.cost.peak <= points[i].budget);
    if (i == 0) continue;
    CHECK(points[i - 1].plan.cost.peak < points[i].plan.cost.peak);
    CHECK(points[i - 1].plan.cost.time > points[i].plan.cost.time);
  }
}

TEST_CASE("planners: the better method is never worse on a chain") {
  const Scenario scenario = chain(5);
  const Bytes without = run(scenario).timeline.peak;
  for (int percent = 44; percent <= 100; percent += 8) {
    CAPTURE(percent);
    const Bytes budget{without.count * percent / 100};
    const auto time = [&](const std::string& method) {
      const PlanAnswer answer = find_plan(scenario, budget, {.method = method});
      return answer.best ? answer.best->cost.time : Nanos{std::numeric_limits<std::int64_t>::max()};
    };
    CHECK(time("chain_exact") <= time("rotor_tight"));
    CHECK(time("rotor_tight") <= time("rotor"));
    CHECK(time("rotor_tight") <= time("uniform"));
    CHECK(time("auto") == time("chain_exact"));
  }
}

TEST_CASE("planners refuse what they cannot plan") {
  const auto message = [](const Scenario& scenario, Bytes budget, const std::string& method) -> std::string {
    try {
      (void)find_plan(scenario, budget, {.method = method});
    } catch (const InputError& error) {
      return error.message();
    }
    return "";
  };
  CHECK(message(chain(4), Bytes{100}, "rotors") ==
        "no planner is called 'rotors'; known are auto, uniform, block, chen, knapsack, revolve, mixed, two_level, "
        "rotor, rotor_tight, chain_exact, checkmate, dtr, search");
  CHECK(message(chain(4), Bytes{9}, "auto") ==
        "the budget of 9 B is below the 10 bytes that are live before the first op");
  CHECK(message(gpt(), Bytes{1'000'000'000}, "rotor") ==
        "method 'rotor' does not plan models of ops; there are auto, uniform, block, chen, knapsack, search");
  CHECK(!find_plan(chain(4), Bytes{30}, {.method = "auto"}).best);
}

namespace {

/// Four layers under the framework's rules, of which the first two are given: bytes that each saves, the forward's time
/// and FLOPs. The last two are dear.
struct Tied {
  std::int64_t bytes, time, flops;
};
Scenario tied(const Tied& first, const Tied& second) {
  Scenario scenario = chain(4);
  scenario.convention = Convention::framework;
  auto& graph = std::get<LayerGraph>(scenario.model);
  for (std::size_t i = 0; i < 4; ++i) {
    const Tied& of = i == 0 ? first : i == 1 ? second : Tied{100, 1000, 1000};
    graph.layers[i].layer_activation = Bytes{of.bytes};
    graph.layers[i].forward_time = Nanos{of.time};
    graph.layers[i].forward_flops = Flops{of.flops};
  }
  return scenario;
}

/// Layers that the plan runs again, in order.
std::string again(const Plan& plan) {
  std::string out;
  for (const PlanStep& step : plan.steps)
    if (step.action == Action::recompute) out += (out.empty() ? "" : " ") + std::to_string(step.layer);
  return out;
}

}  // namespace

TEST_CASE("planners: of plans that fit, what decides") {
  struct Case {
    std::string name;
    Tied first, second;
    std::int64_t less;  // bytes under the peak without recomputation
    std::string layers;
  };
  const Case cases[] = {
      {"less time", {100, 20, 10}, {100, 10, 20}, 50, "1"},
      {"in the same time fewer FLOPs", {100, 10, 20}, {100, 10, 10}, 50, "1"},
      {"of the same cost fewer recomputes", {60, 0, 0}, {60, 0, 0}, 50, "0"},
      {"of as many the lower peak", {90, 10, 10}, {100, 10, 10}, 50, "1"},
      {"of the same peak the lower ids", {100, 10, 10}, {100, 10, 10}, 50, "0"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Scenario scenario = tied(c.first, c.second);
    const Bytes budget = run(scenario).timeline.peak - Bytes{c.less};
    const PlanAnswer answer = find_plan(scenario, budget, {.method = "search"});
    REQUIRE(answer.best);
    CHECK(again(answer.best->plan) == c.layers);
  }
}

TEST_CASE("planners: a budget below what is there before the first op is refused with the bytes, for every kind") {
  const auto message = [](const Scenario& scenario) -> std::string {
    const Step none = run(scenario).step;
    Bytes still;
    for (const StorageId id : none.initial) still += none.storages[id].bytes;
    try {
      (void)find_plan(scenario, still - Bytes{1});
    } catch (const InputError& error) {
      return error.message().ends_with(" is below the " + to_string(still) + " bytes that are live before the first op")
                 ? "refused"
                 : error.message();
    }
    return "planned";
  };
  for (const Scenario& scenario : {chain(4), branches(), mlp(), gpt(), residual(), trap()})
    CHECK(message(scenario) == "refused");
}

/// Of three layers that save 150, 100 and 200 bytes. At L: the input, what is saved and y3, 470 bytes; at B2 y2
/// besides, 480, and what layer 2 saved cannot go any more; at B1 280.
TEST_CASE("planners: what no plan goes below, by hand") {
  Scenario scenario = chain(3);
  auto& graph = std::get<LayerGraph>(scenario.model);
  for (std::size_t i = 0; i < 3; ++i) {
    graph.layers[i].layer_activation = Bytes{std::vector<std::int64_t>{150, 100, 200}[i]};
    graph.layers[i].forward_time = Nanos{std::vector<std::int64_t>{30, 10, 50}[i]};
    graph.layers[i].forward_flops = Flops{std::vector<std::int64_t>{100, 10, 40}[i]};
  }
  const Run none = run(scenario);
  REQUIRE(none.timeline.peak == Bytes{480});
  struct Case {
    std::int64_t budget, time, flops, ops;  // what runs again
  };
  const Case cases[] = {{480, 0, 0, 0}, {479, 10, 10, 1}, {330, 20, 44, 1}, {120, 40, 110, 2}};
  for (const Case& c : cases) {
    CAPTURE(c.budget);
    const LeastWork least = least_work(none.step, &graph, scenario.device, Bytes{c.budget}, false);
    CHECK(least.time - none.timeline.end == Nanos{c.time});
    CHECK(least.recompute == Flops{c.flops});
    CHECK(least.recomputes == c.ops);
    CHECK(least_work(none.step, &graph, scenario.device, Bytes{c.budget}, true) == LeastWork{none.timeline.end, {}, 0});
  }
}

TEST_CASE("planners: what stays to the end is there, and does not run again") {
  const Dag dag{{1, 1}, {5, 7}, {{}, {0}}, {{1}, {}}, {true, true}};
  REQUIRE(measure(dag, std::vector<std::int32_t>{0, 1}));
  CHECK(measure(dag, std::vector<std::int32_t>{0, 1})->peak == 12);
  CHECK(!measure(dag, std::vector<std::int32_t>{0, 1, 0}));
}
