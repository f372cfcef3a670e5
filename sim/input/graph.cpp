#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <utility>

#include "tidemark/input/layers.hpp"
#include "tidemark/input/quantities.hpp"
#include "tidemark/input/tables.hpp"

namespace tidemark {
namespace {

using Index = std::int32_t;

std::vector<std::string> ids(std::string_view inputs) {
  std::vector<std::string> out;
  std::string id;
  for (const char c : std::string(inputs) + ";") {
    if (c != ';' && c != ' ') {
      id += c;
    } else if (!id.empty()) {
      out.push_back(std::exchange(id, ""));
    }
  }
  return out;
}

std::map<std::string, Index> numbered(const LayerTable& table) {
  std::map<std::string, Index> out;
  for (const LayerRow& row : table.rows) {
    const auto [first, is_new] = out.emplace(row.id, static_cast<Index>(out.size()));
    if (!is_new)
      throw InputError(table.where(row),
                       fmt::format("repeated id '{}'; first given on line {}", shown(std::string_view(row.id)),
                                   table.rows[static_cast<std::size_t>(first->second)].line));
  }
  return out;
}

/// A layer on a cycle among those in `blocked`: going from input to input must come back.
std::string cycle_through(const std::vector<LayerCost>& layers, const std::vector<int>& blocked, Index from) {
  std::vector<Index> path = {from};
  std::vector<bool> seen(layers.size());
  while (!seen[static_cast<std::size_t>(path.back())]) {
    seen[static_cast<std::size_t>(path.back())] = true;
    for (const Index input : layers[static_cast<std::size_t>(path.back())].inputs)
      if (blocked[static_cast<std::size_t>(input)] > 0) {
        path.push_back(input);
        break;
      }
  }
  path.erase(path.begin(), std::ranges::find(path, path.back()));
  std::ranges::reverse(path);
  std::string out;
  constexpr std::size_t most = 8;
  for (std::size_t i = 0; i < path.size() && i < most; ++i)
    out += (i > 0 ? " -> " : "") + shown(std::string_view(layers[static_cast<std::size_t>(path[i])].name));
  return path.size() > most ? out + " -> ..." : out;
}

}  // namespace

std::vector<LayerCost> in_topological_order(std::vector<LayerCost> layers, const std::vector<SourceLoc>& where) {
  const std::size_t count = layers.size();
  std::vector<int> missing(count);
  std::vector<std::vector<Index>> readers(count);
  for (std::size_t i = 0; i < count; ++i)
    for (const Index input : layers[i].inputs) {
      readers[static_cast<std::size_t>(input)].push_back(static_cast<Index>(i));
      ++missing[i];
    }
  std::priority_queue<Index, std::vector<Index>, std::greater<>> ready;
  for (std::size_t i = 0; i < count; ++i)
    if (missing[i] == 0) ready.push(static_cast<Index>(i));
  std::vector<Index> place(count, -1);
  std::vector<LayerCost> out;
  while (!ready.empty()) {
    const auto next = static_cast<std::size_t>(ready.top());
    ready.pop();
    place[next] = static_cast<Index>(out.size());
    out.push_back(layers[next]);
    for (const Index reader : readers[next])
      if (--missing[static_cast<std::size_t>(reader)] == 0) ready.push(reader);
  }
  if (out.size() < count) {
    const auto first = std::ranges::find_if(missing, [](int n) { return n > 0; }) - missing.begin();
    throw InputError(
        where[static_cast<std::size_t>(first)],
        "the layers read each other in a cycle: " + cycle_through(layers, missing, static_cast<Index>(first)));
  }
  for (LayerCost& layer : out)
    for (Index& input : layer.inputs) input = place[static_cast<std::size_t>(input)];
  return out;
}

namespace {

LayerTable read_rows(const std::string& file, bool whole_step) {
  if (whole_step)
    return read_layer_table(file, {"id", "inputs", "output_bytes"},
                            {"name", "type", "forward_flops", "forward_time_ns"});
  return read_layer_table(
      file, {"id", "inputs", "layer_activation_bytes", "output_bytes"},
      {"name", "type", "gradient_bytes", "forward_flops", "backward_flops", "attention_fraction", "forward_time_ns",
       "backward_time_ns", "forward_workspace_bytes", "backward_workspace_bytes", "parameter_bytes"});
}

LayerGraph read_table_graph(const std::string& file, bool whole_step) {
  const LayerTable table = read_rows(file, whole_step);
  const std::map<std::string, Index> number = numbered(table);
  std::vector<LayerCost> layers;
  std::vector<SourceLoc> where;
  for (const LayerRow& row : table.rows) {
    LayerCost layer = row.cost;
    where.push_back(table.where(row));
    if (layer.name.empty()) layer.name = row.id;
    for (const std::string& id : ids(row.inputs)) {
      const auto input = number.find(id);
      if (input == number.end())
        throw InputError(where.back(),
                         fmt::format("column 'inputs' names the unknown layer '{}'", shown(std::string_view(id))));
      if (std::ranges::find(layer.inputs, input->second) != layer.inputs.end())
        throw InputError(where.back(),
                         fmt::format("column 'inputs' names the layer '{}' twice", shown(std::string_view(id))));
      layer.inputs.push_back(input->second);
    }
    if (!whole_step && !table.has("backward_flops")) layer.backward_flops = Int128{2} * layer.forward_flops;
    const auto attention = exact_part(static_cast<std::int64_t>(layer.forward_flops.count), row.attention_fraction);
    if (!attention)
      throw InputError(where.back(), fmt::format("'attention_fraction' of {} FLOP is not a whole number of FLOPs",
                                                 to_string(layer.forward_flops)));
    layer.attention_flops = {*attention};
    layers.push_back(std::move(layer));
  }
  LayerGraph graph;
  graph.layers = in_topological_order(std::move(layers), where);
  return graph;
}

bool is_chain(const LayerGraph& graph) {
  for (std::size_t i = 0; i < graph.layers.size(); ++i)
    if (graph.layers[i].inputs != (i == 0 ? std::vector<Index>{} : std::vector{static_cast<Index>(i - 1)}))
      return false;
  return true;
}

}  // namespace

LayerGraph read_graph(const YamlMap& model, bool whole_step) {
  if (whole_step)
    for (const char* key : {"format", "input", "output_gradient", "loss_time", "loss_workspace"})
      if (const auto field = model.optional(key))
        field->fail(fmt::format("'{}' has no meaning where the rows are the whole step", key));
  const std::string file = path(model.require("file"));
  const std::string format = model.get("format", choice, std::string(file.ends_with(".txt") ? "pipedream" : "table"));
  if (whole_step && format == "pipedream")
    throw InputError({file},
                     "a PipeDream graph lists forward layers; these conventions need a table of the whole step");
  LayerGraph graph = format == "pipedream" ? read_pipedream(file) : read_table_graph(file, whole_step);
  graph.input = model.get("input", size, Bytes{});
  graph.output_gradient = model.get("output_gradient", size, graph.output_gradient);
  graph.loss_time = model.get("loss_time", time, Nanos{});
  graph.loss_workspace = model.get("loss_workspace", size, Bytes{});
  graph.is_whole_step = whole_step;
  graph.is_chain = !whole_step && is_chain(graph);
  return graph;
}

}  // namespace tidemark
