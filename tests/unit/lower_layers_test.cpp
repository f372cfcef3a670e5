#include <doctest/doctest.h>

#include <algorithm>

#include "support/layers.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/program/outline.hpp"
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

TEST_CASE("order is the product: 64 equal layers in segments of 8") {
  LayerGraph graph = equal_chain(64, 1, 1);
  graph.layers.back().output = graph.output_gradient = Bytes{1};
  for (LayerCost& layer : graph.layers) layer.gradient = Bytes{1};
  using Schedule = RecomputeSchedule;
  struct Case {
    std::string name;
    PolicyKind kind;
    Schedule schedule;
    std::int64_t peak;
  };
  const Case cases[] = {
      // x0, 64 saved, the gradients of the output and of the last layer's input
      {"nothing recomputed", policy::None{}, Schedule::per_segment, 1 + 64 + 2},
      // 8 boundaries, 8 saved, 2 gradients
      {"each segment right before its backward", policy::Interval{8}, Schedule::per_segment, 8 + 8 + 2},
      {"each layer right before its backward: on a chain the same", policy::Interval{8}, Schedule::just_in_time,
       8 + 8 + 2},
      // 8 boundaries, 64 saved, 2 gradients
      {"all up front: nothing saved", policy::Interval{8}, Schedule::up_front, 8 + 64 + 2},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Policy policy;
    policy.kind = c.kind;
    policy.schedule = c.schedule;
    CHECK(live_peak(framework(graph, make_plan(policy, outline(graph)))).bytes == Bytes{c.peak});
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
    CHECK(tide(framework(graph, sequence(c.sequence))) == joined(c.rows));
  }
}

TEST_CASE("a used boundary that is held counts until the step ends") {
  //            x0 1 | x1 2      | x2 4      | g2 0, -x2 | Fe1 20    | B1 -saved1, x1 held | Fe0 10    | B0: all goes
  Plan plan = sequence("Fc0 Fc1 L Fe1 B1 Fe0 B0");
  const LayerGraph graph = chain({10, 20}, {1, 2, 4});
  CHECK(tide(framework(graph, plan)) ==
        joined({"Fc0 3 3", "Fc1 7 7", "L 7 3", "Fe1 23 23", "B1 23 1", "Fe0 11 11", "B0 11 0"}));
  plan.hold_boundaries = true;
  CHECK(tide(framework(graph, plan)) ==
        joined({"Fc0 3 3", "Fc1 7 7", "L 7 3", "Fe1 23 23", "B1 23 3", "Fe0 13 13", "B0 13 0"}));
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
    CHECK(tide(framework(graph, c.plan)) == joined(c.rows));
  }
}

TEST_CASE("graphs: a layer that reads past its region keeps that, and not what its own region makes") {
  // a | b c d are one region: d reads c inside it and a outside. All is rebuilt up front, a as well.
  const LayerGraph graph = skip_graph();
  Plan plan = test::segments(4, {0, 1}, true);
  const Keep keep[] = {Keep::input, Keep::input, Keep::none, Keep::input};
  for (std::int32_t i = 0; i < 4; ++i) {
    plan.steps[static_cast<std::size_t>(i)].keep = keep[i];
    plan.steps[static_cast<std::size_t>(i)].region = i == 0 ? 0 : 1;
  }
  std::ranges::stable_sort(plan.steps.begin() + 5, plan.steps.end(), {},
                           [](const PlanStep& s) { return s.action == Action::backward; });
  std::ranges::sort(plan.steps.begin() + 5, plan.steps.begin() + 9, {}, &PlanStep::layer);
  // b and d keep a 2 until their backward, though a is rebuilt; c 8 goes with d's forward, b 4 with c's.
  CHECK(tide(framework(graph, plan)) ==
        joined({"Fc a 3 3", "Fc b 7 7", "Fn c 15 11", "Fc d 27 19", "L 35 19", "Fe a 39 39", "Fe b 79 79",
                "Fe c 159 159", "Fe d 319 319", "B d 329 153", "B c 157 69", "B b 69 23", "B a 23 0"}));
}

TEST_CASE("graphs: gradients take the size of their value, or what the table gives") {
  LayerGraph graph = skip_graph();
  const Plan plan = test::segments(4, {0}, false);
  graph.layers[1].gradient = Bytes{1000};
  graph.layers[3].gradient = Bytes{500};
  graph.output_gradient = Bytes{7};
  // gd 7 | ga 1000 (the larger of what b and d give), gc 500 | gb 0, none given | b adds to ga
  CHECK(tide(framework(graph, plan)) == joined({"Fe a 21 21", "Fe b 61 61", "Fe c 141 141", "Fe d 301 301", "L 308 308",
                                                "B d 1808 1641", "B c 1641 1061", "B b 1061 1021", "B a 1021 0"}));
}

TEST_CASE("parameters live from the start, and their gradients until the next step zeroes them") {
  LayerGraph graph = chain({10, 20}, {1, 2, 4});
  graph.layers[0].parameters = Bytes{100};
  graph.layers[1].parameters = Bytes{200};
  graph.layers[0].gradient = Bytes{1000};
  const Step step = framework(graph, sequence("Fe0 Fe1 L B1 B0"), 2);
  // 300 + x0 1 | .. | +200 | +100 +1000, -x0 | zero_grad -200 -100 -1000, new x0 1
  CHECK(tide(step) == joined({"Fe0 311 311", "Fe1 331 331", "L 331 331", "B1 531 511", "B0 1611 1600", "Fe0 1600 311",
                              "Fe1 331 331", "L 331 331", "B1 531 511", "B0 1611 1600"}));
  CHECK(step.steps == 2);
  CHECK(step.ops[4].step == 0);
  CHECK(step.ops[5].step == 1);
  CHECK(tide(lower(graph, sequence("Fe0 Fe1 L B1 B0"), Convention::rotor, 1)) ==
        joined({"Fe0 11 11", "Fe1 31 31", "L 35 35", "B1 37 13", "B0 14 1"}));
}
