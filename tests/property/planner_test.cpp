// Any method on any model within any budget: does the plan run as predicted, within the budget, not below the bound?
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "support/any_model.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/input/plan_file.hpp"
#include "tidemark/study/linear_program.hpp"
#include "tidemark/study/pipeline.hpp"
#include "tidemark/study/plan_methods.hpp"
#include "tidemark/study/planner.hpp"

using namespace tidemark;

namespace {

Bytes any_bytes() { return Bytes{number(0, 60)}; }

LayerGraph any_layers(bool is_chain) {
  LayerGraph graph;
  graph.is_chain = is_chain;
  graph.input = any_bytes();
  graph.output_gradient = any_bytes();
  graph.loss_workspace = any_bytes();
  const bool timed = coin(), in_flops = coin(), parts = in_flops && coin();
  const int layers = 7 - number(0, 5);
  for (int i = 0; i < layers; ++i) {
    LayerCost layer;
    layer.name = std::to_string(i);
    if (i > 0) layer.inputs = {i - 1};
    if (!is_chain && i > 1 && coin()) layer.inputs.insert(layer.inputs.begin(), number(0, i - 2));
    layer.output = any_bytes();
    layer.layer_activation = layer.output + Bytes{number(0, 300)};
    layer.gradient = any_bytes();
    layer.forward_workspace = any_bytes();
    layer.backward_workspace = any_bytes();
    if (coin()) layer.parameters = any_bytes();
    if (in_flops) {
      layer.forward_flops = Flops{number(1, 50)};
      layer.backward_flops = Flops{number(1, 50)};
    }
    if (parts) layer.attention_flops = Flops{number(1, static_cast<int>(layer.forward_flops.count))};
    if (timed) {
      layer.forward_time = Nanos{number(0, 50)};
      layer.backward_time = Nanos{number(1, 50)};
    }
    graph.layers.push_back(layer);
  }
  return graph;
}

/// Rows forward, then a gradient of each that reads what it and its neighbours made.
LayerGraph any_whole_step() {
  LayerGraph graph;
  graph.is_whole_step = true;
  const int forward = 4 - number(0, 3);
  for (int i = 0; i <= 2 * forward; ++i) {
    LayerCost row;
    row.name = std::to_string(i);
    if (i > forward) row.inputs.push_back(2 * forward - i);
    if (i > 1 && coin()) row.inputs.push_back(number(0, i - 2));
    if (i > 0) row.inputs.push_back(i - 1);
    std::ranges::sort(row.inputs);
    row.inputs.erase(std::unique(row.inputs.begin(), row.inputs.end()), row.inputs.end());
    row.output = Bytes{number(1, 20)};
    row.forward_time = Nanos{number(1, 20)};
    graph.layers.push_back(row);
  }
  return graph;
}

Scenario any_scenario() {
  Scenario out;
  out.training.batch = {.size = number(1, 2), .sequence = 4};
  switch (number(0, 4)) {
    case 0:
      out.model = any_layers(true);
      out.convention = coin() ? Convention::rotor : Convention::framework;
      break;
    case 1:
      out.model = any_layers(false);
      break;
    case 2:
      out.model = any_whole_step();
      out.convention = coin() ? Convention::checkmate : Convention::dtr;
      break;
    case 3: {
      MlpSpec spec = any_mlp_spec(1, 3);
      if (spec.style == "inplace") spec.activation = one_of<std::string>({"relu", "tanh"});  // it saves what it makes
      out.model = spec;
      break;
    }
    default:
      out.model = any_transformer_spec(1, 3);
      out.training.profile = *find_profile(one_of<std::string>({"ideal", "pytorch-cuda", "pytorch-2.6-cpu"}));
  }
  const ModelKind kind = kind_of(out);
  if (kind != ModelKind::ops) out.family = kind == ModelKind::chain ? "chain" : "graph";
  if (kind == ModelKind::ops) out.family = std::holds_alternative<MlpSpec>(out.model) ? "mlp" : "transformer";
  if (kind == ModelKind::chain && coin()) {  // 1 B/ns to the host, 0.5 B/ns back
    out.device.copy_to_host = 1e9;
    out.device.copy_to_device = 5e8;
  }
  if (kind == ModelKind::ops && coin()) {
    out.device.memory_bandwidth = 1e9;
    out.policy.checkpointing.kind = one_of({Checkpointing::Kind::nonreentrant, Checkpointing::Kind::reentrant});
  }
  const bool direct = out.policy.checkpointing.kind == Checkpointing::Kind::direct;
  if (kind != ModelKind::whole_step && direct && coin()) out.policy.schedule = RecomputeSchedule::up_front;
  if (kind != ModelKind::ops && coin()) out.training.loop.steps = 2;
  return out;
}

std::string any_method(ModelKind kind) {
  std::vector<std::string> names;
  for (const std::string& name : plan_methods()) try {
      check_method(name, kind);
      if (name != "checkmate" || has_linear_solver()) names.push_back(name);
    } catch (const InputError&) {
    }
  return *rc::gen::elementOf(names);
}

}  // namespace

TEST_CASE("any method, any model, any budget: the plan runs as predicted, within the budget, not below the bound") {
  int planned = 0, proven = 0, short_of = 0;
  CHECK(rc::check([&] {
    const Scenario scenario = any_scenario();
    const std::string method = any_method(kind_of(scenario));
    RC_TAG(method + " on " + scenario.family);
    const Run none = run(scenario);
    Bytes still;
    for (const StorageId id : none.step.initial) still += none.step.storages[id].bytes;
    const Bytes budget = still + Bytes{(none.timeline.peak - still).count * (100 - number(0, 40)) / 100};
    const PlanAnswer answer = find_plan(scenario, budget, {.method = method, .seconds = 0.05});
    RC_ASSERT(answer.without.peak == none.timeline.peak);
    RC_ASSERT(answer.static_bytes == still);
    RC_ASSERT(!answer.bound.proof.empty());
    if (!answer.best) {
      const auto& notes = answer.notes;
      const bool elsewhere = std::ranges::find(notes, "other methods have plans that fit: try auto") != notes.end();
      RC_ASSERT((answer.nearest.peak > budget) != elsewhere);
      RC_ASSERT(!answer.nearest.op.empty());
      Bytes alive;
      for (const auto& [name, bytes] : answer.nearest.alive) alive += bytes;
      RC_ASSERT(alive == answer.nearest.peak);
      ++short_of;
      return;
    }
    const PlanCost& cost = answer.best->cost;
    RC_ASSERT(cost.peak <= budget);
    RC_ASSERT(answer.bound.time <= cost.time);
    RC_ASSERT(answer.bound.recompute <= cost.recompute);
    RC_ASSERT(answer.bound.recomputes <= cost.recomputes);
    Scenario again = scenario;
    again.policy = {};
    const std::string text = write_plan(answer.best->plan, answer.outline);
    again.policy.kind = policy::Given{parse_plan(text, "plan.yaml", answer.outline)};
    const Run result = run(again);
    RC_ASSERT(result.timeline.peak == cost.peak);
    RC_ASSERT(result.timeline.end == cost.time);
    RC_ASSERT(!referee(result.step, result.timeline));
    planned += answer.best->method == "none" ? 0 : 1;
    proven += answer.bound.proof == "every op runs once" ? 0 : 1;
  }));
  CHECK(planned > 10);
  CHECK(proven > 10);
  CHECK(short_of > 0);
}
