// Whatever the chain or graph and however it is cut into segments, does its Step hold together?
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>

#include "tidemark/engine/referee.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/program/outline.hpp"
#include "tidemark/step/graph.hpp"
#include "tidemark/step/lower.hpp"

using namespace tidemark;

namespace {

std::int64_t any_number() { return *rc::gen::inRange<std::int64_t>(0, 20); }

/// Like the graphs of PipeDream: mostly a line, with skips and joins; now and then a second source.
std::vector<std::int32_t> any_inputs(int layer) {
  std::vector<std::int32_t> inputs;
  if (layer > 0 && *rc::gen::inRange(0, 8) > 0) inputs.push_back(layer - 1);
  for (int more = *rc::gen::inRange(0, 3); layer > 0 && more > 0; --more) inputs.push_back(*rc::gen::inRange(0, layer));
  return inputs;
}

LayerGraph any_graph(bool is_chain) {
  LayerGraph graph;
  graph.is_chain = is_chain;
  graph.input = Bytes{any_number()};
  graph.output_gradient = Bytes{any_number()};
  graph.loss_workspace = Bytes{any_number()};
  const int layers = *rc::gen::inRange(1, 14);
  const bool with_gradients = *rc::gen::arbitrary<bool>();
  for (int i = 0; i < layers; ++i) {
    LayerCost layer;
    if (!is_chain) layer.inputs = any_inputs(i);
    layer.output = Bytes{any_number()};
    layer.layer_activation = layer.output + Bytes{any_number()};
    if (with_gradients) layer.gradient = Bytes{any_number()};
    layer.forward_workspace = Bytes{any_number()};
    layer.backward_workspace = Bytes{any_number()};
    layer.parameters = Bytes{any_number()};
    layer.forward_flops = Flops{any_number()};
    layer.backward_flops = Flops{any_number()};
    layer.forward_time = Nanos{any_number()};
    graph.layers.push_back(layer);
  }
  return graph;
}

/// Segments that begin anywhere, the last one perhaps run in full at once, rebuilt one by one or all up front.
Plan any_plan(int layers) {
  std::vector<int> segment(static_cast<std::size_t>(layers));  // of a layer: where it begins
  for (int i = 1; i < layers; ++i)
    segment[static_cast<std::size_t>(i)] = *rc::gen::arbitrary<bool>() ? i : segment[static_cast<std::size_t>(i) - 1];
  const bool last_whole = *rc::gen::arbitrary<bool>();
  const bool up_front = *rc::gen::arbitrary<bool>();
  const auto is_whole = [&](int i) { return last_whole && segment[static_cast<std::size_t>(i)] == segment.back(); };

  Plan plan;
  const auto recompute = [&](int begin, int end) {
    for (int i = begin; i < end; ++i)
      if (!is_whole(i)) plan.steps.push_back({.action = Action::recompute, .layer = i, .ops = {}});
  };
  for (int i = 0; i < layers; ++i) {
    const Keep part = segment[static_cast<std::size_t>(i)] == i ? Keep::input : Keep::none;
    plan.steps.push_back({.layer = i, .ops = {}, .keep = is_whole(i) ? Keep::all : part});
  }
  plan.steps.push_back({.action = Action::loss, .ops = {}});
  if (up_front) recompute(0, layers);
  for (int end = layers; end > 0;) {
    const int begin = segment[static_cast<std::size_t>(end) - 1];
    if (!up_front) recompute(begin, end);
    for (; end > begin; --end) plan.steps.push_back({.action = Action::backward, .layer = end - 1, .ops = {}});
  }
  return plan;
}

Policy any_policy(int layers) {
  Policy policy;
  policy.hold_boundaries = *rc::gen::arbitrary<bool>();
  const int number = *rc::gen::inRange(1, layers + 1);
  switch (*rc::gen::inRange(0, 8)) {
    case 0:
      policy.kind = policy::Full{};
      break;
    case 1:
      policy.kind = policy::Interval{number, *rc::gen::arbitrary<bool>()};
      break;
    case 2:
      policy.kind = policy::Sqrt{*rc::gen::arbitrary<bool>()};
      break;
    case 3:
      policy.kind = policy::Sequential{number};
      break;
    case 4:
      policy.kind = policy::Block{number};
      break;
    case 5:
      policy.kind = policy::Whole{};
      break;
    case 6:
      policy.kind = policy::Selective{.recompute = {"attention"}, .keep = {}, .layers = {}, .every = 1};
      break;
    default:
      policy.kind = policy::Selective{.recompute = {}, .keep = {"attention"}, .layers = {}, .every = 1};
  }
  using Schedule = RecomputeSchedule;
  policy.schedule = *rc::gen::element(Schedule::per_segment, Schedule::just_in_time, Schedule::up_front);
  const bool whole_layers = policy.kind.index() < 7;
  if (policy.schedule == Schedule::per_segment && whole_layers)
    for (int level = *rc::gen::inRange(0, 3); level > 0; --level) policy.nested.push_back(*rc::gen::inRange(1, 5));
  return policy;
}

Convention any_convention(bool is_chain) {
  return is_chain && *rc::gen::arbitrary<bool>() ? Convention::rotor : Convention::framework;
}

Int128 flops_in(const Step& step, Phase phase) {
  Int128 total = 0;
  for (const StepOp& op : step.ops)
    if (op.phase == phase) total += op.flops;
  return total;
}

/// Of one step without held boundaries: nothing outlives the last op that touches it, but what is meant to.
void check_last_uses(const Step& step) {
  std::vector<OpId> last(step.storages.size(), no_id);
  for (OpId op = 0; op < step.ops.size(); ++op)
    for (std::uint32_t r = step.ops[op].read_begin; r < step.ops[op].read_end; ++r) last[step.reads[r]] = op;
  std::vector<bool> freed(step.storages.size());
  for (const Instruction& i : step.instructions)
    if (i.what == Do::free) {
      freed[i.index] = true;
      RC_ASSERT(last[i.index] == i.op);
    }
  for (StorageId id = 0; id < step.storages.size(); ++id)
    if (step.storages[id].bytes.count > 0) RC_ASSERT(freed[id] != step.storages[id].outlives_step);
}

}  // namespace

