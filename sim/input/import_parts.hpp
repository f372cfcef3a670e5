/// What do the readers of both frameworks share: a scenario being written down, and settings being used up?
#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tidemark/input/document.hpp"

namespace tidemark {

/// Flow YAML of a block, in the order of its keys.
class FlowBlock {
 public:
  void add(std::string_view key, std::string value) { entries_.emplace_back(key, std::move(value)); }
  void add(std::string_view key, std::int64_t value) { add(key, std::to_string(value)); }
  void add_if(bool given, std::string_view key, std::string value) {
    if (given) add(key, std::move(value));
  }
  bool empty() const { return entries_.empty(); }
  std::string text() const;

 private:
  std::vector<std::pair<std::string, std::string>> entries_;
};

/// Settings by name, each to be read once; what nobody read is left over.
class Settings {
 public:
  explicit Settings(const DocNode& map, std::string prefix = "");
  /// Null when absent.
  DocPtr find(std::string_view name);
  std::string text(std::string_view name, std::string fallback);
  /// From 0 to 10^9, so that a product of two fits. Throws InputError for anything else.
  std::int64_t integer(std::string_view name, std::int64_t fallback);
  /// A decimal from 0, as written.
  std::string decimal(std::string_view name, const std::string& fallback);
  bool flag(std::string_view name, bool fallback = false);
  /// Read, and of no effect on a step's memory.
  void pass_over(std::initializer_list<std::string_view> names);
  void pass_over_prefixed(std::initializer_list<std::string_view> prefixes);
  /// "name: value" of those that were not read.
  std::vector<std::string> left() const;
  SourceLoc where(std::string_view name) const;

 private:
  const DocNode& map_;
  std::string prefix_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace tidemark
