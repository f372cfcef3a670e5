// Any policy on any model: what must hold of the plan, judged by code that shares nothing with the planner.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "support/any_policy.hpp"
#include "support/outlines.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/plan/sequence.hpp"
#include "tidemark/plan/validity.hpp"

using namespace tidemark;

namespace {

/// Each op reads up to three earlier ones of its block or the last op of the block before; some layers are no blocks.
Outline random_program() {
  const std::vector<std::string> kinds = {"linear", "softmax", "gelu", "view", "add"};
  Outline out;
  const int layers = number(1, 7);
  for (std::int32_t i = 0; i < layers; ++i) {
    OutlineLayer layer{"layers." + std::to_string(i), "block", number(0, 4) > 0, Bytes{0}, {}};
    const int ops = number(1, 7);
    for (std::int32_t k = 0; k < ops; ++k) {
      OutlineOp op{"part" + std::to_string(k % 2) + ".op" + std::to_string(k),
                   kinds[static_cast<std::size_t>(number(0, 4))],
                   Bytes{1},
                   Flops{1},
                   Bytes{number(0, 200'000'000)},
                   {}};
      std::set<OpRef> inputs;
      for (int n = number(k == 0 ? 0 : 1, 3); n > 0 && k > 0; --n) inputs.insert({i, number(0, k - 1)});
      if (i > 0 && (k == 0 || number(0, 5) == 0))
        inputs.insert({i - 1, static_cast<std::int32_t>(out.layers.back().ops.size()) - 1});
      op.inputs.assign(inputs.begin(), inputs.end());
      layer.ops.push_back(op);
    }
    out.layers.push_back(layer);
  }
  if (number(0, 1) == 1)
    out.layers.push_back(layer_of(layers, "loss", false, {{"loss", "cross_entropy", {}}},
                                  static_cast<int>(out.layers.back().ops.size())));
  out.step_flops = Flops{100};
  return out;
}

Outline random_graph() {
  LayerGraph graph;
  graph.is_chain = number(0, 1) == 1;
  const int layers = number(1, 12);
  for (std::int32_t i = 0; i < layers; ++i) {
    LayerCost cost;
    cost.type = number(0, 1) == 0 ? "attention" : "ffn";
    cost.layer_activation = Bytes{number(0, 900'000'000)};
    cost.forward_flops = Flops{10};
    cost.attention_flops = Flops{number(0, 10)};
    for (int n = number(1, 3); n > 0 && i > 0; --n) cost.inputs.push_back(number(std::max(0, i - 4), i - 1));
    graph.layers.push_back(cost);
  }
  return outline(graph);
}

Outline random_outline() { return number(0, 1) == 0 ? random_program() : random_graph(); }

using Ops = std::vector<OpRef>;

Ops ops_of(const PlanStep& step, const Outline& outline) {
  Ops out;
  if (step.layer < 0) return out;
  for (const std::int32_t k : step.ops) out.push_back({step.layer, k});
  if (step.ops.empty())
    for (std::size_t k = 0; k < outline.layers[static_cast<std::size_t>(step.layer)].ops.size(); ++k)
      out.push_back({step.layer, static_cast<std::int32_t>(k)});
  return out;
}

Ops all_ops(const Outline& outline) {
  Ops out;
  for (std::size_t i = 0; i < outline.layers.size(); ++i)
    for (std::size_t k = 0; k < outline.layers[i].ops.size(); ++k)
      out.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(k)});
  return out;
}

const OutlineOp& at(const Outline& outline, OpRef op) {
  return outline.layers[static_cast<std::size_t>(op.layer)].ops[static_cast<std::size_t>(op.op)];
}

/// The plan as one list of ops for each action, and what forward gave up.
struct Runs {
  Ops forward, recomputed, backward;
  std::set<OpRef> dropped;  // by whichever means
  std::map<OpRef, int> reruns;
  int losses = 0;
};

Runs runs_of(const Plan& plan, const Outline& outline) {
  Runs out;
  for (const PlanStep& step : plan.steps) {
    Ops ops = ops_of(step, outline);
    switch (step.action) {
      case Action::forward:
        out.forward.insert(out.forward.end(), ops.begin(), ops.end());
        if (step.keep != Keep::all) out.dropped.insert(ops.begin(), ops.end());
        break;
      case Action::drop:
        out.dropped.insert(ops.begin(), ops.end());
        break;
      case Action::recompute:
        out.recomputed.insert(out.recomputed.end(), ops.begin(), ops.end());
        for (const OpRef& op : ops) ++out.reruns[op];
        break;
      case Action::backward:
        std::ranges::reverse(ops);
        out.backward.insert(out.backward.end(), ops.begin(), ops.end());
        break;
      case Action::loss:
        ++out.losses;
        if (outline.layers.back().name == "loss")
          out.forward.push_back({static_cast<std::int32_t>(outline.layers.size()) - 1, 0});
        break;
      default:
        break;
    }
  }
  return out;
}

struct Drawn {
  Outline outline;
  Policy policy;
  Plan plan;
};

Drawn draw(Outline outline = random_outline()) {
  Drawn out;
  out.outline = std::move(outline);
  out.policy = random_policy(out.outline);
  out.plan = make_plan(out.policy, out.outline);
  RC_LOG() << to_sequence(out.plan, out.outline) << "\n";
  return out;
}

}  // namespace

TEST_CASE("plan: every op runs forward once in order, and backward once in reverse") {
  CHECK(rc::check([] {
    const Drawn d = draw();
    const Runs runs = runs_of(d.plan, d.outline);
    Ops expected = all_ops(d.outline);
    RC_ASSERT(runs.forward == expected);
    std::ranges::reverse(expected);
    RC_ASSERT(runs.backward == expected);
    RC_ASSERT(runs.losses == 1);
  }));
}

