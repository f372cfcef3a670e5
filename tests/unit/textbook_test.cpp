#include "tidemark/report/textbook.hpp"

#include <doctest/doctest.h>

#include "support/tide.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/step/lower.hpp"

using namespace tidemark;

namespace {

constexpr std::int64_t MB = 1'000'000;

/// L equal layers, nothing but what a layer saves and its input.
LayerGraph bare_chain(int layers, std::int64_t layer, std::int64_t boundary) {
  LayerGraph chain;
  chain.is_chain = true;
  chain.input = Bytes{boundary * MB};
  for (int i = 0; i < layers; ++i) {
    LayerCost cost;
    cost.layer_activation = Bytes{layer * MB};
    if (i + 1 < layers) cost.output = Bytes{boundary * MB};
    chain.layers.push_back(cost);
  }
  return chain;
}

TextbookComparison compared(const LayerGraph& chain, const Textbook& textbook, bool hold) {
  Policy policy;
  policy.kind = policy::Interval{static_cast<int>(textbook.interval)};
  policy.hold_boundaries = hold;
  const Step step = lower(chain, make_plan(policy, outline(chain)), Convention::framework, 1);
  return compare_with_textbook(textbook, step, peak_storages(step, simulate(step, {})));
}

}  // namespace

TEST_CASE("textbook: the formula") {
  struct Case {
    std::string name;
    Textbook textbook;
    Bytes peak;
  };
  const Case cases[] = {
      {"K divides L", {36, 6, {100}, {10}}, {660}},
      {"each layer a segment", {32, 1, {120}, {15}}, {600}},
      {"one segment", {24, 24, {80}, {8}}, {1928}},
      {"a short last segment", {30, 8, {50}, {5}}, {420}},
      {"K above L, as the formula is applied", {4, 6, {50}, {5}}, {305}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(textbook_peak(c.textbook) == c.peak);
  }
}

TEST_CASE("textbook: where the simulated chain differs, and why") {
  struct Case {
    std::string name;
    int layers, interval;
    std::int64_t layer, boundary;
    bool hold;
    Bytes peak;
    std::vector<TextbookReason> reasons;
  };
  const Case cases[] = {
      {"the same", 36, 6, 100, 10, false, {660 * MB}, {}},
      {"the same, held", 30, 8, 50, 5, true, {420 * MB}, {}},
      {"a short last segment",
       30,
       8,
       50,
       5,
       false,
       {415 * MB},
       {{{-5 * MB},
         "3 of 4 boundaries: the last segment has 6 of 8 layers, and its boundary is gone when a full one is "
         "rebuilt"}}},
      {"interval above the layer count",
       4,
       6,
       50,
       5,
       false,
       {205 * MB},
       {{{-100 * MB}, "a segment has no more than the model's 4 layers; the formula counts 6"}}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const LayerGraph chain = bare_chain(c.layers, c.layer, c.boundary);
    const Textbook textbook{c.layers, c.interval, {c.layer * MB}, {c.boundary * MB}};
    const TextbookComparison compared_ = compared(chain, textbook, c.hold);
    CHECK(compared_.reasons == c.reasons);
    CHECK(compared_.boundaries + compared_.layers + compared_.other == c.peak);
  }
}

TEST_CASE("textbook: reasons add up to the difference, whatever else is alive") {
  LayerGraph chain = bare_chain(9, 100, 10);
  chain.output_gradient = Bytes{3 * MB};
  for (LayerCost& layer : chain.layers) {
    layer.parameters = Bytes{7 * MB};
    layer.gradient = Bytes{10 * MB};
    layer.backward_workspace = Bytes{2 * MB};
  }
  for (const bool hold : {false, true})
    for (const int interval : {1, 2, 3, 4, 9}) {
      CAPTURE(interval);
      const TextbookComparison c = compared(chain, {9, interval, {100 * MB}, {10 * MB}}, hold);
      Bytes sum;
      for (const TextbookReason& reason : c.reasons) sum += reason.bytes;
      CHECK(c.formula + sum == c.boundaries + c.layers + c.other);
      CHECK(c.reasons.size() >= 3);
    }
}

TEST_CASE("textbook: a boundary is what a recompute starts from, of a boundary's size") {
  // x, the generator's state and a weight are all read again; only x is a boundary, and only t is a layer's.
  test::HandStep made;
  made.initial("x", 10).is(Category::input).initial("state", 1).is(Category::activation);
  made.initial("w", 10).is(Category::parameter);
  made.op("A", 1).phase(Phase::recompute).alloc("t", 50).alloc("scratch", 10).is(Category::temporary);
  made.run({"x", "state", "w", "t", "scratch"});
  const TextbookComparison c =
      compare_with_textbook({1, 1, {50}, {10}}, made.step, peak_storages(made.step, simulate(made.step, {})));
  CHECK(c.boundaries_alive == 1);
  CHECK(c.boundaries == Bytes{10});
  CHECK(c.layers == Bytes{50});
  CHECK(c.reasons == std::vector<TextbookReason>{{{10}, "parameter, which the formula leaves out"},
                                                 {{1}, "activation, which the formula leaves out"},
                                                 {{10}, "temporary, which the formula leaves out"}});
}
