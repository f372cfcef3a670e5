#include <doctest/doctest.h>

#include "tidemark/base/errors.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/input/plan_file.hpp"
#include "tidemark/study/pipeline.hpp"
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
  CHECK(
      message(chain(4), Bytes{100}, "rotors") ==
      "no planner is called 'rotors'; known are auto, uniform, block, chen, revolve, rotor, rotor_tight, chain_exact, "
      "checkmate, dtr, search");
  CHECK(message(chain(4), Bytes{9}, "auto") ==
        "the budget of 9 B is below the 10 bytes that are live before the first op");
  CHECK(message(gpt(), Bytes{1'000'000'000}, "rotor") ==
        "method 'rotor' does not plan models of ops; there are auto, uniform, block, chen, search");
  CHECK(!find_plan(chain(4), Bytes{30}, {.method = "auto"}).best);
}
