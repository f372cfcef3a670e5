// The order is the product: the same recomputation, moved, costs four times the memory.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/outlines.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/step/lower.hpp"

using namespace tidemark;

TEST_CASE("order: a chain of 64 layers, everything of size 1, in segments of 8") {
  struct Case {
    std::string name;
    PolicyKind kind;
    RecomputeSchedule schedule;
    std::vector<int> nested;
    std::int64_t peak;
  };
  using enum RecomputeSchedule;
  const PolicyKind by_eight = policy::Interval{8};
  const Case cases[] = {
      {"none: the input, 64 saved, two gradients", policy::None{}, per_segment, {}, 1 + 64 + 2},
      // When the last segment is rebuilt: inputs of 8 segments, 8 saved, and B63 has the gradients of both its sides.
      {"per segment", by_eight, per_segment, {}, 8 + 8 + 2},
      {"just in time", by_eight, just_in_time, {}, 8 + 8 + 2},
      {"up front: all 64 are back before the first backward, and the segments' inputs are still there",
       by_eight,
       up_front,
       {},
       8 + 64 + 2},
      {"one region with inner regions of 8: the same inputs, made in backward",
       policy::Whole{},
       per_segment,
       {8},
       8 + 8 + 2},
      // Inputs of 4 regions of 16, of the 3 later inner ones of 4 in the last of them, and 4 saved.
      {"three levels", policy::Whole{}, per_segment, {16, 4}, 4 + 3 + 4 + 2},
      // Inputs at 0, 32, 48, 56, 60, 62, 63, and 1 saved.
      {"halving", policy::Whole{}, per_segment, {32, 16, 8, 4, 2, 1}, 7 + 1 + 2},
  };
  LayerGraph graph = chain_of(64);
  graph.input = graph.output_gradient = Bytes{1};
  for (LayerCost& layer : graph.layers) layer.layer_activation = layer.output = layer.gradient = Bytes{1};
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Policy policy;
    policy.kind = c.kind;
    policy.schedule = c.schedule;
    policy.nested = c.nested;
    const Step step = lower(graph, make_plan(policy, outline(graph)), Convention::framework, 1);
    CHECK(live_peak(step).bytes.count == c.peak);
  }
}
