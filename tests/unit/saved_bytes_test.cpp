#include "tidemark/study/saved_bytes.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace tidemark;

namespace {

struct Given {
  std::int64_t bytes = 0, worth = 0;
  bool is_block = true;
};

/// Layers of one op.
Outline outline_of(const std::vector<Given>& layers) {
  Outline out;
  for (const Given& layer : layers) {
    OutlineOp op;
    op.saved_bytes = Bytes{layer.bytes};
    op.forward_flops = Flops{layer.worth};
    out.layers.push_back({"layer", "other", layer.is_block, Bytes{layer.bytes}, {op}});
  }
  return out;
}

/// By layer: k is kept, r runs again.
std::string letters(const Choices& choices) {
  std::string out;
  for (const auto& ops : choices.ops) out += ops.front() == OpChoice::rerun ? 'r' : 'k';
  return out;
}

}  // namespace

TEST_CASE("knapsack: what is worth most within the bytes is kept") {
  struct Case {
    std::string name;
    std::vector<Given> layers;
    std::int64_t most;
    std::string kept;
    std::int64_t saved;
  };
  const Case cases[] = {
      {"the two that are worth most", {{3, 4}, {4, 5}, {5, 7}}, 8, "krk", 8},
      {"one is worth more than two", {{3, 1}, {5, 9}, {3, 1}}, 6, "rkr", 5},
      {"nothing fits", {{3, 1}, {5, 9}}, 2, "rr", 0},
      {"all fit", {{3, 1}, {5, 9}}, 8, "kk", 8},
      {"a byte counts as a unit that is begun", {{1001, 1}, {1000, 1}}, 2000, "rk", 1000},
      {"only blocks run again", {{3, 1, false}, {5, 9}}, 0, "kr", 0},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Outline outline = outline_of(c.layers);
    const SavedChoice made = knapsack(outline, worth_of(outline, nullptr), Bytes{c.most});
    CHECK(letters(made.choices) == c.kept);
    CHECK(made.saved == Bytes{c.saved});
    std::string regions(c.layers.size(), 'k');
    for (const auto& region : made.choices.regions) regions.at(static_cast<std::size_t>(region.front())) = 'r';
    CHECK(regions == c.kept);
  }
}

TEST_CASE("knapsack: layers with times are worth those") {
  const Outline outline = outline_of({{1, 7}, {1, 8}});
  LayerGraph graph;
  graph.layers.resize(2);
  CHECK(worth_of(outline, &graph) == std::vector<std::int64_t>{7, 8});
  graph.layers[1].forward_time = Nanos{5};
  CHECK(worth_of(outline, &graph) == std::vector<std::int64_t>{0, 5});
}

TEST_CASE("greedy segments: one ends where its blocks would save more") {
  using Regions = std::vector<std::vector<std::int32_t>>;
  const Outline outline = outline_of({{4, 0}, {4, 0}, {4, 0}});
  CHECK(greedy_segments(outline, Bytes{8}).regions == Regions{{0, 1}, {2}});
  CHECK(greedy_segments(outline, Bytes{7}).regions == Regions{{0}, {1}, {2}});
  CHECK(greedy_segments(outline, Bytes{1}).regions == Regions{{0}, {1}, {2}});
  // segments are of neighbours
  CHECK(greedy_segments(outline_of({{4, 0}, {4, 0, false}, {4, 0}}), Bytes{99}).regions == Regions{{0}, {2}});
  CHECK(saved_by_blocks(outline_of({{4, 0}, {4, 0, false}, {4, 0}})) == Bytes{8});
}