TEST_CASE("plan: what was given up is there again when its backward runs") {
  CHECK(rc::check([] {
    const Drawn d = draw();
    const Runs runs = runs_of(d.plan, d.outline);
    std::set<OpRef> saved;                        // ops whose nodes hold what they saved
    std::set<OpRef> remade;                       // ops that have run again
    std::set<OpRef> cached;                       // dropped on their own, never to run again
    std::map<std::int32_t, std::int32_t> region;  // by layer
    for (const PlanStep& step : d.plan.steps) {
      if (step.action == Action::forward) region[step.layer] = step.region;
      if (step.action != Action::drop) continue;
      for (const OpRef& op : ops_of(step, d.outline))
        if (!runs.reruns.contains(op)) cached.insert(op);
    }
    for (const PlanStep& step : d.plan.steps) {
      if (step.action == Action::loss && d.outline.layers.back().name == "loss")
        saved.insert(all_ops(d.outline).back());
      for (const OpRef& op : ops_of(step, d.outline)) {
        if (step.action == Action::drop) saved.erase(op);
        if (step.action == Action::backward) RC_ASSERT(saved.contains(op) || cached.contains(op));
        if (step.action == Action::forward && step.keep == Keep::all) saved.insert(op);
        if (step.action != Action::recompute) continue;
        RC_ASSERT(runs.dropped.contains(op));
        RC_ASSERT(region[op.layer] >= 0);
        // What it reads of its own region has run again first, if it ever does.
        for (const OpRef& input : at(d.outline, op).inputs)
          if (region[input.layer] == region[op.layer] && runs.reruns.contains(input)) RC_ASSERT(remade.contains(input));
        remade.insert(op);
        if (step.keep == Keep::all) saved.insert(op);
      }
    }
    for (const OpRef& op : runs.dropped) RC_ASSERT(cached.contains(op) || runs.reruns.contains(op));
  }));
}

TEST_CASE("plan: the schedule changes when ops run again, not which, nor how often") {
  CHECK(rc::check([] {
    Drawn d = draw();
    d.policy.nested.clear();
    std::vector<std::map<OpRef, int>> reruns;
    for (int schedule = 0; schedule < 3; ++schedule) {
      d.policy.schedule = static_cast<RecomputeSchedule>(schedule);
      reruns.push_back(runs_of(make_plan(d.policy, d.outline), d.outline).reruns);
      for (const auto& [op, times] : reruns.back()) RC_ASSERT(times == 1);
    }
    RC_ASSERT(reruns[0] == reruns[1]);
    RC_ASSERT(reruns[0] == reruns[2]);
  }));
}

TEST_CASE("plan: just in time is never earlier than per segment, and up front never later") {
  CHECK(rc::check([] {
    Drawn d = draw();
    d.policy.nested.clear();
    // By op that runs again: how many ops have run backward before.
    const auto waits = [&](RecomputeSchedule schedule) {
      d.policy.schedule = schedule;
      std::map<OpRef, std::size_t> out;
      std::size_t done = 0;
      for (const PlanStep& step : make_plan(d.policy, d.outline).steps)
        for (const OpRef& op : ops_of(step, d.outline)) {
          if (step.action == Action::backward) ++done;
          if (step.action == Action::recompute) out[op] = done;
        }
      return out;
    };
    const auto early = waits(RecomputeSchedule::up_front);
    const auto segment = waits(RecomputeSchedule::per_segment);
    const auto late = waits(RecomputeSchedule::just_in_time);
    for (const auto& [op, done] : segment) {
      RC_ASSERT(early.at(op) == 0u);
      RC_ASSERT(late.at(op) >= done);
    }
  }));
}

TEST_CASE("plan: to text and back") {
  CHECK(rc::check([] {
    const Drawn d = draw();
    const std::string text = to_sequence(d.plan, d.outline);
    Plan expected = d.plan;
    for (PlanStep& step : expected.steps) step.region = -1;
    const Plan back = parse_sequence(text, d.outline);
    RC_ASSERT(back.steps == expected.steps);
    RC_ASSERT(to_sequence(back, d.outline) == text);
    Policy policy;
    policy.kind = policy::Sequence{text};
    RC_ASSERT(make_plan(policy, d.outline).steps == expected.steps);
  }));
}

TEST_CASE("plan: without one of its steps no plan of whole layers of a chain is valid") {
  CHECK(rc::check([] {
    Drawn d = draw(chain_outline(number(1, 12)));
    RC_PRE(d.policy.kind.index() < 7);
    d.plan.steps.erase(d.plan.steps.begin() + number(0, static_cast<int>(d.plan.steps.size()) - 1));
    RC_ASSERT_THROWS_AS(check_plan(d.plan, d.outline), InputError);
  }));
}

TEST_CASE("plan: recursive halving of a chain runs each layer about log2 times again") {
  CHECK(rc::check([] {
    const int levels = number(0, 6);
    const int layers = 1 << levels;
    Policy policy;
    policy.kind = policy::Whole{};
    for (int k = layers / 2; k >= 1; k /= 2) policy.nested.push_back(k);
    const Outline outline = chain_outline(layers);
    const Plan plan = make_plan(policy, outline);
    // R(1) = 1, R(2n) = n + R(n) + R(n): half runs again to reach the middle, then each half on its own.
    std::size_t expected = 1;
    for (int n = 1; n < layers; n *= 2) expected = static_cast<std::size_t>(n) + 2 * expected;
    RC_ASSERT(runs_of(plan, outline).recomputed.size() == expected);
  }));
}
