#include <doctest/doctest.h>

#include "support/hand_step.hpp"
#include "support/layers.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/step/lower.hpp"

using namespace tidemark;
using test::chain;
using test::equal_chain;
using test::every;
using test::sequence;

namespace {

/// "Fe0 10 8": the op, live bytes during it at most, and after it.
std::vector<std::string> tide(const Step& step) {
  const Timeline timeline = simulate(step, Device{});
  std::vector<std::string> rows;
  for (std::size_t i = 0; i < step.ops.size(); ++i)
    rows.push_back(step.names[step.ops[i].name] + " " + to_string(timeline.ops[i].peak) + " " +
                   to_string(timeline.ops[i].after));
  return rows;
}

Step framework(const LayerGraph& graph, const Plan& plan, int steps = 1) {
  return lower(graph, plan, Convention::framework, steps);
}

/// A layer of a graph: its name, what it reads, what it saves and its output.
LayerCost node(const std::string& name, std::vector<std::int32_t> inputs, std::int64_t saved, std::int64_t output) {
  LayerCost layer;
  layer.name = name;
  layer.inputs = std::move(inputs);
  layer.layer_activation = Bytes{saved};
  layer.output = Bytes{output};
  return layer;
}

/// a -> b -> c -> d, and a -> d: the value of a skips over b and c.
LayerGraph skip_graph() {
  LayerGraph graph;
  graph.input = Bytes{1};
  graph.layers = {node("a", {}, 20, 2), node("b", {0}, 40, 4), node("c", {1}, 80, 8), node("d", {0, 2}, 160, 16)};
  return graph;
}

Flops flops_in(const Step& step, Phase phase) {
  Flops total;
  for (const StepOp& op : step.ops)
    if (op.phase == phase) total += Flops{op.flops};
  return total;
}

}  // namespace

TEST_CASE("chains of equal layers peak at the textbook figures") {
  struct Case {
    std::string name;
    int layers, interval;
    std::int64_t saved, boundary;
    bool hold;
    std::int64_t peak;
  };
  constexpr std::int64_t mb = 1'000'000;
  const Case cases[] = {
      {"36 layers, 6 a segment", 36, 6, 100 * mb, 10 * mb, false, 660 * mb},
      {"36 layers, 6 a segment, held", 36, 6, 100 * mb, 10 * mb, true, 660 * mb},
      {"32 layers, each a segment", 32, 1, 120 * mb, 15 * mb, false, 600 * mb},
      {"24 layers, one segment", 24, 24, 80 * mb, 8 * mb, false, 1928 * mb},
      {"30 layers, 8 a segment, held: the formula", 30, 8, 50 * mb, 5 * mb, true, 420 * mb},
      {"30 layers, 8 a segment: the last boundary is gone", 30, 8, 50 * mb, 5 * mb, false, 415 * mb},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Plan plan = every(c.interval, c.layers);
    plan.hold_boundaries = c.hold;
    CHECK(live_peak(framework(equal_chain(c.layers, c.saved, c.boundary), plan)).bytes == Bytes{c.peak});
  }
}

