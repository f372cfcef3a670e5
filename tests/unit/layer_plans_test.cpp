#include <doctest/doctest.h>

#include <array>

#include "support/layers.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/step/layer_counts.hpp"
#include "tidemark/step/lower.hpp"

using namespace tidemark;
using test::chain;
using test::equal_chain;
using test::every;
using test::joined;
using test::sequence;
using test::skip_graph;
using test::tide;

namespace {

Step framework(const LayerGraph& graph, const Plan& plan, int steps = 1) {
  return lower(graph, plan, Convention::framework, steps);
}

Flops flops_in(const Step& step, Phase phase) {
  Flops total;
  for (const StepOp& op : step.ops)
    if (op.phase == phase) total += Flops{op.flops};
  return total;
}

}  // namespace

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
      {"attention recomputed, 0.15 of a forward: 3.15 L f", selective, 1500, 10 * (7 + 1 + 14)},
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

TEST_CASE("selective plans: what a dropped layer holds") {
  LayerGraph graph = chain({10, 20}, {1, 2, 4});
  LayerGraph parts = graph;
  for (LayerCost& layer : parts.layers) {
    layer.forward_flops = Flops{10};
    layer.attention_flops = Flops{3};
  }
  const auto drop = [](std::int32_t layer, std::vector<std::int32_t> ops) {
    return PlanStep{.action = Action::drop, .layer = layer, .ops = std::move(ops)};
  };
  const auto again = [](std::int32_t layer, std::vector<std::int32_t> ops) {
    return PlanStep{.action = Action::recompute, .layer = layer, .ops = std::move(ops)};
  };
  const auto at = [](PlanStep step, std::int32_t layer) {
    step.layer = layer;
    return step;
  };
  const auto [fe0, fe1, l, b1, b0] =
      std::array<PlanStep, 5>{{sequence("Fe0").steps[0], sequence("Fe1").steps[0], sequence("L").steps[0],
                               sequence("B1").steps[0], sequence("B0").steps[0]}};
  PlanStep b1_rest = b1, b1_attention = b1;
  b1_rest.ops = {1};
  b1_attention.ops = {0};
  struct Case {
    std::string name;
    LayerGraph graph;
    std::vector<PlanStep> steps;
    std::vector<std::string> rows;
  };
  const Case cases[] = {
      {"dropped at once and run again: as a segment of its own",
       graph,
       {fe0, drop(0, {}), fe1, drop(1, {0}), l, again(1, {0}), b1, again(0, {}), b0},
       {"Fc0 3 3", "Fc1 7 7", "L 7 3", "Fe1 23 23", "B1 23 1", "Fe0 11 11", "B0 11 0"}},
      {"dropped and not run again: kept, with all it saved",
       graph,
       {fe0, drop(0, {0}), fe1, l, b1, b0},
       {"Fe0 11 11", "Fe1 31 31", "L 31 31", "B1 31 11", "B0 11 0"}},
      // saved0 10 gives way to boundary1 2 once Fe1 has run
      {"dropped later: its output stays for its reader's backward",
       graph,
       {fe0, fe1, drop(0, {}), l, b1, again(0, {}), b0},
       {"Fe0 11 11", "Fe1 31 23", "L 23 23", "B1 23 1", "Fe0 11 11", "B0 11 0"}},
      {"dropped when nobody will read its output: nothing stays",
       graph,
       {fe0, fe1, l, b1, drop(0, {}), again(0, {}), b0},
       {"Fe0 11 11", "Fe1 31 31", "L 31 31", "B1 31 1", "Fe0 11 11", "B0 11 0"}},
      // a 20 gives way to its output 2, which b and d read
      {"dropped later in a graph: its output stays for both its readers",
       skip_graph(),
       {fe0, fe1, at(fe1, 2), at(fe1, 3), drop(0, {}), l, at(b1, 3), at(b1, 2), b1, again(0, {}), b0},
       {"Fe a 21 21", "Fe b 61 61", "Fe c 141 141", "Fe d 301 283", "L 299 299", "B d 309 133", "B c 137 49",
        "B b 49 3", "Fe a 23 23", "B a 23 0"}},
      {"attention alone: its bytes are not given apart, so they stay",
       parts,
       {fe0, drop(0, {0}), fe1, l, b1, again(0, {0}), b0},
       {"Fe0 11 11", "Fe1 31 31", "L 31 31", "B1 31 11", "Fe0[0] 11 11", "B0 11 0"}},
      {"the rest, which saves all: as a segment of its own",
       parts,
       {fe0, drop(0, {1}), fe1, l, b1, again(0, {1}), b0},
       {"Fc0 3 3", "Fe1 23 23", "L 23 23", "B1 23 1", "Fe0[1] 11 11", "B0 11 0"}},
      {"a backward in parts is one op, where the last part stands",
       parts,
       {fe0, fe1, drop(1, {0}), l, b1_rest, again(1, {0}), b1_attention, b0},
       {"Fe0 11 11", "Fe1 31 31", "L 31 31", "Fe1[0] 31 31", "B1 31 11", "B0 11 0"}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Plan plan;
    plan.steps = c.steps;
    CHECK(tide(framework(c.graph, plan)) == joined(c.rows));
  }
}

TEST_CASE("the parts of a layer add up to the whole") {
  struct Case {
    std::string name;
    std::int64_t flops, attention, time;
    std::vector<std::int32_t> ops;
    LayerPart part;
    LayerWork work;
  };
  const Case cases[] = {
      {"all ops", 10, 3, 7, {}, LayerPart::whole, {{10}, {7}}},
      {"both ops by number", 10, 3, 7, {0, 1}, LayerPart::whole, {{10}, {7}}},
      {"attention, its time rounded down", 10, 3, 7, {0}, LayerPart::attention, {{3}, {2}}},
      {"the rest of it", 10, 3, 7, {1}, LayerPart::rest, {{7}, {5}}},
      {"no attention given: one op", 10, 0, 7, {0}, LayerPart::whole, {{10}, {7}}},
      {"all of it attention: one op", 10, 10, 7, {0}, LayerPart::whole, {{10}, {7}}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    LayerCost layer;
    layer.forward_flops = Flops{c.flops};
    layer.attention_flops = Flops{c.attention};
    layer.forward_time = Nanos{c.time};
    CHECK(part_of(layer, c.ops) == c.part);
    CHECK(forward_work(layer, c.part) == c.work);
  }
}

TEST_CASE("a plan that reads what is not there is refused, naming its step") {
  const LayerGraph three = chain({10, 20, 30}, {1, 2, 4, 8});
  LayerGraph graph = skip_graph();
  LayerGraph backwards = skip_graph();
  backwards.layers[1].inputs = {2};
  LayerGraph huge = three;
  huge.layers[1].forward_flops = Flops{Int128{1} << 63};
  LayerGraph in_parts = three;
  in_parts.layers[0].forward_flops = Flops{10};
  in_parts.layers[0].attention_flops = Flops{3};
  Plan parts_of_forward = sequence("Fe0");
  parts_of_forward.steps[0].ops = {0};
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
      {"rotor's Fn frees what the layer before saved", three, sequence("Fe0 Fn1 Fe2 L B2 Fe1"),
       "step 6 of the plan: Fe1 needs the input of layer 1, dropped by Fn1", Convention::rotor},
      {"a framework's does not", three, sequence("Fe0 Fn1 Fe2 L B2 Fe1 B1"),
       "the plan ends without B0; expected each backward once"},
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
      {"a forward in parts", in_parts, parts_of_forward,
       "step 1 of the plan: layer 0 runs forward in parts; expected the whole layer"},
      {"a copy of what nothing made", three, copies,
       "step 2 of the plan: Out1 needs the saved activations of layer 1, which nothing has made"},
      {"a gradient that another reader still adds to", graph, sequence("Fe0 Fe1 Fe2 Fe3 L B3 B0"),
       "step 7 of the plan: B a needs the gradient of the output of layer 'a', which B b has not made yet"},
      {"a graph that is not in order", backwards, sequence("Fe0"),
       "layer 'b' reads layer number 2, which does not come before it; layers must stand in a topological order"},
      {"rotor on a graph", graph, sequence("Fe0"),
       "convention: rotor counts chains, and this model is a graph; expected framework", Convention::rotor},
      {"a convention without rules", three, sequence("Fe0"), "convention: revolve has no rules for layers yet",
       Convention::revolve},
      {"a convention of whole steps", three, sequence("Fe0"),
       "conventions checkmate and dtr, and no others, count graphs whose rows are the whole step", Convention::dtr},
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