TEST_CASE("layers: the referee accepts every lowered plan, over several steps") {
  CHECK(rc::check([] {
    const bool is_chain = *rc::gen::arbitrary<bool>();
    const LayerGraph graph = any_graph(is_chain);
    Plan plan = any_plan(static_cast<int>(graph.layers.size()));
    plan.hold_boundaries = *rc::gen::arbitrary<bool>();
    const Step step = lower(graph, plan, any_convention(is_chain), *rc::gen::inRange(1, 4));
    const Timeline timeline = simulate(step, Device{});
    const auto violation = referee(step, timeline);
    RC_LOG() << (violation ? violation->message : "");
    RC_ASSERT(!violation);
    RC_ASSERT(timeline.peak == live_peak(step).bytes);
  }));
}

TEST_CASE("layers: what is released is never above what is held") {
  CHECK(rc::check([] {
    const LayerGraph graph = any_graph(*rc::gen::arbitrary<bool>());
    Plan plan = any_plan(static_cast<int>(graph.layers.size()));
    const Timeline released = simulate(lower(graph, plan, Convention::framework, 2), Device{});
    plan.hold_boundaries = true;
    const Timeline held = simulate(lower(graph, plan, Convention::framework, 2), Device{});
    RC_ASSERT(released.ops.size() == held.ops.size());
    for (std::size_t op = 0; op < held.ops.size(); ++op) {
      RC_ASSERT(released.ops[op].peak <= held.ops[op].peak);
      RC_ASSERT(released.ops[op].after <= held.ops[op].after);
    }
    RC_ASSERT(released.ops.back().after == held.ops.back().after);
  }));
}