TEST_CASE("what each op of a chain allocates and frees, by hand") {
  // Boundaries 1, 2, 4; layers save 10 and 20; gradients of the inputs 100 and 200, of the output 400.
  LayerGraph graph = chain({10, 20}, {1, 2, 4});
  graph.layers[0].gradient = Bytes{100};
  graph.layers[1].gradient = Bytes{200};
  graph.output_gradient = Bytes{400};
  graph.layers[0].forward_workspace = Bytes{1000};
  graph.layers[1].backward_workspace = Bytes{2000};
  graph.loss_workspace = Bytes{4000};
  struct Case {
    std::string name, sequence;
    std::vector<std::string> rows;
  };
  const Case cases[] = {
      // x0 1 | +saved0 10 | +saved1 20 | +g2 400 | +g1 200, -g2, -saved1 | +g0 100, -x0, -g1, -saved0
      {"everything saved", "Fe0 Fe1 L B1 B0", {"Fe0 1011 11", "Fe1 31 31", "L 4431 431", "B1 2631 211", "B0 311 100"}},
      // x0 1 | +x1 2 | +x2 4, -x1 | +g2, -x2 | rebuilt from x0
      {"one segment",
       "Fc0 Fn1 L Fe0 Fe1 B1 B0",
       {"Fc0 1003 3", "Fn1 7 5", "L 4405 401", "Fe0 1411 411", "Fe1 431 431", "B1 2631 211", "B0 311 100"}},
      {"the input of the second layer is kept, and goes with its backward",
       "Fc0 Fc1 L Fe1 B1 Fe0 B0",
       {"Fc0 1003 3", "Fc1 7 7", "L 4407 403", "Fe1 423 423", "B1 2623 201", "Fe0 1211 211", "B0 311 100"}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(tide(framework(graph, sequence(c.sequence))) == c.rows);
  }
}

TEST_CASE("a used boundary that is held counts until the step ends") {
  //            x0 1 | x1 2      | x2 4      | g2 0, -x2 | Fe1 20    | B1 -saved1, x1 held | Fe0 10    | B0: all goes
  Plan plan = sequence("Fc0 Fc1 L Fe1 B1 Fe0 B0");
  const LayerGraph graph = chain({10, 20}, {1, 2, 4});
  CHECK(tide(framework(graph, plan)) ==
        std::vector<std::string>{"Fc0 3 3", "Fc1 7 7", "L 7 3", "Fe1 23 23", "B1 23 1", "Fe0 11 11", "B0 11 0"});
  plan.hold_boundaries = true;
  CHECK(tide(framework(graph, plan)) ==
        std::vector<std::string>{"Fc0 3 3", "Fc1 7 7", "L 7 3", "Fe1 23 23", "B1 23 3", "Fe0 13 13", "B0 13 0"});
}

TEST_CASE("graphs: what each op allocates and frees, by hand") {
  const LayerGraph graph = skip_graph();
  struct Case {
    std::string name;
    Plan plan;
    std::vector<std::string> rows;
  };
  const Case cases[] = {
      // input 1 | +20 | +40 | +80 | +160 | +gd 16 | +ga 2 +gc 8 -gd -160 | +gb 4 -gc -80 | b adds to ga -gb -40 | -1
      // -20 -ga
      {"everything saved: the second gradient of a is added into the first",
       test::segments(4, {0}, false),
       {"Fe a 21 21", "Fe b 61 61", "Fe c 141 141", "Fe d 301 301", "L 317 317", "B d 327 151", "B c 155 67",
        "B b 67 23", "B a 23 0"}},
      // a 2 stays for d | b 4 | +c 8, -b | +d 16, -a -c | +gd 16, -d | then as above from the input, plus gd
      {"one segment: the plain output of a stays until d has read it",
       test::segments(4, {0}, true),
       {"Fc a 3 3", "Fn b 7 7", "Fn c 15 11", "Fn d 27 17", "L 33 17", "Fe a 37 37", "Fe b 77 77", "Fe c 157 157",
        "Fe d 317 317", "B d 327 151", "B c 155 67", "B b 67 23", "B a 23 0"}},
      // segments {a, b} and {c, d}: a is read by d from outside, so it is a boundary of the second segment, and stays
      // for d's backward; b is that segment's first input.
      {"two segments: what the second reads from the first is kept for it",
       test::segments(4, {0, 2}, true),
       {"Fc a 3 3", "Fn b 7 7", "Fc c 15 15", "Fn d 31 23", "L 39 23", "Fe c 103 103", "Fe d 263 263", "B d 273 95",
        "B c 99 7", "Fe a 27 27", "Fe b 67 67", "B b 67 23", "B a 23 0"}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(tide(framework(graph, c.plan)) == c.rows);
  }
}

TEST_CASE("graphs: gradients take the size of their value, or what the table gives") {
  LayerGraph graph = skip_graph();
  const Plan plan = test::segments(4, {0}, false);
  graph.layers[1].gradient = Bytes{1000};
  graph.layers[3].gradient = Bytes{500};
  graph.output_gradient = Bytes{7};
  // gd 7 | ga 1000 (the larger of what b and d give), gc 500 | gb 0, none given | b adds to ga
  CHECK(tide(framework(graph, plan)) == std::vector<std::string>{"Fe a 21 21", "Fe b 61 61", "Fe c 141 141",
                                                                 "Fe d 301 301", "L 308 308", "B d 1808 1641",
                                                                 "B c 1641 1061", "B b 1061 1021", "B a 1021 0"});
}

TEST_CASE("parameters live from the start, and their gradients until the next step zeroes them") {
  LayerGraph graph = chain({10, 20}, {1, 2, 4});
  graph.layers[0].parameters = Bytes{100};
  graph.layers[1].parameters = Bytes{200};
  graph.layers[0].gradient = Bytes{1000};
  const Step step = framework(graph, sequence("Fe0 Fe1 L B1 B0"), 2);
  // 300 + x0 1 | .. | +200 | +100 +1000, -x0 | zero_grad -200 -100 -1000, new x0 1
  CHECK(tide(step) == std::vector<std::string>{"Fe0 311 311", "Fe1 331 331", "L 331 331", "B1 531 511", "B0 1611 1600",
                                               "Fe0 1600 311", "Fe1 331 331", "L 331 331", "B1 531 511",
                                               "B0 1611 1600"});
  CHECK(step.steps == 2);
  CHECK(step.ops[4].step == 0);
  CHECK(step.ops[5].step == 1);
  CHECK(tide(lower(graph, sequence("Fe0 Fe1 L B1 B0"), Convention::rotor, 1)) ==
        std::vector<std::string>{"Fe0 11 11", "Fe1 31 31", "L 35 35", "B1 37 13", "B0 14 1"});
}

TEST_CASE("layers: FLOPs and time go to the phase of the op that takes them") {
  LayerGraph graph = equal_chain(10, 100, 10);
  for (LayerCost& layer : graph.layers) {
    layer.forward_flops = Flops{1000};
    layer.backward_flops = Flops{2000};
    layer.attention_flops = Flops{150};
  }
  Plan selective;
  for (int i = 0; i < 10; ++i) {
    selective.steps.push_back({.layer = i, .ops = {}});
    selective.steps.push_back({.action = Action::drop, .layer = i, .ops = {0}});
  }
  selective.steps.push_back({.action = Action::loss, .ops = {}});
  for (int i = 10; i-- > 0;) {
    selective.steps.push_back({.action = Action::recompute, .layer = i, .ops = {0}, .keep = Keep::all});
    selective.steps.push_back({.action = Action::backward, .layer = i, .ops = {}});
  }
  struct Case {
    std::string name;
    Plan plan;
    std::int64_t recompute;
    std::int64_t nanos;
  };
  const Case cases[] = {
      {"nothing recomputed: 3 L f", test::segments(10, {0}, false), 0, 10 * (7 + 14)},
      {"all recomputed: 4 L f", every(3, 10), 10'000, 10 * (7 + 7 + 14)},
      {"attention recomputed, 0.15 of a forward: 3.15 L f", selective, 1500, 10 * (7 + 2 + 14)},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Step step = framework(graph, c.plan);
    CHECK(flops_in(step, Phase::forward) == Flops{10'000});
    CHECK(flops_in(step, Phase::recompute) == Flops{c.recompute});
    CHECK(flops_in(step, Phase::backward) == Flops{20'000});
    CHECK(step.model_flops == Flops{30'000});
    Device device;
    device.flops.fill(1e9);  // one FLOP a nanosecond
    CHECK(simulate(step, device).end == Nanos{30'000 + c.recompute});
    LayerGraph timed = graph;
    for (LayerCost& layer : timed.layers) {
      layer.forward_time = Nanos{7};
      layer.backward_time = Nanos{14};
    }
    timed.loss_time = Nanos{3};
    CHECK(simulate(framework(timed, c.plan), device).end == Nanos{c.nanos + 3});
  }
}

TEST_CASE("a layer whose one op is dropped keeps its input, as a segment of its own would") {
  LayerGraph graph = chain({10, 20}, {1, 2, 4});
  Plan plan = sequence("Fe0 Fe1 L Fe1 B1 Fe0 B0");
  for (PlanStep& step : plan.steps)
    if (step.action == Action::recompute) step.ops = {0};
  plan.steps.insert(plan.steps.begin() + 2, {.action = Action::drop, .layer = 1, .ops = {0}});
  plan.steps.insert(plan.steps.begin() + 1, {.action = Action::drop, .layer = 0, .ops = {0}});
  CHECK(tide(framework(graph, plan)) == tide(framework(graph, sequence("Fc0 Fc1 L Fe1 B1 Fe0 B0"))));
}

TEST_CASE("a plan that reads what is not there is refused, naming its step") {
  const LayerGraph three = chain({10, 20, 30}, {1, 2, 4, 8});
  LayerGraph graph = skip_graph();
  LayerGraph backwards = skip_graph();
  backwards.layers[1].inputs = {2};
  LayerGraph huge = three;
  huge.layers[1].forward_flops = Flops{Int128{1} << 63};
  Plan no_layer = sequence("Fe0 Fe1 Fe2 L B2 B1 B0");
  no_layer.steps[1].layer = 3;
  Plan copies = no_layer;
  copies.steps[1] = {.action = Action::copy_out, .layer = 1, .ops = {}};
  struct Case {
    std::string name;
    LayerGraph graph;
    Plan plan;
    std::string message;
    Convention convention = Convention::framework;
  };
  const Case cases[] = {
      {"saved activations never made", three, sequence("Fe0 Fe1 Fc2 L B2"),
       "step 5 of the plan: B2 needs the saved activations of layer 2, dropped by Fc2"},
      {"saved activations let go", three, sequence("Fe0 Fe1 Dxbar2 Fe2"),
       "step 4 of the plan: Fe2 needs the input of layer 2, dropped by Dxbar2"},
      {"a backward before its segment is rebuilt", three, sequence("Fc0 Fn1 Fn2 L B2"),
       "step 5 of the plan: B2 needs the saved activations of layer 2, dropped by Fn2"},
      {"an input that Fn freed", three, sequence("Fc0 Fn1 Fn2 L Fe2"),
       "step 5 of the plan: Fe2 needs the input of layer 2, dropped by Fn2"},
      {"an input never made", three, sequence("Fc1"),
       "step 1 of the plan: Fc1 needs the input of layer 1, which nothing has made"},
      {"no loss", three, sequence("Fe0 Fe1 Fe2 B2"),
       "step 4 of the plan: B2 needs the gradient of the output of layer 2, which L has not made yet"},
      {"a loss without an output", three, sequence("Fe0 Fe1 L"),
       "step 3 of the plan: L needs the output of layer 2, which nothing has made"},
      {"backward out of order", three, sequence("Fe0 Fe1 Fe2 L B1"),
       "step 5 of the plan: B1 needs the gradient of the input of layer 2, which B2 has not made yet"},
      {"backward twice", three, sequence("Fe0 Fe1 Fe2 L B2 B2"),
       "step 6 of the plan: B2 runs twice; expected each backward once"},
      {"a backward is missing", three, sequence("Fe0 Fe1 Fe2 L B2 B1"),
       "the plan ends without B0; expected each backward once"},
      {"the loss twice", three, sequence("Fe0 Fe1 Fe2 L L"),
       "step 5 of the plan: L runs twice; expected one loss step"},
      {"a value made twice", three, sequence("Fc0 Fc0"),
       "step 2 of the plan: Fc0 makes the input of layer 1, which is still there"},
      {"saved twice", three, sequence("Fe0 Fe0"),
       "step 2 of the plan: Fe0 makes the saved activations of layer 0, which are still there"},
      {"a discard of nothing", three, sequence("Fe0 Dx1"),
       "step 2 of the plan: the input of layer 1 is not there to discard"},
      {"a drop of nothing", three, sequence("Fc0 Dxbar1"),
       "step 2 of the plan: the saved activations of layer 0 are not there to drop"},
      {"no such layer", three, no_layer, "step 2 of the plan: there is no layer 3; expected 0 to 2"},
      {"a copy", three, copies,
       "step 2 of the plan: layers given by numbers have no copies to move; expected compute and drop steps"},
      {"a gradient that another reader still adds to", graph, sequence("Fe0 Fe1 Fe2 Fe3 L B3 B0"),
       "step 7 of the plan: B a needs the gradient of the output of layer 'a', which B b has not made yet"},
      {"a graph that is not in order", backwards, sequence("Fe0"),
       "layer 'b' reads layer number 2, which does not come before it; layers must stand in a topological order"},
      {"rotor on a graph", graph, sequence("Fe0"),
       "convention: rotor counts chains, and this model is a graph; expected framework", Convention::rotor},
      {"a convention without rules", three, sequence("Fe0"),
       "convention: only framework and rotor have rules for layers so far", Convention::dtr},
      {"FLOPs past 2^63 in one op", huge, sequence("Fe0 Fe1"),
       "step 2 of the plan: Fe1 takes 9223372036854775808 FLOP; expected less than 2^63 in one op"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    std::string message = "accepted";
    try {
      lower(c.graph, c.plan, c.convention, 1);
    } catch (const InputError& error) {
      message = error.message();
    }
    CHECK(message == c.message);
  }
}
