#include "support/key_tables.hpp"

#include <algorithm>

namespace tidemark::test {
namespace {

std::string choices(const Key& key) {
  std::string out;
  for (const std::string_view choice : key.choices) out += (out.empty() ? "" : ", ") + std::string(choice);
  return out;
}

std::string value(const Key& key) {
  switch (key.type) {
    case ValueType::text:
      return "text";
    case ValueType::path:
      return "path";
    case ValueType::boolean:
      return "true, false";
    case ValueType::integer:
      return "integer";
    case ValueType::number:
      return "0 to 1";
    case ValueType::factor:
      return "above 0";
    case ValueType::choice:
    case ValueType::dtype:
      return choices(key);
    case ValueType::size:
      return "size";
    case ValueType::flops:
      return "FLOPs";
    case ValueType::time:
      return "time";
    case ValueType::flop_rate:
      return "FLOP/s";
    case ValueType::byte_rate:
      return "B/s";
    case ValueType::block:
      return "map";
    case ValueType::texts:
      return "text, or a list";
    case ValueType::integers:
      return "integer, or a list";
    case ValueType::ranges:
      return "blocks";
    case ValueType::steps:
      return key.block == "plan_step" ? "list of steps" : "list of maps";
    case ValueType::program:
      return "entries";
  }
  return "";
}

/// The keys of `block` that every variant has, or those that not every one has.
std::vector<Key> keys_of(const Block& block, bool shared) {
  std::vector<Key> out;
  for (const Key& key : block.keys) {
    const bool everywhere = std::ranges::all_of(
        blocks(), [&](const Block& other) { return other.name != block.name || other.find(key.name) != nullptr; });
    if (everywhere == shared) out.push_back(key);
  }
  return out;
}

}  // namespace

std::string key_table(const std::vector<Key>& keys) {
  std::string out = "| key | value | default | meaning |\n|---|---|---|---|\n";
  for (const Key& key : keys)
    out += "| `" + std::string(key.name) + "` | " + value(key) + (key.per_layer ? ", or a list" : "") + " | " +
           (key.fallback.empty() ? "required" : std::string(key.fallback)) + " | " + std::string(key.meaning) + " |\n";
  return out;
}

std::vector<DocTable> doc_tables() {
  std::vector<DocTable> out;
  const auto add = [&](const std::string& name, const std::vector<Key>& keys) {
    if (!keys.empty()) out.push_back({name, "<!-- keys: " + name + " -->\n" + key_table(keys)});
  };
  std::string_view last;
  for (const Block& block : blocks()) {
    const std::string name(block.name);
    if (block.name != last) add(name, keys_of(block, true));
    if (!block.variant.empty()) add(name + " " + std::string(block.variant), keys_of(block, false));
    last = block.name;
  }
  return out;
}

}  // namespace tidemark::test