TEST_CASE("layers: FLOPs are those of the plan, phase by phase") {
  CHECK(rc::check([] {
    const LayerGraph graph = any_graph(*rc::gen::arbitrary<bool>());
    const Plan plan = any_plan(static_cast<int>(graph.layers.size()));
    const int steps = *rc::gen::inRange(1, 4);
    std::map<Phase, Int128> expected;
    for (const PlanStep& s : plan.steps) {
      if (s.action == Action::loss) continue;
      const LayerCost& layer = graph.layers[static_cast<std::size_t>(s.layer)];
      if (s.action == Action::forward) expected[Phase::forward] += steps * layer.forward_flops.count;
      if (s.action == Action::recompute) expected[Phase::recompute] += steps * layer.forward_flops.count;
      if (s.action == Action::backward) expected[Phase::backward] += steps * layer.backward_flops.count;
    }
    const Step step = lower(graph, plan, Convention::framework, steps);
    for (const Phase phase : {Phase::forward, Phase::loss, Phase::recompute, Phase::backward})
      RC_ASSERT((flops_in(step, phase) == expected[phase]));
    RC_ASSERT((steps * step.model_flops.count == expected[Phase::forward] + expected[Phase::backward]));
  }));
}

TEST_CASE("layers: everything that is freed goes with the last op that touches it") {
  CHECK(rc::check([] {
    const bool is_chain = *rc::gen::arbitrary<bool>();
    const LayerGraph graph = any_graph(is_chain);
    const Plan plan = any_plan(static_cast<int>(graph.layers.size()));
    check_last_uses(lower(graph, plan, any_convention(is_chain), 1));
  }));
}

TEST_CASE("layers: the step graph has no cycle, and the program's order its simulated peak") {
  CHECK(rc::check([] {
    const LayerGraph graph = any_graph(*rc::gen::arbitrary<bool>());
    const Plan plan = any_plan(static_cast<int>(graph.layers.size()));
    const Step step = lower(graph, plan, Convention::framework, 1);
    const StepGraph all = make_graph(step);
    RC_ASSERT(is_acyclic(all));
    RC_ASSERT(peak_in_order(step, order_ops(all, OrderBy::program)) == live_peak(step).bytes);
    for (const Dependency& edge : all.dependencies()) RC_ASSERT(edge.before < edge.after);
    for (const OrderBy by : {OrderBy::topological, OrderBy::first_ready}) {
      const std::vector<OpId> order = order_ops(all, by);
      RC_ASSERT(order.size() == step.ops.size());
      std::vector<std::size_t> at(order.size());
      for (std::size_t i = 0; i < order.size(); ++i) at[order[i]] = i;
      for (const Dependency& edge : all.dependencies()) RC_ASSERT(at[edge.before] < at[edge.after]);
    }
    std::vector<Nanos> durations;
    Nanos one_after_the_other;
    for (const StepOp& op : step.ops) {
      durations.push_back(op.time);
      one_after_the_other += op.time;
    }
    RC_ASSERT(critical_path(all, durations) <= one_after_the_other);
  }));
}

TEST_CASE("layers: every policy's plan can be lowered, and nothing outlives its last use") {
  CHECK(rc::check([] {
    const bool is_chain = *rc::gen::arbitrary<bool>();
    LayerGraph graph = any_graph(is_chain);
    graph.layers[0].type = "attention";
    for (LayerCost& layer : graph.layers) {
      if (*rc::gen::arbitrary<bool>()) layer.type = "attention";
      if (*rc::gen::arbitrary<bool>()) layer.attention_flops = Flops{any_number()};
    }
    const Policy policy = any_policy(static_cast<int>(graph.layers.size()));
    Plan plan = make_plan(policy, outline(graph));
    const Convention convention = any_convention(is_chain);
    const Step step = lower(graph, plan, convention, 2);
    const auto violation = referee(step, simulate(step, Device{}));
    RC_LOG() << (violation ? violation->message : "");
    RC_ASSERT(!violation);
    plan.hold_boundaries = false;
    check_last_uses(lower(graph, plan, convention, 1));
  }));
}
