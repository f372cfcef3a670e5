/// How does a test write a chain, and a plan for it, in one line?
#pragma once

#include <cctype>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tidemark/engine/simulate.hpp"
#include "tidemark/plan/plan.hpp"
#include "tidemark/program/layer_graph.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark::test {

using Numbers = std::vector<std::int64_t>;

/// Layers that save `saved[i]` and take boundary `boundaries[i]`; boundaries has one entry more, the chain's output.
inline LayerGraph chain(const Numbers& saved, const Numbers& boundaries) {
  LayerGraph graph;
  graph.is_chain = true;
  graph.input = Bytes{boundaries[0]};
  for (std::size_t i = 0; i < saved.size(); ++i) {
    LayerCost layer;
    if (i > 0) layer.inputs = {static_cast<std::int32_t>(i) - 1};
    layer.layer_activation = Bytes{saved[i]};
    layer.output = Bytes{boundaries[i + 1]};
    graph.layers.push_back(layer);
  }
  return graph;
}

/// Equal layers, whose chain's output counts nothing.
inline LayerGraph equal_chain(int layers, std::int64_t saved, std::int64_t boundary) {
  Numbers boundaries(static_cast<std::size_t>(layers), boundary);
  boundaries.push_back(0);
  return chain(Numbers(static_cast<std::size_t>(layers), saved), boundaries);
}

/// "Fc0 Fn1 L Fe0 ..."; a layer's first run is its forward pass, the rest are recompute. Dx3 discards boundary 3,
/// Dxbar3 what layer 2 saved.
inline Plan sequence(const std::string& text) {
  Plan plan;
  std::vector<bool> seen;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t digits = word.find_first_of("0123456789");
    const std::string kind = word.substr(0, digits);
    PlanStep step;
    if (digits != std::string::npos) step.layer = std::stoi(word.substr(digits));
    if (kind == "L") step.action = Action::loss;
    if (kind == "B") step.action = Action::backward;
    if (kind == "Dx") step.action = Action::discard_input;
    if (kind == "Dxbar") step = {.action = Action::discard_saved, .layer = step.layer - 1, .ops = {}};
    if (kind[0] == 'F') {
      const auto layer = static_cast<std::size_t>(step.layer);
      if (layer >= seen.size()) seen.resize(layer + 1);
      step.action = seen[layer] ? Action::recompute : Action::forward;
      step.keep = kind == "Fe" ? Keep::all : kind == "Fc" ? Keep::input : Keep::none;
      seen[layer] = true;
    }
    plan.steps.push_back(step);
  }
  return plan;
}

/// Segments that begin at `starts`, each rebuilt right before its backward.
inline Plan segments(int layers, const std::vector<int>& starts, bool checkpoint_last) {
  Plan plan;
  const auto end_of = [&](std::size_t s) { return s + 1 < starts.size() ? starts[s + 1] : layers; };
  for (std::size_t s = 0; s < starts.size(); ++s)
    for (int i = starts[s]; i < end_of(s); ++i) {
      const bool whole = !checkpoint_last && s + 1 == starts.size();
      plan.steps.push_back({.layer = i,
                            .ops = {},
                            .keep = whole            ? Keep::all
                                    : i == starts[s] ? Keep::input
                                                     : Keep::none});
    }
  plan.steps.push_back({.action = Action::loss, .ops = {}});
  for (std::size_t s = starts.size(); s-- > 0;) {
    if (checkpoint_last || s + 1 < starts.size())
      for (int i = starts[s]; i < end_of(s); ++i)
        plan.steps.push_back({.action = Action::recompute, .layer = i, .ops = {}, .keep = Keep::all});
    for (int i = end_of(s); i-- > starts[s];) plan.steps.push_back({.action = Action::backward, .layer = i, .ops = {}});
  }
  return plan;
}

/// Segments of `interval` layers.
inline Plan every(int interval, int layers) {
  std::vector<int> starts;
  for (int i = 0; i < layers; i += interval) starts.push_back(i);
  return segments(layers, starts, true);
}

inline std::string joined(const std::vector<std::string>& rows) {
  std::string all;
  for (const std::string& row : rows) all += (all.empty() ? "" : ", ") + row;
  return all;
}

/// "Fe0 10 8": the op, live bytes during it at most, and after it.
inline std::string tide(const Step& step) {
  const Timeline timeline = simulate(step, Device{});
  std::vector<std::string> rows;
  for (std::size_t i = 0; i < step.ops.size(); ++i)
    rows.push_back(step.names[step.ops[i].name] + " " + to_string(timeline.ops[i].peak) + " " +
                   to_string(timeline.ops[i].after));
  return joined(rows);
}

/// A layer of a graph: its name, what it reads, what it saves and its output.
inline LayerCost node(const std::string& name, std::vector<std::int32_t> inputs, std::int64_t saved,
                      std::int64_t output) {
  LayerCost layer;
  layer.name = name;
  layer.inputs = std::move(inputs);
  layer.layer_activation = Bytes{saved};
  layer.output = Bytes{output};
  return layer;
}

/// a -> b -> c -> d, and a -> d: the value of a skips over b and c.
inline LayerGraph skip_graph() {
  LayerGraph graph;
  graph.input = Bytes{1};
  graph.layers = {node("a", {}, 20, 2), node("b", {0}, 40, 4), node("c", {1}, 80, 8), node("d", {0, 2}, 160, 16)};
  return graph;
}

}  // namespace tidemark::test
