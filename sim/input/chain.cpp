#include <fmt/core.h>

#include <array>
#include <optional>
#include <utility>

#include "tidemark/input/layers.hpp"
#include "tidemark/input/quantities.hpp"
#include "tidemark/input/tables.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t max_layers = 1'000'000;

/// Quantities that a scenario gives per layer, and their columns in a file.
template <class T>
struct PerLayer {
  std::string_view key;
  std::string_view column;
  T LayerCost::*member;
};
constexpr std::array<PerLayer<Bytes>, 5> sizes = {{
    {"layer_activation", "layer_activation_bytes", &LayerCost::layer_activation},
    {"forward_workspace", "forward_workspace_bytes", &LayerCost::forward_workspace},
    {"backward_workspace", "backward_workspace_bytes", &LayerCost::backward_workspace},
    {"gradient", "gradient_bytes", &LayerCost::gradient},
    {"weight_activation", "weight_activation_bytes", &LayerCost::weight_activation},
}};
constexpr std::array<PerLayer<Flops>, 2> flop_counts = {{
    {"forward_flops", "forward_flops", &LayerCost::forward_flops},
    {"backward_flops", "backward_flops", &LayerCost::backward_flops},
}};
constexpr std::array<PerLayer<Nanos>, 3> times = {{
    {"forward_time", "forward_time_ns", &LayerCost::forward_time},
    {"backward_time", "backward_time_ns", &LayerCost::backward_time},
    {"weight_time", "weight_time_ns", &LayerCost::weight_time},
}};

class ChainReader {
 public:
  explicit ChainReader(const YamlMap& model) : model_(model) {}

  LayerGraph read() {
    read_file();
    count_layers();
    for (const auto& column : sizes) {
      if (column.key == "gradient") continue;  // one entry more
      each(column.key, size, [&](LayerCost& layer, Bytes value) { layer.*column.member = value; });
    }
    for (const auto& column : flop_counts)
      each(column.key, flops, [&](LayerCost& layer, Flops value) { layer.*column.member = value; });
    for (const auto& column : times)
      each(column.key, time, [&](LayerCost& layer, Nanos value) { layer.*column.member = value; });
    each("type", choice, [](LayerCost& layer, const std::string& value) { layer.type = value; });
    read_boundaries();
    read_gradients();
    default_backward_flops();
    read_attention();
    finish();
    return std::move(graph_);
  }

 private:
  std::size_t count() const { return graph_.layers.size(); }

  bool in_file(std::string_view column) const { return table_ && table_->has(column); }

  void read_file() {
    const auto file = model_.optional("file");
    if (!file) return;
    table_ =
        read_layer_table(path(*file), {"layer_activation_bytes", "boundary_bytes"},
                         {"name", "type", "gradient_bytes", "forward_flops", "backward_flops", "attention_fraction",
                          "forward_time_ns", "backward_time_ns", "forward_workspace_bytes", "backward_workspace_bytes",
                          "parameter_bytes", "weight_time_ns", "weight_activation_bytes"});
    for (const LayerRow& row : table_->rows) graph_.layers.push_back(row.cost);
    for (const Field& field : model_.fields())
      for (const char* unit : {"", "_bytes", "_ns"})
        if (field.key->name != "layers" && in_file(std::string(field.key->name) + unit))
          field.fail(
              fmt::format("'{}' is given here and in {}; expected one of the two", field.key->name, table_->file));
  }

  void count_layers() {
    if (!table_) {
      graph_.layers.resize(static_cast<std::size_t>(positive_integer(model_.require("layers"), max_layers)));
    } else if (const auto layers = model_.optional("layers")) {
      if (static_cast<std::size_t>(positive_integer(*layers, max_layers)) != count())
        layers->fail(fmt::format("'layers' is {}, but {} has {} rows", layers->value->text, table_->file, count()));
    }
  }

