#include "tidemark/input/program_file.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "tidemark/input/quantities.hpp"
#include "tidemark/program/shapes.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t max_extent = std::int64_t{1} << 50;

/// A list of whole numbers as a shape; a number alone is one dimension.
Shape shape(const Field& field) {
  Shape out;
  if (field.value->kind == DocNode::Kind::list && field.value->items.empty()) return out;
  for (const Field& item : items(field)) out.push_back(whole_number(item, 0, max_extent));
  return out;
}

/// Dimension numbers; negative ones count from the end.
std::vector<std::int64_t> dimensions(const Field& field) {
  std::vector<std::int64_t> out;
  for (const Field& item : items(field)) {
    std::string text = item.value->text;
    const bool negative = text.starts_with('-');
    const auto value = parse_whole(negative ? text.substr(1) : text);
    if (!value) item.must_be("a dimension number");
    out.push_back(negative ? -*value : *value);
  }
  return out;
}

std::vector<std::string> op_names() {
  std::vector<std::string> names(op_kind_names.begin(), op_kind_names.end());
  names.insert(names.end(), view_names.begin(), view_names.end());
  return names;
}

class ProgramReader {
 public:
  explicit ProgramReader(const YamlMap& document) : document_(document) {}

  Program read() {
    leaves("parameters", true);
    leaves("inputs", false);
    for (const Field& layer : items(document_.require("layers")))
      read_layer(YamlMap(layer.value, block("program layer")));
    const Field loss = document_.require("loss");
    const TensorId loss_id = lookup(loss);
    if (!builder_.tensor(loss_id).requires_grad) loss.fail("no gradient flows from the loss '" + text(loss) + "'");
    if (const auto given = document_.optional("loss_gradient")) builder_.program().loss_gradient = lookup(*given);
    if (const auto logits = document_.optional("logits")) builder_.program().logits = lookup(*logits);
    return builder_.finish(loss_id);
  }

 private:
  void define(const std::string& name, TensorId id, const SourceLoc& where) {
    if (!names_.emplace(name, id).second) throw InputError(where, "'" + name + "' is defined already");
  }

  TensorId lookup(const Field& field) const {
    const std::string name = text(field);
    const auto found = names_.find(name);
    if (found != names_.end()) return found->second;
    std::vector<std::string> known;
    for (const auto& [known_name, id] : names_) known.push_back(known_name);
    field.fail("no tensor is called '" + name + "' here" + did_you_mean(name, known));
  }

  /// parameters and inputs: a map from names to a shape, or to {shape, dtype, requires_grad}.
  void leaves(std::string_view key, bool parameters) {
    const auto field = document_.optional(key);
    if (!field) return;
    if (field->value->kind != DocNode::Kind::map) field->must_be("a map from names to shapes");
    for (const DocEntry& entry : field->value->entries) {
      const bool is_map = entry.value->kind == DocNode::Kind::map;
      Shape extents;
      DType type = DType::float32;
      bool requires_grad = parameters;
      if (is_map) {
        const YamlMap map(entry.value, block("program tensor"));
        extents = shape(map.require("shape"));
        type = map.get("dtype", dtype, type);
        requires_grad = map.get("requires_grad", boolean, requires_grad);
      } else {
        extents = shape(Field{block("program tensor").find("shape"), entry.value});
      }
      const TensorId id = parameters ? builder_.parameter(entry.key->text, extents, type, requires_grad)
                                     : builder_.input(entry.key->text, extents, type, requires_grad);
      define(entry.key->text, id, entry.key->where());
    }
  }

  void read_layer(const YamlMap& layer) {
    const std::string name = text(layer.require("name"));
    const bool is_block = layer.get("block", boolean, false);
    builder_.begin_layer(name, layer.get("type", text, std::string(is_block ? "block" : "other")), is_block);
    const auto ops = layer.optional("ops");
    if (!ops) return;
    for (const Field& entry : items(*ops)) {
      const YamlMap map(entry.value, block("program op"));
      if (const auto names = map.optional("release"))
        release(*names);
      else
        read_op(map, name);
    }
  }

  void release(const Field& names) {
    if (builder_.program().ops.empty()) names.fail("a release stands before the first op");
    for (const Field& name : items(names)) builder_.hold_until_now(lookup(name));
  }

