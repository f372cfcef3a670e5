#include "import_parts.hpp"

#include <fmt/core.h>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/quantities.hpp"

namespace tidemark {

std::string FlowBlock::text() const {
  std::string out;
  for (const auto& [key, value] : entries_) out += (out.empty() ? "" : ", ") + key + ": " + value;
  return "{" + out + "}";
}

Settings::Settings(const DocNode& map, std::string prefix) : map_(map), prefix_(std::move(prefix)) {}

DocPtr Settings::find(std::string_view name) {
  const std::string full = prefix_ + std::string(name);
  DocPtr value = map_.find(full);
  if (value) read_.insert(full);
  return value;
}

SourceLoc Settings::where(std::string_view name) const {
  const DocPtr value = map_.find(prefix_ + std::string(name));
  return value ? value->where() : map_.where();
}

std::string Settings::text(std::string_view name, std::string fallback) {
  const DocPtr value = find(name);
  if (!value || value->kind == DocNode::Kind::null) return fallback;
  if (value->kind != DocNode::Kind::scalar)
    throw InputError(value->where(), fmt::format("'{}{}' must be one value, not {}", prefix_, name, shown(*value)));
  return value->text;
}

std::int64_t Settings::integer(std::string_view name, std::int64_t fallback) {
  const DocPtr value = find(name);
  if (!value || value->kind == DocNode::Kind::null) return fallback;
  const auto number = value->kind == DocNode::Kind::scalar ? parse_whole(value->text) : std::nullopt;
  if (!number)
    throw InputError(value->where(),
                     fmt::format("'{}{}' must be a whole number, not {}", prefix_, name, shown(*value)));
  constexpr std::int64_t most = 1'000'000'000;
  if (*number > most) throw InputError(value->where(), fmt::format("'{}{}' is past {}", prefix_, name, most));
  return *number;
}

std::string Settings::decimal(std::string_view name, const std::string& fallback) {
  const std::string written = text(name, fallback);
  if (written == fallback || parse_decimal(written)) return written;
  throw InputError(where(name), fmt::format("'{}{}' must be a decimal from 0, not '{}'", prefix_, name,
                                            shown(std::string_view(written))));
}

bool Settings::flag(std::string_view name, bool fallback) {
  const DocPtr value = find(name);
  if (!value) return fallback;
  if (value->kind == DocNode::Kind::null) return true;  // a switch without a value
  if (value->text == "true" || value->text == "True") return true;
  if (value->text == "false" || value->text == "False") return false;
  throw InputError(value->where(), fmt::format("'{}{}' must be true or false, not {}", prefix_, name, shown(*value)));
}

void Settings::pass_over(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) find(name);
}

void Settings::pass_over_prefixed(std::initializer_list<std::string_view> prefixes) {
  for (const DocEntry& entry : map_.entries)
    for (const std::string_view prefix : prefixes)
      if (entry.key->text.starts_with(prefix_ + std::string(prefix))) read_.insert(entry.key->text);
}

std::vector<std::string> Settings::left() const {
  std::vector<std::string> out;
  for (const DocEntry& entry : map_.entries)
    if (!read_.contains(entry.key->text))
      out.push_back(fmt::format("{}: {}", entry.key->text,
                                entry.value->kind == DocNode::Kind::scalar ? shown(std::string_view(entry.value->text))
                                                                           : shown(*entry.value)));
  return out;
}

}  // namespace tidemark
