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
