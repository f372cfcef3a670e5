#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/outlines.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/plan/sequence.hpp"

using namespace tidemark;

namespace {

std::string plan_of(const Policy& policy, const Outline& outline) {
  return to_sequence(make_plan(policy, outline), outline);
}

std::string message_of(const Policy& policy, const Outline& outline) {
  try {
    make_plan(policy, outline);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

Policy policy_of(PolicyKind kind, RecomputeSchedule schedule = RecomputeSchedule::per_segment,
                 std::string on_grad_of = "") {
  Policy policy;
  policy.kind = std::move(kind);
  policy.schedule = schedule;
  policy.on_grad_of = std::move(on_grad_of);
  return policy;
}

policy::Selective recompute(std::vector<std::string> patterns) {
  policy::Selective out;
  out.recompute = std::move(patterns);
  return out;
}

policy::Selective keep(std::vector<std::string> patterns) {
  policy::Selective out;
  out.keep = std::move(patterns);
  return out;
}

policy::Selective of_layers(policy::Selective selective, std::vector<std::pair<int, int>> layers, int every = 1) {
  selective.layers = std::move(layers);
  selective.every = every;
  return selective;
}

/// Layer 0 forks into 1, 2 and 3, 4; layer 5 joins them.
///
///        ┌ 1 ─ 2 ┐
///      0 ┤       ├ 5
///        └ 3 ─ 4 ┘
LayerGraph fork() {
  LayerGraph graph;
  const std::vector<std::vector<std::int32_t>> inputs = {{}, {0}, {1}, {0}, {3}, {2, 4}};
  for (const auto& read : inputs) {
    LayerCost cost;
    cost.name = "node" + std::to_string(graph.layers.size());
    cost.type = graph.layers.size() % 2 == 0 ? "conv" : "relu";
    cost.inputs = read;
    cost.forward_flops = Flops{10};
    graph.layers.push_back(cost);
  }
  return graph;
}

}  // namespace

TEST_CASE("selective: which ops are dropped and which run again") {
  // Ops of a block: 0 norm1 1 query 2 softmax 3 dropout 4 context 5 add1 6 up 7 gelu 8 down 9 add2.
  struct Case {
    std::string name;
    PolicyKind kind;
    std::string plan;
  };
  const Case cases[] = {
      {"a kind", recompute({"softmax"}), "Fe0 D0[2] Fe1 D1[2] L Fe1[2] B1 Fe0[2] B0"},
      {"a component of names", recompute({"core"}), "Fe0 D0[2-4] Fe1 D1[2-4] L Fe1[2-4] B1 Fe0[2-4] B0"},
      {"components in a row", recompute({"core.dropout"}), "Fe0 D0[3] Fe1 D1[3] L Fe1[3] B1 Fe0[3] B0"},
      {"a group of kinds", recompute({"matmul"}), "Fe0 D0[1,4,6,8] Fe1 D1[1,4,6,8] L Fe1[1,4,6,8] B1 Fe0[1,4,6,8] B0"},
      {"several patterns", recompute({"gelu", "norm"}), "Fe0 D0[0,7] Fe1 D1[0,7] L Fe1[0,7] B1 Fe0[0,7] B0"},
      {"keep a kind: all is dropped, the rest runs again", keep({"linear"}),
       "Fe0 D0 Fe1 D1 L Fe1[0,2-5,7,9] B1 Fe0[0,2-5,7,9] B0"},
      {"keep inside what is recomputed",
       [] {
         policy::Selective both = recompute({"core"});
         both.keep = {"bmm"};
         return both;
       }(),
       "Fe0 D0[2-4] Fe1 D1[2-4] L Fe1[2-3] B1 Fe0[2-3] B0"},
      {"a block of which everything matches is whole", recompute({"norm1", "attention", "add", "mlp"}),
       "Fc0 Fc1 L Fe1 B1 Fe0 B0"},
      {"one layer", of_layers(recompute({"softmax"}), {{1, 1}}), "Fe0 Fe1 D1[2] L Fe1[2] B1 B0"},
      {"every second: the second", of_layers(recompute({"softmax"}), {}, 2), "Fe0 Fe1 D1[2] L Fe1[2] B1 B0"},
      {"no patterns: whole layers", of_layers({}, {{0, 0}}), "Fc0 Fe1 L B1 Fe0 B0"},
      {"more than there are to count", of_layers(recompute({"softmax"}), {}, 3), "Fe0 Fe1 L B1 B0"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(plan_of(policy_of(c.kind), transformer_outline(2)) == c.plan);
  }
}

TEST_CASE("selective: every n-th of the layers in range") {
  const PolicyKind kind = of_layers({}, {{0, 1}, {3, 5}}, 2);  // 0 (1) 3 (4) 5
  CHECK(plan_of(policy_of(kind), chain_outline(6)) == "Fe0 Fc1 Fe2 Fe3 Fc4 Fe5 L B5 Fe4 B4 B3 B2 Fe1 B1 B0");
}

TEST_CASE("selective: when the ops run again") {
  struct Case {
    std::string name;
    Policy policy;
    std::string plan;
  };
  using enum RecomputeSchedule;
  const Case cases[] = {
      // context (4) is the first op to run backward that takes what was dropped.
      {"just in time", policy_of(recompute({"core"}), just_in_time), "Fe0 D0[2-4] L B0[5-9] Fe0[2-4] B0[0-4]"},
      {"just in time: each on its own", policy_of(recompute({"gelu", "softmax"}), just_in_time),
       "Fe0 D0[2,7] L B0[8-9] Fe0[7] B0[3-7] Fe0[2] B0[0-2]"},
      // add2 (9) takes add1 (5), which reads context, which is kept. down (8) takes gelu, of up, which is kept ...
      {"just in time: up to what is kept", policy_of(keep({"matmul"}), just_in_time),
       "Fe0 D0 L Fe0[5,9] B0[9] Fe0[7] B0[5-8] Fe0[2-3] B0[2-4] Fe0[0] B0[0-1]"},
      {"just in time: a whole block is taken by its last op", policy_of(policy::Full{}, just_in_time), "Fc0 L Fe0 B0"},
      {"up front: before the loss runs backward", policy_of(recompute({"core"}), up_front),
       "Fe(embedding) Fe0 D0[2-4] Fe(head) L Fe0[2-4] B(loss) B(head) B0 B(embedding)"},
      {"on the gradient of a later op", policy_of(recompute({"core"}), on_grad_of, "mlp.up"),
       "Fe0 D0[2-4] L B0[7-9] Fe0[2-4] B0[0-6]"},
      {"on the gradient of the last op", policy_of(recompute({"core"}), on_grad_of, "add2"),
       "Fe0 D0[2-4] L Fe0[2-4] B0"},
      {"on the gradient of a module", policy_of(recompute({"core"}), on_grad_of, "attention"),
       "Fe0 D0[2-4] L B0[5-9] Fe0[2-4] B0[0-4]"},
      {"on the gradient of a whole block's last op", policy_of(policy::Full{}, on_grad_of, "add2"), "Fc0 L Fe0 B0"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(plan_of(c.policy, transformer_outline(1)) == c.plan);
  }
}

TEST_CASE("selective: a view goes with what it looks at") {
  Outline outline;
  outline.layers.push_back(layer_of(0, "layers.0", true,
                                    {{"up", "linear", {}},
                                     {"act", "gelu", {0}},
                                     {"flat", "view", {1}},
                                     {"parts", "split", {2}},
                                     {"down", "linear", {3}},
                                     {"out", "view", {4}}},
                                    0));
  CHECK(plan_of(policy_of(recompute({"gelu"})), outline) == "Fe0 D0[1-3] L Fe0[1-3] B0");
  // Nothing of a view can be kept.
  CHECK(plan_of(policy_of(keep({"view", "linear"})), outline) == "Fe0 D0 L Fe0[1-3,5] B0");
}

TEST_CASE("selective: what is written in place goes with what it writes over") {
  Outline outline;
  outline.layers.push_back(layer_of(
      0, "layers.0", true,
      {{"up", "linear", {}}, {"act", "relu", {0}}, {"act2", "tanh", {1}}, {"down", "matmul", {2}}, {"sum", "add", {3}}},
      0));
  auto& ops = outline.layers[0].ops;
  ops[1].overwrites = {0, 0};
  ops[2].overwrites = {0, 1};
  ops[4].overwrites = {0, 3};
  CHECK(plan_of(policy_of(recompute({"relu"})), outline) == "Fe0 D0[0-2] L Fe0[0-2] B0");
  CHECK(plan_of(policy_of(recompute({"up"})), outline) == "Fe0 D0[0-2] L Fe0[0-2] B0");
  CHECK(plan_of(policy_of(keep({"tanh"})), outline) == "Fe0 D0 L Fe0[3-4] B0");
  CHECK(plan_of(policy_of(keep({"linear"})), outline) == "Fe0 D0 L Fe0[3-4] B0");
}

TEST_CASE("selective: under torch's checkpointing") {
  Policy policy = policy_of(recompute({"softmax"}));
  policy.checkpointing.kind = Checkpointing::Kind::nonreentrant;
  // What runs again is a function with a region of its own; with results kept, all of the block is the region.
  const std::string function = "Fe0 D0[2] L B0[3-9] Fe0[2] B0[0-2]";
  CHECK(plan_of(policy, transformer_outline(1)) == function);
  policy.checkpointing.kind = Checkpointing::Kind::reentrant;
  CHECK(plan_of(policy, transformer_outline(1)) == function);
  policy.kind = keep({"softmax"});
  CHECK(message_of(policy, transformer_outline(1)) ==
        "error: re-entrant checkpointing runs whole regions again and cannot keep ops' results; expected nonreentrant "
        "or direct");
  policy.checkpointing.kind = Checkpointing::Kind::nonreentrant;
  CHECK(plan_of(policy, transformer_outline(1)) == "Fe0 D0 L Fe0[0-1,3-9] B0");
  policy.checkpointing.kind = Checkpointing::Kind::reentrant;
  policy.kind = policy::Full{};
  CHECK(plan_of(policy, transformer_outline(1)) == "Fc0 L Fe0 B0");
  policy.schedule = RecomputeSchedule::up_front;
  CHECK(message_of(policy, transformer_outline(1)) ==
        "error: torch's checkpointing says itself when a region runs again; expected schedule per_segment and no "
        "'nested', or checkpointing direct");
  policy.schedule = RecomputeSchedule::per_segment;
  policy.kind = policy::Sequence{"Fc0 L Fe0 B0"};
  CHECK(message_of(policy, transformer_outline(1)) ==
        "error: step 7 of the plan, Fe0, runs again outside of any region; torch's checkpointing knows regions only");
}

TEST_CASE("selective: every n-th op that a pattern means, in regions of several blocks") {
  struct Case {
    std::string name;
    std::vector<std::string> keep;
    int interval;
    std::string plan;
  };
  // Linear ops of a block: 1, 6, 8; bmm 4.
  const Outline two = transformer_outline(2);
  const Case cases[] = {
      {"every second of a group", {"matmul/2"}, 1, "Fe0 D0 Fe1 D1 L Fe1[0-3,5-7,9] B1 Fe0[0-3,5-7,9] B0"},
      {"every second of three", {"linear/2"}, 1, "Fe0 D0 Fe1 D1 L Fe1[0-5,7-9] B1 Fe0[0-5,7-9] B0"},
      {"the others", {"linear/2+1"}, 1, "Fe0 D0 Fe1 D1 L Fe1[0,2-7,9] B1 Fe0[0,2-7,9] B0"},
      {"counted through a region", {"linear/2"}, 2, "Fe0 D0 Fe1 D1 L Fe0[0-5,7-9] Fe1[0,2-7,9] B1 B0"},
      {"two patterns", {"linear/3", "bmm"}, 1, "Fe0 D0 Fe1 D1 L Fe1[0-3,5-7,9] B1 Fe0[0-3,5-7,9] B0"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    policy::Selective kind;
    kind.keep = c.keep;
    kind.interval = c.interval;
    Policy policy = policy_of(kind);
    policy.checkpointing.kind = Checkpointing::Kind::nonreentrant;
    CHECK(plan_of(policy, two) == c.plan);
  }
  CHECK(message_of(policy_of(keep({"linear/0"})), two) ==
        "error: 'linear/0' is no pattern; expected what every n-th of is meant, such as mm/2, or mm/2+1 from the first "
        "on");
}

TEST_CASE("selective: the attention part of a layer given by numbers") {
  LayerGraph graph = chain_of(2);
  graph.layers[1].attention_flops = Flops{3};
  CHECK(plan_of(policy_of(recompute({"attention"})), outline(graph)) == "Fe0 Fe1 D1[0] L Fe1[0] B1 B0");
  CHECK(plan_of(policy_of(policy::Full{}), outline(graph)) == "Fc0 Fc1 L Fe1 B1 Fe0 B0");
  graph.layers[0].type = "attention";
  CHECK(plan_of(policy_of(recompute({"attention"})), outline(graph)) == "Fc0 Fe1 D1[0] L Fe1[0] B1 Fe0 B0");
  graph.layers[1].type = "attention";  // its part still is a part
  CHECK(plan_of(policy_of(recompute({"attention"})), outline(graph)) == "Fc0 Fe1 D1[0] L Fe1[0] B1 Fe0 B0");
}

TEST_CASE("outline: a layer given by numbers, and its attention part") {
  LayerGraph graph = chain_of(2);
  graph.layers[1].attention_flops = Flops{3};
  const Outline out = outline(graph);
  CHECK(out.step_flops == Flops{120});
  CHECK(out.layers[0].ops.size() == 1);
  REQUIRE(out.layers[1].ops.size() == 2);
  CHECK(out.layers[1].ops[0].forward_flops == Flops{3});
  CHECK(out.layers[1].ops[1].forward_flops == Flops{17});
  CHECK(out.layers[1].ops[0].inputs == std::vector<OpRef>{{0, 0}});
  CHECK(out.layers[1].ops[1].inputs == std::vector<OpRef>{{0, 0}, {1, 0}});
  graph.layers[1].attention_flops = Flops{20};  // all of it
  CHECK(outline(graph).layers[1].ops.size() == 1);
}

TEST_CASE("policy: segments of a graph") {
  struct Case {
    std::string name;
    Policy policy;
    std::string plan;
  };
  using enum RecomputeSchedule;
  policy::Selective relu = recompute({"relu"});
  const Case cases[] = {
      // 3 reads 0, and 5 reads 2, past their own segments: those inputs are boundaries too.
      {"a layer that reads past its segment keeps its inputs", policy_of(policy::Interval{2}),
       "Fc0 Fn1 Fc2 Fc3 Fc4 Fc5 L Fe4 Fe5 B5 B4 Fe2 Fe3 B3 B2 Fe0 Fe1 B1 B0"},
      {"per segment: both branches at once", policy_of(policy::Interval{5}),
       "Fc0 Fn1 Fn2 Fn3 Fn4 Fc5 L Fe5 B5 Fe0 Fe1 Fe2 Fe3 Fe4 B4 B3 B2 B1 B0"},
      {"just in time: one branch after the other", policy_of(policy::Interval{5}, just_in_time),
       "Fc0 Fn1 Fn2 Fn3 Fn4 Fc5 L Fe5 B5 Fe0 Fe3 Fe4 B4 B3 Fe1 Fe2 B2 B1 B0"},
      {"a type of layer", policy_of(relu), "Fe0 Fc1 Fe2 Fc3 Fe4 Fc5 L Fe5 B5 B4 Fe3 B3 B2 Fe1 B1 B0"},
      {"a layer by name", policy_of(recompute({"node4"})), "Fe0 Fe1 Fe2 Fe3 Fc4 Fe5 L B5 Fe4 B4 B3 B2 B1 B0"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(plan_of(c.policy, outline(fork())) == c.plan);
  }
}

TEST_CASE("rule: by type, bytes and the share of the step's FLOPs") {
  struct Case {
    std::string name;
    std::string type;
    std::int64_t bytes;
    std::int64_t flops;  // of layer 0's forward; layer 1 makes the step's FLOPs 1000
    std::string plan;
  };
  const std::string kept = "Fe0 Fe1 L B1 B0";
  const std::string rebuilt = "Fc0 Fe1 L B1 Fe0 B0";
  const Case cases[] = {
      {"attention at its limit", "attention", 100'000'000, 900, kept},
      {"attention above it, whatever it costs", "attention", 100'000'001, 900, rebuilt},
      {"ffn at its limit", "ffn", 500'000'000, 1, kept},
      {"ffn above it, cheap", "ffn", 500'000'001, 99, rebuilt},
      {"ffn above it, at the limit of cost", "ffn", 500'000'001, 100, kept},
      {"another type", "other", 900'000'000, 1, kept},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    LayerGraph graph = chain_of(2);
    graph.layers[0].type = c.type;
    graph.layers[0].layer_activation = Bytes{c.bytes};
    graph.layers[0].forward_flops = Flops{c.flops};
    graph.layers[0].backward_flops = Flops{0};
    graph.layers[1].forward_flops = Flops{1000 - c.flops};
    graph.layers[1].backward_flops = Flops{0};
    CHECK(plan_of(policy_of(policy::Rule{}), outline(graph)) == c.plan);
  }
}

TEST_CASE("rule: in a block, its attention and its feed-forward part are asked about apart") {
  // Each op of the toy saves 10 bytes and costs 5 of the step's 225 FLOPs: attention 40 B, mlp 30 B and 15/225.
  struct Case {
    std::string name;
    policy::Rule rule;
    std::string plan;
  };
  const Case cases[] = {
      {"attention", {Bytes{39}, Bytes{30}, 1.0}, "Fe0 D0[1-4] L Fe0[1-4] B0"},
      {"feed-forward", {Bytes{40}, Bytes{29}, 0.07}, "Fe0 D0[6-8] L Fe0[6-8] B0"},
      {"too dear", {Bytes{40}, Bytes{29}, 0.06}, "Fe0 L B0"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(plan_of(policy_of(c.rule), transformer_outline(1)) == c.plan);
  }
}

TEST_CASE("selective: mistakes are named") {
  struct Case {
    std::string name;
    Policy policy;
    std::string message;
  };
  using enum RecomputeSchedule;
  const Case cases[] = {
      {"matches nothing", policy_of(recompute({"softmax", "flash"})),
       "error: 'flash' matches no op of the blocks; expected a kind (add, bmm, dropout, gelu, layer_norm, linear, "
       "softmax), a group (matmul, norm, activation) or part of a name (act, add1, add2, attention, context, core, "
       "down, dropout, mlp, norm1, query, softmax, up)"},
      {"a typo in a counted pattern", policy_of(keep({"sofmax/2"})),
       "error: 'sofmax/2' matches no op of the blocks; did you mean 'softmax'? expected a kind (add, bmm, dropout, "
       "gelu, "
       "layer_norm, linear, softmax), a group (matmul, norm, activation) or part of a name (act, add1, add2, "
       "attention, "
       "context, core, down, dropout, mlp, norm1, query, softmax, up)"},
      {"half a component", policy_of(keep({"atten"})),
       "error: 'atten' matches no op of the blocks; expected a kind (add, bmm, dropout, "
       "gelu, layer_norm, linear, "
       "softmax), a group (matmul, norm, activation) or part of a name (act, add1, add2, attention, context, core, "
       "down, dropout, mlp, norm1, query, softmax, up)"},
      {"layers out of range", policy_of(of_layers(recompute({"softmax"}), {{1, 2}})),
       "error: 'layers' must be ranges of the layers 0 to 1, not 1-2"},
      {"layers backwards", policy_of(of_layers(recompute({"softmax"}), {{1, 0}})),
       "error: 'layers' must be ranges of the layers 0 to 1, not 1-0"},
      {"every 0th", policy_of(of_layers(recompute({"softmax"}), {}, 0)), "error: 'every' must be at least 1, not 0"},
      {"nothing selected", policy_of(policy::Selective{}),
       "error: policy selective selects nothing; expected 'recompute', 'keep', 'layers' or 'every'"},
      {"no such op", policy_of(recompute({"core"}), on_grad_of, "proj"),
       "error: 'on_grad_of' names no op 'proj' of 'layers.0'; expected one of norm1, attention.query, "
       "attention.core.softmax, attention.core.dropout, attention.core.context, add1, mlp.up, mlp.act, mlp.down, add2"},
      {"too late", policy_of(recompute({"core"}), on_grad_of, "attention.core.dropout"),
       "error: 'on_grad_of: attention.core.dropout' is too late for 'attention.core.context' of 'layers.0', which runs "
       "backward before it; expected that op or a later one"},
      {"nested parts",
       [] {
         Policy policy = policy_of(recompute({"core"}));
         policy.nested = {2};
         return policy;
       }(),
       "error: 'nested' needs a policy whose regions are whole blocks"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(message_of(c.policy, transformer_outline(2)) == c.message);
  }
}
