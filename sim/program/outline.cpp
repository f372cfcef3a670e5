#include "tidemark/program/outline.hpp"

namespace tidemark {
namespace {

std::vector<std::int32_t> layers_read(const LayerGraph& graph, std::size_t i) {
  if (!graph.is_chain) return graph.layers[i].inputs;
  if (i == 0) return {};
  return {static_cast<std::int32_t>(i) - 1};
}

OutlineLayer outline_layer(const LayerGraph& graph, std::size_t i, const Outline& before) {
  const LayerCost& cost = graph.layers[i];
  OutlineLayer layer{cost.name.empty() ? std::to_string(i) : cost.name, cost.type, true, cost.layer_activation, {}};
  std::vector<OpRef> inputs;
  for (const std::int32_t read : layers_read(graph, i)) {
    if (read < 0 || read >= static_cast<std::int32_t>(i)) continue;  // lowering refuses it with its place
    inputs.push_back({read, static_cast<std::int32_t>(before.layers[static_cast<std::size_t>(read)].ops.size()) - 1});
  }
  const Flops attention = cost.attention_flops;
  if (attention.count <= 0 || attention >= cost.forward_flops) {
    layer.ops.push_back({layer.name, cost.type, cost.output, cost.forward_flops, cost.layer_activation, inputs});
    layer.ops.back().saved = {{static_cast<std::int32_t>(i), cost.layer_activation}};
    return layer;
  }
  layer.ops.push_back({"attention", "attention", {}, attention, {}, inputs});
  inputs.push_back({static_cast<std::int32_t>(i), 0});
  layer.ops.push_back({"rest", cost.type == "attention" ? "other" : cost.type, cost.output,
                       cost.forward_flops - attention, cost.layer_activation, inputs});
  layer.ops.back().saved = {{static_cast<std::int32_t>(i), cost.layer_activation}};
  return layer;
}

}  // namespace

Outline outline(const LayerGraph& graph) {
  Outline out;
  out.is_chain = graph.is_chain;
  out.saves_as_one = true;
  out.is_whole_step = graph.is_whole_step;
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    out.layers.push_back(outline_layer(graph, i, out));
    out.step_flops = out.step_flops + graph.layers[i].forward_flops + graph.layers[i].backward_flops;
  }
  return out;
}

}  // namespace tidemark