  void read_op(const YamlMap& map, const std::string& layer) {
    const Field kind_field = map.require("op");
    const std::string kind_name = text(kind_field);
    const std::vector<std::string> known = op_names();
    if (std::ranges::find(known, kind_name) == known.end())
      kind_field.fail("unknown op '" + kind_name + "'" + did_you_mean(kind_name, known));
    const auto view = std::ranges::find(view_names, kind_name);
    const auto kind = view != view_names.end()
                          ? OpKind::view
                          : static_cast<OpKind>(std::ranges::find(op_kind_names, kind_name) - op_kind_names.begin());
    std::vector<TensorId> inputs;
    std::vector<Tensor> operands;
    for (const Field& name : items(map.require("in"))) {
      inputs.push_back(lookup(name));
      operands.push_back(builder_.tensor(inputs.back()));
    }
    const Field out = map.require("out");
    ResultRequest request;
    if (const auto given = map.optional("shape")) request.shape = shape(*given);
    request.dims = map.get("dims", dimensions, std::vector<std::int64_t>{});
    request.sizes = map.get("sizes", shape, Shape{});
    if (const auto type = map.optional("dtype")) request.dtype = dtype(*type);
    if (view != view_names.end()) request.view = static_cast<ViewKind>(view - view_names.begin());
    request.in_place = map.get("in_place", boolean, false);
    emit(map, layer, kind, kind_name, inputs, operands, request, out);
  }

  Attributes attributes_of(const YamlMap& map, OpKind kind, const ResultRequest& request) const {
    Attributes attributes;
    attributes.probability = map.get("probability", probability, 0.0);
    attributes.causal = map.get("causal", boolean, false);
    attributes.in_place = request.in_place;
    if (kind == OpKind::view && request.view > ViewKind::transpose) attributes.implementation = to_string(request.view);
    if (kind == OpKind::view && (request.view == ViewKind::transpose || request.view == ViewKind::permute))
      attributes.dims = request.dims;
    attributes.saved = map.get("saved", size, Bytes{});
    attributes.forward_temporary = map.get("forward_temporary", size, Bytes{});
    attributes.backward_temporary = map.get("backward_temporary", size, Bytes{});
    attributes.forward_flops = map.get("forward_flops", flops, Flops{});
    attributes.backward_flops = map.get("backward_flops", flops, Flops{});
    return attributes;
  }

  void emit(const YamlMap& map, const std::string& layer, OpKind kind, const std::string& kind_name,
            const std::vector<TensorId>& inputs, const std::vector<Tensor>& operands, const ResultRequest& request,
            const Field& out) {
    const std::vector<Field> outs = items(out);
    const std::string name = layer + "." + map.get("name", text, text(outs.front()));
    const Attributes attributes = attributes_of(map, kind, request);
    std::vector<TensorId> made;
    try {
      const std::vector<Result> shapes = results(kind, operands, request);
      if (shapes.size() != outs.size())
        out.fail("'" + kind_name + "' makes " + std::to_string(shapes.size()) + " tensors, 'out' names " +
                 std::to_string(outs.size()));
      made = build(kind, name, inputs, shapes, outs, attributes);
    } catch (const InputError& error) {
      if (!error.where().file.empty()) throw;
      throw InputError(map.where(), std::string(error.what()).substr(std::string("error: ").size()));
    }
    for (std::size_t i = 0; i < outs.size(); ++i) define(text(outs[i]), made[i], outs[i].where());
  }

  std::vector<TensorId> build(OpKind kind, const std::string& name, const std::vector<TensorId>& inputs,
                              const std::vector<Result>& shapes, const std::vector<Field>& outs,
                              const Attributes& attributes) {
    const Result& first = shapes.front();
    if (kind == OpKind::split) {
      std::vector<ProgramBuilder::Part> parts;
      for (std::size_t i = 0; i < shapes.size(); ++i)
        parts.push_back({text(outs[i]), shapes[i].shape, shapes[i].strides});
      return builder_.split(name, inputs.front(), parts);
    }
    if (first.alias && !attributes.in_place)
      return {builder_.alias(kind, name, inputs, first.shape, first.strides, attributes)};
    return {builder_.op_strided(kind, name, inputs, first.shape, first.strides, first.dtype, attributes)};
  }

  YamlMap document_;
  ProgramBuilder builder_;
  std::map<std::string, TensorId> names_;
};

}  // namespace

Program read_program(const YamlMap& model) {
  if (const auto file = model.optional("file")) {
    const YamlMap document(read_yaml(path(*file), "a forward program (YAML or JSON)"), block("program"));
    return ProgramReader(document).read();
  }
  return ProgramReader(model).read();
}

}  // namespace tidemark
