#include "tidemark/input/yaml_map.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace tidemark {
namespace {

/// "policy 'full'", or "'batch'".
std::string title(const Block& block) {
  return block.variant.empty() ? fmt::format("'{}'", block.name) : fmt::format("{} '{}'", block.name, block.variant);
}

std::vector<std::string> names(const Block& block) {
  std::vector<std::string> out;
  for (const Key& key : block.keys) out.emplace_back(key.name);
  return out;
}

}  // namespace

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  const std::string nearest = nearest_name(name, known);
  return nearest.empty() ? "; expected one of: " + joined(known) : "; did you mean '" + nearest + "'?";
}

void Field::must_be(const std::string& expected) const {
  fail(fmt::format("'{}' must be {}, not {}", key->name, expected, shown(*value)));
}

void Field::fail(const std::string& message) const { throw InputError(where(), message); }

YamlMap::YamlMap(DocPtr node, const Block& block) : node_(std::move(node)), block_(&block) {
  if (node_->kind != DocNode::Kind::map)
    throw InputError(where(), fmt::format("{} must be a map of keys such as '{}: ...', not {}", title(block),
                                          block.keys.empty() ? "key" : block.keys.front().name, shown(*node_)));
  for (const DocEntry& entry : node_->entries)
    if (block.find(entry.key->text) == nullptr) unknown_key(*entry.key);
}

void YamlMap::unknown_key(const DocNode& key) const {
  for (const Block& other : blocks())
    if (other.name == block_->name && other.find(key.text) != nullptr)
      throw InputError(key.where(), fmt::format("{} has no meaning for {}; its keys are: {}", shown(key),
                                                title(*block_), joined(names(*block_))));
  throw InputError(key.where(), fmt::format("unknown key {} in {}{}", shown(key), title(*block_),
                                            did_you_mean(key.text, names(*block_))));
}

std::optional<Field> YamlMap::optional(std::string_view key) const {
  const Key* known = block_->find(key);
  if (known == nullptr) throw InternalError(fmt::format("the table of {} lacks the key '{}'", title(*block_), key));
  const DocPtr value = node_->find(key);
  return value ? std::optional(Field{known, value}) : std::nullopt;
}

Field YamlMap::require(std::string_view key) const {
  if (std::optional<Field> field = optional(key)) return *field;
  throw InputError(where(), fmt::format("missing key '{}' in {}", key, title(*block_)));
}

std::vector<Field> YamlMap::fields() const {
  std::vector<Field> out;
  for (const DocEntry& entry : node_->entries) out.push_back({block_->find(entry.key->text), entry.value});
  return out;
}

}  // namespace tidemark
