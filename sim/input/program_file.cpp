#include "tidemark/input/program_file.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "tidemark/input/quantities.hpp"
#include "tidemark/program/shapes.hpp"
#include "tidemark/program/strides.hpp"

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
  names.emplace_back("unbind");
  return names;
}

class ProgramReader {
 public:
  explicit ProgramReader(const YamlMap& document) : document_(document) {}

  Program read() {
    if (const auto ops = document_.optional("ops")) {
      if (ops->value->kind != DocNode::Kind::map) ops->must_be("a map from names to what custom ops of that name do");
      for (const DocEntry& entry : ops->value->entries)
        given_.emplace(entry.key->text, YamlMap(entry.value, block("program custom")));
    }
    leaves("parameters", true);
    leaves("inputs", false);
    for (const Field& layer : items(document_.require("layers")))
      read_layer(YamlMap(layer.value, block("program layer")));
    const Field loss = document_.require("loss");
    const TensorId loss_id = lookup(loss);
    if (!builder_.tensor(loss_id).requires_grad) loss.fail("no gradient flows from the loss '" + text(loss) + "'");
    if (const auto given = document_.optional("loss_gradient")) builder_.program().loss_gradient = lookup(*given);
    if (const auto logits = document_.optional("logits"))
      for (const Field& name : items(*logits)) builder_.program().logits.push_back(lookup(name));
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
      std::optional<Shape> strides;
      if (is_map) {
        const YamlMap map(entry.value, block("program tensor"));
        extents = shape(map.require("shape"));
        if (const auto given = map.optional("strides")) {
          strides = shape(*given);
          if (!is_dense_of(extents, *strides)) given->must_be("strides of a dense tensor of that shape");
        }
        type = map.get("dtype", dtype, type);
        requires_grad = map.get("requires_grad", boolean, requires_grad);
      } else {
        extents = shape(Field{block("program tensor").find("shape"), entry.value});
      }
      const TensorId id = parameters ? builder_.parameter(entry.key->text, extents, type, requires_grad)
                                     : builder_.input(entry.key->text, extents, type, requires_grad);
      if (strides) builder_.program().tensors[static_cast<std::size_t>(id)].strides = *strides;
      define(entry.key->text, id, entry.key->where());
    }
  }

  static bool is_dense_of(const Shape& extents, const Shape& strides) {
    return extents.size() == strides.size() && is_dense(extents, strides);
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

  /// An op's kind by its written name: a rule's, a view's, or one of `ops`.
  struct Kind {
    OpKind kind = OpKind::custom;
    ViewKind view = ViewKind::reshape;
    std::string name;
  };

  Kind kind_of(const Field& field) const {
    const std::string name = text(field);
    if (const auto view = std::ranges::find(view_names, name); view != view_names.end())
      return {OpKind::view, static_cast<ViewKind>(view - view_names.begin()), name};
    if (const auto kind = std::ranges::find(op_kind_names, name); kind != op_kind_names.end())
      return {static_cast<OpKind>(kind - op_kind_names.begin()), ViewKind::reshape, name};
    if (name == "unbind") return {OpKind::split, ViewKind::select, name};
    if (given_.contains(name)) return {OpKind::custom, ViewKind::reshape, name};
    std::vector<std::string> known = op_names();
    for (const auto& [given, keys] : given_) known.push_back(given);
    field.fail("unknown op '" + name + "'" + did_you_mean(name, known));
  }

  void read_op(const YamlMap& map, const std::string& layer) {
    const Kind kind = kind_of(map.require("op"));
    std::vector<TensorId> inputs;
    std::vector<Tensor> operands;
    if (const auto in = map.optional("in"))
      for (const Field& name : items(*in)) {
        inputs.push_back(lookup(name));
        operands.push_back(builder_.tensor(inputs.back()));
      }
    ResultRequest request;
    if (const auto given = map.optional("shape")) request.shape = shape(*given);
    if (const auto given = map.optional("strides")) request.strides = shape(*given);
    request.dims = map.get("dims", dimensions, std::vector<std::int64_t>{});
    request.sizes = map.get("sizes", shape, Shape{});
    if (const auto type = map.optional("dtype")) request.dtype = dtype(*type);
    request.view = kind.view;
    request.in_place = map.get("in_place", boolean, false);
    const std::vector<Field> outs = items(map.require("out"));
    if (outs.empty()) map.require("out").fail("'out' names no result");
    const std::string name = layer + "." + map.get("name", text, text(outs.front()));
    std::vector<TensorId> made;
    try {
      const std::vector<Result> shapes = shapes_of(map, kind.kind, operands, request);
      if (shapes.size() != outs.size())
        map.require("out").fail("'" + kind.name + "' makes " + std::to_string(shapes.size()) +
                                " tensors, 'out' names " + std::to_string(outs.size()));
      made = build(kind.kind, name, inputs, shapes, outs, attributes_of(map, kind, request));
    } catch (const InputError& error) {
      if (!error.where().file.empty()) throw;
      throw InputError(map.where(), error.message());
    }
    if (map.get("detached", boolean, false))
      for (const TensorId id : made) builder_.program().tensors[static_cast<std::size_t>(id)].requires_grad = false;
    for (std::size_t i = 0; i < outs.size(); ++i) define(text(outs[i]), made[i], outs[i].where());
  }

  /// A custom op with several results gives a shape each.
  static std::vector<Result> shapes_of(const YamlMap& map, OpKind kind, const std::vector<Tensor>& operands,
                                       ResultRequest request) {
    const auto shapes = map.optional("shapes");
    if (!shapes) return results(kind, operands, request);
    if (kind != OpKind::custom) shapes->fail("'shapes' is for custom ops with several results; expected 'shape'");
    std::vector<Result> out;
    for (const Field& one : items(*shapes)) {
      request.shape = shape(one);
      out.push_back(results(kind, operands, request).front());
    }
    return out;
  }

  Attributes attributes_of(const YamlMap& map, const Kind& kind, const ResultRequest& request) const {
    Attributes attributes;
    attributes.probability = map.get("probability", probability, 0.0);
    attributes.causal = map.get("causal", boolean, false);
    attributes.in_place = request.in_place;
    attributes.heads = map.get(
        "groups", [](const Field& f) { return positive_integer(f); }, std::int64_t{0});
    if (kind.kind == OpKind::group_norm && attributes.heads == 0)
      throw InputError(map.where(), "group_norm needs 'groups'");
    if (kind.kind == OpKind::clamp && map.get("bounds", choice, std::string("both")) == "one")
      attributes.implementation = "one";
    if (kind.kind == OpKind::view && kind.view > ViewKind::transpose) attributes.implementation = to_string(kind.view);
    if (kind.kind != OpKind::view || kind.view == ViewKind::transpose || kind.view == ViewKind::permute)
      attributes.dims = request.dims;
    if (kind.kind != OpKind::custom) return attributes;
    attributes.implementation = kind.name == "custom" ? "" : kind.name;
    const auto given = given_.find(kind.name);
    if (given != given_.end()) read_custom(given->second, attributes);
    read_custom(map, attributes);
    const std::vector<Key>& keys = block("program custom").keys;
    const bool has_cost = given != given_.end() ||
                          std::ranges::any_of(keys, [&](const Key& k) { return k.name != "rule" && map.has(k.name); });
    if (!has_cost)
      throw InputError(map.where(),
                       "an op without a rule needs its cost: forward_flops, saves, forward, ...; 0 FLOP "
                       "where it has none");
    return attributes;
  }

  static void read_custom(const YamlMap& map, Attributes& attributes) {
    attributes.implementation = map.get("rule", text, attributes.implementation);
    attributes.saved = map.get("saved", size, attributes.saved);
    attributes.forward_temporary = map.get("forward_temporary", size, attributes.forward_temporary);
    attributes.backward_temporary = map.get("backward_temporary", size, attributes.backward_temporary);
    attributes.forward_flops = map.get("forward_flops", flops, attributes.forward_flops);
    attributes.backward_flops = map.get("backward_flops", flops, attributes.backward_flops);
    if (const auto saves = map.optional("saves"))
      for (const Field& item : items(*saves)) {
        const Numbered what = numbered(item);
        if (what.word == "in")
          attributes.saved_inputs.push_back(what.number);
        else if (what.word == "out")
          attributes.saved_outputs.push_back(what.number);
        else
          item.must_be("an operand or result by its number, such as in0 or out0");
      }
    if (const auto script = map.optional("forward")) attributes.forward_script = read_script(*script, "out");
    if (const auto script = map.optional("backward")) attributes.backward_script = read_script(*script, "d");
  }

  struct Numbered {
    std::string word;
    std::int32_t number = -1;
  };
  /// "in0" as in and 0.
  static Numbered numbered(const Field& field) {
    const std::string written = text(field);
    const std::size_t digits = written.find_first_of("0123456789");
    const auto number = digits == std::string::npos ? std::nullopt : parse_whole(written.substr(digits));
    if (!number || *number > 1000) return {written, -1};
    return {written.substr(0, digits), static_cast<std::int32_t>(*number)};
  }

  /// "+out0", "+d1", "+buffer 40 kB", "-buffer". What each names is made once and, but for results, freed at most once.
  static std::vector<ScriptLine> read_script(const Field& script, const std::string& result) {
    std::vector<ScriptLine> out;
    std::vector<std::string> names;
    std::vector<bool> alive;
    for (const Field& item : items(script)) {
      const std::string line = text(item);
      const std::size_t space = line.find(' ');
      const std::string name =
          line.substr(std::min<std::size_t>(line.size(), 1), space == std::string::npos ? space : space - 1);
      if (line.empty() || (line[0] != '+' && line[0] != '-') || name.empty())
        item.must_be("'+" + result + "0', '+name SIZE' or '-name'");
      const auto known = std::ranges::find(names, name);
      const auto index = static_cast<std::size_t>(known - names.begin());
      ScriptLine read;
      read.alloc = line[0] == '+';
      const bool is_result = name.size() > result.size() && name.starts_with(result) &&
                             parse_whole(name.substr(result.size())).value_or(1000) < 1000;
      if (is_result) {
        if (!read.alloc) item.fail("a script frees its own temporaries only, not '" + name + "'");
        read.of = result == "d" ? ScriptLine::Of::gradient : ScriptLine::Of::output;
        read.index = static_cast<std::int32_t>(*parse_whole(name.substr(result.size())));
      } else if (read.alloc) {
        if (known != names.end()) item.fail("'" + name + "' is allocated already");
        const auto bytes = space == std::string::npos ? std::nullopt : parse_bytes(line.substr(space + 1));
        if (!bytes) item.must_be("'+" + name + " SIZE', such as '+" + name + " 40 kB'");
        read.bytes = *bytes;
        read.index = static_cast<std::int32_t>(names.size());
        names.push_back(name);
        alive.push_back(true);
      } else {
        if (known == names.end()) item.fail("'" + name + "' is freed and was not allocated");
        if (!alive[index]) item.fail("'" + name + "' is freed twice");
        alive[index] = false;
        read.index = static_cast<std::int32_t>(index);
      }
      out.push_back(read);
    }
    return out;
  }

  std::vector<TensorId> build(OpKind kind, const std::string& name, const std::vector<TensorId>& inputs,
                              const std::vector<Result>& shapes, const std::vector<Field>& outs,
                              const Attributes& attributes) {
    check_numbers(attributes, inputs.size(), shapes.size());
    const Result& first = shapes.front();
    if (kind == OpKind::split) {
      std::vector<ProgramBuilder::Part> parts;
      for (std::size_t i = 0; i < shapes.size(); ++i)
        parts.push_back({text(outs[i]), shapes[i].shape, shapes[i].strides});
      return builder_.split(name, inputs.front(), parts);
    }
    if (first.alias && !attributes.in_place)
      return {builder_.alias(kind, name, inputs, first.shape, first.strides, attributes)};
    if (shapes.size() == 1 && first.differentiable)
      return {builder_.op_strided(kind, name, inputs, first.shape, first.strides, first.dtype, attributes)};
    std::vector<ProgramBuilder::Made> made;
    for (const Result& result : shapes)
      made.push_back({shapes.size() == 1 ? name : name + "." + std::to_string(made.size()), result.shape,
                      result.strides, result.dtype, result.differentiable});
    return builder_.op_of_many(kind, name, inputs, made, attributes);
  }

  static void check_numbers(const Attributes& a, std::size_t inputs, std::size_t outputs) {
    const auto within = [](std::int32_t number, std::size_t count, const std::string& word) {
      if (static_cast<std::size_t>(number) >= count)
        throw InputError("'" + word + std::to_string(number) + "' is not one of the op's " + std::to_string(count));
    };
    for (const std::int32_t i : a.saved_inputs) within(i, inputs, "in");
    for (const std::int32_t i : a.saved_outputs) within(i, outputs, "out");
    for (const ScriptLine& line : a.forward_script)
      if (line.of == ScriptLine::Of::output) within(line.index, outputs, "out");
    for (const ScriptLine& line : a.backward_script)
      if (line.of == ScriptLine::Of::gradient) within(line.index, inputs, "d");
  }

  YamlMap document_;
  ProgramBuilder builder_;
  std::map<std::string, TensorId> names_;
  std::map<std::string, YamlMap> given_;  // `ops`: custom ops by name
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