  /// The field's values, one a layer; with `extra`, a list may have one more.
  std::vector<Field> values(const Field& field, bool extra) const {
    std::vector<Field> out = items(field);
    if (field.value->kind != DocNode::Kind::list) return std::vector<Field>(count(), field);
    if (out.size() == count() || (extra && out.size() == count() + 1)) return out;
    field.fail(fmt::format("'{}' has {} entries; expected one value, or {}{} for {} layers", field.key->name,
                           out.size(), count(), extra ? fmt::format(" or {}", count() + 1) : "", count()));
  }

  template <class Read, class Store>
  void each(std::string_view key, Read as_value, Store store) {
    const auto field = model_.optional(key);
    if (!field) return;
    const std::vector<Field> given = values(*field, false);
    for (std::size_t i = 0; i < count(); ++i) store(graph_.layers[i], as_value(given[i]));
  }

  /// Boundary i is the input of layer i and the output of layer i - 1.
  void read_boundaries() {
    std::vector<Bytes> boundaries(count() + 1);
    if (const auto field = model_.optional("boundary")) {
      const std::vector<Field> given = values(*field, true);
      for (std::size_t i = 0; i < given.size(); ++i) boundaries[i] = size(given[i]);
    } else if (table_) {
      for (std::size_t i = 0; i < count(); ++i) boundaries[i] = table_->rows[i].boundary;
    }
    graph_.input = boundaries[0];
    for (std::size_t i = 0; i < count(); ++i) graph_.layers[i].output = boundaries[i + 1];
  }

  void read_gradients() {
    const auto field = model_.optional("gradient");
    if (!field) return;
    const std::vector<Field> given = values(*field, true);
    for (std::size_t i = 0; i < count(); ++i) graph_.layers[i].gradient = size(given[i]);
    if (given.size() > count()) graph_.output_gradient = size(given.back());
  }

  void default_backward_flops() {
    if (model_.has("backward_flops") || in_file("backward_flops")) return;
    for (LayerCost& layer : graph_.layers) layer.backward_flops = Int128{2} * layer.forward_flops;
  }

  void read_attention() {
    if (in_file("attention_fraction")) {
      for (std::size_t i = 0; i < count(); ++i)
        set_attention(graph_.layers[i], table_->rows[i].attention_fraction, table_->where(table_->rows[i]));
    } else if (const auto field = model_.optional("attention_fraction")) {
      const std::vector<Field> given = values(*field, false);
      for (std::size_t i = 0; i < count(); ++i) set_attention(graph_.layers[i], fraction(given[i]), given[i].where());
    }
  }

  static void set_attention(LayerCost& layer, const Decimal& part, const SourceLoc& where) {
    const auto flops = exact_part(static_cast<std::int64_t>(layer.forward_flops.count), part);
    if (!flops)
      throw InputError(where, fmt::format("'attention_fraction' of {} FLOP is not a whole number of FLOPs",
                                          to_string(layer.forward_flops)));
    layer.attention_flops = {*flops};
  }

  void finish() {
    for (std::size_t i = 0; i < count(); ++i) {
      LayerCost& layer = graph_.layers[i];
      check_weights(i, layer);
      if (layer.name.empty()) layer.name = "layers." + std::to_string(i);
      if (i > 0) layer.inputs = {static_cast<std::int32_t>(i - 1)};
    }
    graph_.loss_time = model_.get("loss_time", time, Nanos{});
    graph_.loss_workspace = model_.get("loss_workspace", size, Bytes{});
    graph_.is_chain = true;
  }

  /// What the weights' gradients take is a part of the whole.
  void check_weights(std::size_t i, const LayerCost& layer) const {
    const bool time = layer.weight_time > layer.backward_time;
    if (!time && layer.weight_activation <= layer.layer_activation) return;
    const std::string fault =
        fmt::format("layer {}: '{}' is above '{}', of which it is a part", i,
                    time ? "weight_time" : "weight_activation", time ? "backward_time" : "layer_activation");
    const auto field = model_.optional(time ? "weight_time" : "weight_activation");
    throw InputError(field ? field->where() : table_->where(table_->rows[i]), fault);
  }

  const YamlMap& model_;
  std::optional<LayerTable> table_;
  LayerGraph graph_;
};

}  // namespace

LayerGraph read_chain(const YamlMap& model) { return ChainReader(model).read(); }

}  // namespace tidemark
