#include "tidemark/step/layer_counts.hpp"

#include <algorithm>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

std::vector<std::int32_t> values_read(const LayerGraph& graph, std::size_t layer) {
  const auto self = static_cast<std::int32_t>(layer);
  if (graph.is_chain) return {self};
  std::vector<std::int32_t> values;
  for (const std::int32_t input : graph.layers[layer].inputs) {
    if (input < 0 || input >= self)
      throw InputError(layer_label(graph, self) + " reads layer number " + std::to_string(input) +
                       ", which does not come before it; layers must stand in a topological order");
    values.push_back(input + 1);
  }
  if (values.empty()) return {0};
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

void count_chain_gradients(const LayerGraph& graph, LayerCounts& out) {
  for (std::size_t i = 0; i < graph.layers.size(); ++i) out.gradient[i] = graph.layers[i].gradient;
  out.gradient.back() = graph.output_gradient;
}

void count_graph_gradients(const LayerGraph& graph, LayerCounts& out) {
  const bool given = std::ranges::any_of(graph.layers, [](const LayerCost& layer) { return layer.gradient.count > 0; });
  if (!given) {
    out.gradient = out.plain;
    out.gradient[0] = {};
  } else {
    for (std::size_t v = 0; v < out.gradient.size(); ++v)
      for (const std::int32_t reader : out.readers[v])
        out.gradient[v] = std::max(out.gradient[v], graph.layers[static_cast<std::size_t>(reader)].gradient);
  }
  for (std::size_t v = 1; v < out.gradient.size(); ++v)
    if (out.readers[v].empty())
      out.gradient[v] = graph.output_gradient.count > 0 ? graph.output_gradient : out.plain[v];
}

}  // namespace

LayerPart part_of(const LayerCost& layer, const std::vector<std::int32_t>& ops) {
  const bool has_parts = layer.attention_flops.count > 0 && layer.attention_flops < layer.forward_flops;
  if (!has_parts || ops.size() != 1) return LayerPart::whole;
  return ops.front() == 0 ? LayerPart::attention : LayerPart::rest;
}

LayerWork forward_work(const LayerCost& layer, LayerPart part) {
  const LayerWork whole{layer.forward_flops, layer.forward_time};
  if (part == LayerPart::whole) return whole;
  const Int128 scaled = Int128{layer.forward_time.count} * layer.attention_flops.count;
  const Nanos attention_time{static_cast<std::int64_t>(scaled / layer.forward_flops.count)};
  if (part == LayerPart::attention) return {layer.attention_flops, attention_time};
  return {whole.flops - layer.attention_flops, whole.time - attention_time};
}

std::string layer_op_name(const LayerGraph& graph, std::string_view kind, std::int32_t layer, LayerPart part) {
  const std::string suffix = part == LayerPart::whole ? "" : part == LayerPart::attention ? "[0]" : "[1]";
  if (graph.is_chain) return std::string(kind) + std::to_string(graph.first + layer) + suffix;
  const std::string& name = graph.layers[static_cast<std::size_t>(layer)].name;
  return std::string(kind) + " " + (name.empty() ? std::to_string(layer) : name) + suffix;
}

std::string layer_label(const LayerGraph& graph, std::int32_t layer) {
  const std::string& name = graph.layers[static_cast<std::size_t>(layer)].name;
  return graph.is_chain || name.empty() ? "layer " + std::to_string(graph.first + layer) : "layer '" + name + "'";
}

LayerCounts count_layers(const LayerGraph& graph, Convention convention) {
  const bool rotor = convention == Convention::rotor;
  if (convention == Convention::revolve) throw InputError("convention: revolve has no rules for layers yet");
  const bool whole_step = convention == Convention::checkmate || convention == Convention::dtr;
  if (whole_step != graph.is_whole_step)
    throw InputError("conventions checkmate and dtr, and no others, count graphs whose rows are the whole step");
  if (rotor && !graph.is_chain)
    throw InputError("convention: rotor counts chains, and this model is a graph; expected framework");

  LayerCounts out;
  out.readers.resize(graph.layers.size() + 1);
  out.gradient.resize(graph.layers.size() + 1);
  out.plain.push_back(graph.input);
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    const LayerCost& layer = graph.layers[i];
    out.names.push_back(layer.name.empty() ? std::to_string(i) : layer.name);
    out.inputs.push_back(values_read(graph, i));
    for (const std::int32_t value : out.inputs.back())
      out.readers[static_cast<std::size_t>(value)].push_back(static_cast<std::int32_t>(i));
    out.plain.push_back(layer.output);
    out.saved.push_back(layer.layer_activation);
    out.parameters.push_back(rotor || whole_step ? Bytes{} : layer.parameters);
    out.has_times = out.has_times || layer.forward_time.count > 0 || layer.backward_time.count > 0;
  }
  out.has_times = out.has_times || graph.loss_time.count > 0;
  if (rotor)
    out.gradient = out.plain;
  else if (graph.is_chain)
    count_chain_gradients(graph, out);
  else if (!whole_step)
    count_graph_gradients(graph, out);
  return out;
}

}  // namespace tidemark
