#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "tidemark/input/document.hpp"
#include "tidemark/input/layers.hpp"
#include "tidemark/input/quantities.hpp"

namespace tidemark {
namespace {

using Index = std::int32_t;
constexpr std::int64_t max_bytes = 64 << 20;
constexpr std::string_view separator = " -- ";

struct Line {
  std::string_view text;
  SourceLoc where;
  [[noreturn]] void fail(const std::string& message) const { throw InputError(where, message); }
};

struct NodeLine {
  std::string id;
  std::int64_t number = 0;  // PipeDream numbers nodes in the order they ran
  LayerCost cost;
  SourceLoc where;
};

/// The number of "node17".
std::int64_t node_number(const Line& line, std::string_view id) {
  const auto number = id.starts_with("node") ? parse_whole(id.substr(4)) : std::nullopt;
  if (!number) line.fail(fmt::format("expected a node such as 'node4', not '{}'", shown(id)));
  return *number;
}

/// The text of `key=...` up to the next ", " outside brackets.
std::string_view setting(const Line& line, std::string_view settings, std::string_view key) {
  const std::size_t at = settings.find(std::string(key) + "=");
  if (at == std::string_view::npos) line.fail(fmt::format("missing '{}='", key));
  const std::string_view rest = settings.substr(at + key.size() + 1);
  if (!rest.starts_with('[')) return rest.substr(0, rest.find(','));
  const std::size_t close = rest.find(']');
  return close == std::string_view::npos ? rest : rest.substr(0, close + 1);
}

/// A decimal times `unit`, when that is a whole number.
std::int64_t scaled(const Line& line, std::string_view key, std::string_view text, std::int64_t unit) {
  const auto value = parse_decimal(text);
  if (value) {
    const auto count = exact_part(unit, *value);
    if (count) return *count;
  }
  line.fail(fmt::format("'{}' must be a {} number, not '{}'", key, unit == 1 ? "whole" : "decimal", shown(text)));
}

/// One size, or the sum of "[6291456.0; 131072.0]".
std::int64_t bytes(const Line& line, std::string_view settings, std::string_view key) {
  std::string_view text = setting(line, settings, key);
  if (!text.starts_with('[')) return scaled(line, key, text, 1);
  if (!text.ends_with(']') || text.size() < 2) line.fail(fmt::format("'{}' has no closing ']'", key));
  text = text.substr(1, text.size() - 2);
  std::int64_t sum = 0;
  for (bool more = true; more;) {
    const std::size_t end = text.find("; ");
    const auto next = checked_sum(sum, scaled(line, key, text.substr(0, end), 1));
    if (!next) line.fail(fmt::format("'{}' passes 2^63 bytes", key));
    sum = *next;
    more = end != std::string_view::npos;
    if (more) text.remove_prefix(end + 2);
  }
  return sum;
}

std::int64_t nanoseconds(const Line& line, std::string_view settings, std::string_view key) {
  return scaled(line, key, setting(line, settings, key), 1'000'000);
}

NodeLine read_node(const Line& line) {
  const std::size_t first = line.text.find(separator);
  const std::size_t last = line.text.rfind(separator);
  if (first == std::string_view::npos || first == last)
    line.fail("expected 'node1 -- operator -- forward_compute_time=..., ...'");
  NodeLine node;
  node.id = line.text.substr(0, first);
  node.number = node_number(line, node.id);
  node.where = line.where;
  const std::string_view settings = line.text.substr(last + separator.size());
  LayerCost& cost = node.cost;
  cost.name = node.id;
  cost.layer_activation = cost.output = {bytes(line, settings, "activation_size")};
  cost.parameters = {bytes(line, settings, "parameter_size")};
  cost.forward_time = {nanoseconds(line, settings, "forward_compute_time")};
  cost.backward_time = {nanoseconds(line, settings, "backward_compute_time")};
  return node;
}

std::pair<std::string, std::string> read_edge(const Line& line) {
  const std::string_view text = line.text.substr(1);
  const std::size_t at = text.find(separator);
  if (at == std::string_view::npos) line.fail("expected an edge 'node1 -- node2'");
  return {std::string(text.substr(0, at)), std::string(text.substr(at + separator.size()))};
}

std::vector<Line> lines(const std::string& path, std::string_view text) {
  std::vector<Line> out;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    out.push_back({line, {path, ++number, 0}});
    if (line.empty()) out.back().fail("blank line; expected a node or an edge");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

/// The gradient of what a layer reads is as large as that; several inputs have one each.
void set_gradients(LayerGraph& graph) {
  for (LayerCost& layer : graph.layers)
    for (const Index input : layer.inputs) layer.gradient += graph.layers[static_cast<std::size_t>(input)].output;
  graph.output_gradient = graph.layers.back().output;
}

}  // namespace

LayerGraph read_pipedream(const std::string& path) {
  const std::string text = read_text(path, max_bytes, "a PipeDream graph (graph.txt)");
  std::vector<NodeLine> nodes;
  std::vector<Line> edges;
  for (const Line& line : lines(path, text)) {
    if (line.text.starts_with('\t')) {
      edges.push_back(line);
    } else {
      nodes.push_back(read_node(line));
    }
  }
  if (nodes.empty()) throw InputError({path}, "no nodes; expected a PipeDream graph (graph.txt)");
  std::ranges::stable_sort(nodes, {}, &NodeLine::number);
  std::map<std::string, Index> number;
  std::vector<LayerCost> layers;
  std::vector<SourceLoc> where;
  for (const NodeLine& node : nodes) {
    if (!number.emplace(node.id, static_cast<Index>(layers.size())).second)
      throw InputError(node.where, fmt::format("repeated node '{}'", node.id));
    layers.push_back(node.cost);
    where.push_back(node.where);
  }
  for (const Line& line : edges) {
    const auto [from, to] = read_edge(line);
    for (const std::string& id : {from, to})
      if (!number.contains(id)) line.fail(fmt::format("edge to the unknown node '{}'", shown(std::string_view(id))));
    std::vector<Index>& inputs = layers[static_cast<std::size_t>(number[to])].inputs;
    if (std::ranges::find(inputs, number[from]) != inputs.end()) line.fail("repeated edge");
    inputs.push_back(number[from]);
  }
  LayerGraph graph;
  graph.layers = in_topological_order(std::move(layers), where);
  set_gradients(graph);
  return graph;
}

}  // namespace tidemark
