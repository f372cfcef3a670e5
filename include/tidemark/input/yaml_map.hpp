/// How is a map read strictly?
///
/// A YamlMap refuses keys that its block does not know, naming the nearest, and hands out fields that typed readers
/// (quantities.hpp) turn into values. It serves YAML and JSON alike.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/input/document.hpp"
#include "tidemark/input/keys.hpp"

namespace tidemark {

/// One key of a map with its value, so that a message can name it.
struct Field {
  const Key* key = nullptr;
  DocPtr value;

  SourceLoc where() const { return value->where(); }
  /// Throws InputError: "'interval' must be a positive integer, not 'two'".
  [[noreturn]] void must_be(const std::string& expected) const;
  /// Throws InputError with the value's place.
  [[noreturn]] void fail(const std::string& message) const;
};

class YamlMap {
 public:
  /// `node` must be a map; null counts as an empty one when `may_be_empty`. Throws InputError for another kind of
  /// node and for the first key that `block` does not know.
  YamlMap(DocPtr node, const Block& block);

  SourceLoc where() const { return node_->where(); }
  bool has(std::string_view key) const { return node_->find(key) != nullptr; }
  std::optional<Field> optional(std::string_view key) const;
  /// Throws InputError when the key is missing.
  Field require(std::string_view key) const;

  /// The value as `read` makes it of the field, or `fallback` without the key.
  template <class Read, class Value>
  Value get(std::string_view key, Read read, Value fallback) const {
    const std::optional<Field> field = optional(key);
    return field ? Value(read(*field)) : fallback;
  }
  /// Every key that is given, in the order written.
  std::vector<Field> fields() const;
  const Block& block() const { return *block_; }
  const DocNode& node() const { return *node_; }

 private:
  [[noreturn]] void unknown_key(const DocNode& key) const;
  DocPtr node_;
  const Block* block_;
};

/// "a, b, c".
std::string joined(const std::vector<std::string>& names);
/// "; did you mean 'x'?" or "; expected one of: a, b, c".
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);

}  // namespace tidemark
