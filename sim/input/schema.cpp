#include "tidemark/input/schema.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "tidemark/input/keys.hpp"

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view number = R"(^(0|[1-9][0-9]*)(\.[0-9]+)? ?)";

Json quantity(std::string_view units, std::string_view example) {
  return {{"type", "string"},
          {"pattern", std::string(number) + "(" + std::string(units) + ")$"},
          {"examples", {std::string(example)}}};
}

Json definition(std::string_view name) { return {{"$ref", "#/$defs/" + std::string(name)}}; }

Json choices(const std::vector<std::string_view>& names) { return {{"enum", names}}; }

Json one_or_many(const Json& item) { return {{"anyOf", {item, {{"type", "array"}, {"items", item}}}}}; }

/// "model_chain"; a reference holds no spaces.
std::string definition_name(const Block& block) {
  std::string name = std::string(block.name) + (block.variant.empty() ? "" : "_" + std::string(block.variant));
  std::ranges::replace(name, ' ', '_');
  return name;
}

/// A block that may be written as one word (a kind or a preset), which is the first key's choices.
bool has_word(std::string_view block) {
  return block == "profile" || block == "policy" || block == "optimizer" || block == "allocator" ||
         block == "checkpointing";
}

/// A block by name: any of its variants, and the word it may be written as.
Json block_value(const Key& key) {
  std::vector<Json> forms;
  for (const Block& block : blocks()) {
    if (block.name != key.block) continue;
    if (has_word(block.name) && forms.empty()) forms.push_back(choices(block.keys.front().choices));
    if (block.name == "device" && forms.empty()) forms.push_back({{"type", "string"}});
    forms.push_back(definition(definition_name(block)));
  }
  return forms.size() == 1 ? forms.front() : Json{{"anyOf", forms}};
}

/// Tensors by name, each a shape or a map; layers and ops in a list.
Json program_part(const Key& key) {
  std::string name(key.block);
  std::ranges::replace(name, ' ', '_');
  if (name != "program_tensor") return one_or_many(definition(name));
  const Json shape = one_or_many({{"type", "integer"}, {"minimum", 0}});
  return {{"type", "object"}, {"additionalProperties", {{"anyOf", {shape, definition(name)}}}}};
}

Json plain_value(const Key& key) {
  switch (key.type) {
    case ValueType::boolean:
      return {{"type", "boolean"}};
    case ValueType::integer:
      return {{"type", "integer"}, {"minimum", 0}};
    case ValueType::number:
      return {{"type", "number"}, {"minimum", 0}, {"maximum", 1}};
    case ValueType::factor:
      return {{"type", "number"}, {"exclusiveMinimum", 0}};
    case ValueType::choice:
    case ValueType::dtype:
      if (key.block.empty()) return choices(key.choices);
      return {{"anyOf", {choices(key.choices), definition(key.block)}}};
    case ValueType::size:
      return definition("size");
    case ValueType::flops:
      return definition("flops");
    case ValueType::time:
      return definition("time");
    case ValueType::flop_rate:
      return definition("flop_rate");
    case ValueType::byte_rate:
      return definition("byte_rate");
    case ValueType::block:
      return block_value(key);
    case ValueType::texts:
      return one_or_many({{"type", "string"}});
    case ValueType::integers:
      return one_or_many({{"type", "integer"}});
    case ValueType::ranges:
      return {{"type", {"integer", "string"}}};
    case ValueType::program:
      return program_part(key);
    case ValueType::steps:
      return {{"type", "array"}, {"items", block_value(key)}};
    case ValueType::text:
      return {{"type", {"string", "number", "boolean"}}};
    case ValueType::path:
      break;
  }
  return {{"type", "string"}};
}

Json key_value(const Key& key, const Block& block) {
  // The key that selects a variant has one value in it.
  const bool selects = !block.variant.empty() && (key.name == "family" || key.name == "kind");
  Json value = selects ? Json{{"const", std::string(block.variant)}} : plain_value(key);
  if (key.per_layer) value = one_or_many(value);
  value["description"] = std::string(key.meaning);
  if (!key.fallback.empty()) value["x-default"] = std::string(key.fallback);
  return value;
}

Json block_object(const Block& block) {
  Json properties = Json::object();
  Json required = Json::array();
  for (const Key& key : block.keys) {
    properties[std::string(key.name)] = key_value(key, block);
    if (key.fallback.empty()) required.push_back(std::string(key.name));
  }
  Json object = {{"type", "object"}, {"additionalProperties", false}, {"properties", properties}};
  if (!required.empty()) object["required"] = required;
  return object;
}

Json definitions() {
  Json out = {
      {"size", quantity("B|kB|MB|GB|TB|KiB|MiB|GiB|TiB", "40 GiB")},
      {"flops", quantity("FLOP|kFLOP|MFLOP|GFLOP|TFLOP|PFLOP|EFLOP", "20 GFLOP")},
      {"time", quantity("ns|us|ms|s", "3.5 ms")},
      {"flop_rate", quantity("(k|M|G|T|P|E)?FLOP/s", "312 TFLOP/s")},
      {"byte_rate", quantity("(k|M|G|T|P|E|Ki|Mi|Gi|Ti)?B/s", "2039 GB/s")},
  };
  for (const Block& block : blocks())
    if (block.name != "scenario" && block.name != "plan" && block.name != "plan_step" && block.name != "stage_plan")
      out[definition_name(block)] = block_object(block);
  return out;
}

/// A scenario with this block is a study: `tidemark sweep` reads it, `run` does not.
Json sweep_block() {
  Json zip = one_or_many({{"type", "object"}});
  zip["description"] = "Axes that move together.";
  Json where = one_or_many({{"type", "string"}});
  where["description"] = "Conditions on the points.";
  return {{"type", "object"},
          {"description", "Of a study: key paths of this scenario and the values each takes."},
          {"properties", {{"zip", zip}, {"where", where}}}};
}

}  // namespace

std::string scenario_schema() {
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", "Tidemark scenario"}};
  schema.update(block_object(block("scenario")));
  schema["properties"]["sweep"] = sweep_block();
  schema["$defs"] = definitions();
  return schema.dump(2) + "\n";
}

}  // namespace tidemark
