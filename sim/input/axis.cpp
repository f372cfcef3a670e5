#include "tidemark/input/axis.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "tidemark/base/errors.hpp"
#include "tidemark/base/units.hpp"
#include "tidemark/input/keys.hpp"
#include "tidemark/input/quantities.hpp"
#include "tidemark/input/settings.hpp"
#include "tidemark/input/yaml_map.hpp"

namespace tidemark {
namespace {

/// "16GiB" is 16 and GiB.
struct Measure {
  Decimal number;
  std::string unit;
};

std::optional<Measure> measure(const std::string& text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const auto number = parse_decimal(text.substr(0, end));
  if (!number) return std::nullopt;
  return Measure{*number, text.substr(end)};
}

/// `digits` / `divisor` as it is written, without trailing zeros behind the point.
std::string written(std::int64_t digits, std::int64_t divisor, const std::string& unit) {
  std::string out = std::to_string(digits / divisor), places;
  for (std::int64_t rest = digits % divisor; rest > 0; rest = rest * 10 % divisor)
    places += static_cast<char>('0' + rest * 10 / divisor);
  return out + (places.empty() ? "" : "." + places) + unit;
}

struct Range {
  enum class Rule : std::uint8_t { by, grows, log } rule = Rule::by;
  std::int64_t from = 0, to = 0, step = 1;  // of `by`, over the divisor
  std::int64_t divisor = 1;
  std::string unit;
};

/// The same number over another divisor, a multiple of its own.
std::optional<std::int64_t> over(const Decimal& number, std::int64_t divisor) {
  return checked_product(number.digits, divisor / number.divisor);
}

std::optional<Range> parsed_range(const std::string& text, std::size_t dots) {
  std::string last = text.substr(dots + 2), rule;
  if (const std::size_t space = last.find(' '); space != std::string::npos) {
    rule = last.substr(space + 1);
    last = last.substr(0, space);
  }
  Range out;
  const auto from = measure(text.substr(0, dots)), to = measure(last);
  auto step = std::optional(Measure{{1, 1}, to ? to->unit : ""});
  if (rule.starts_with("by ")) {
    step = measure(rule.substr(3));
  } else if (rule.starts_with("x") || rule.starts_with("log ")) {
    out.rule = rule.starts_with("x") ? Range::Rule::grows : Range::Rule::log;
    const auto number = parse_whole(rule.substr(rule.starts_with("x") ? 1 : 4));
    step = number ? std::optional(Measure{{*number, 1}, to ? to->unit : ""}) : std::nullopt;
  } else if (!rule.empty()) {
    return std::nullopt;
  }
  if (!from || !to || !step || from->unit != to->unit || step->unit != to->unit) return std::nullopt;
  out.unit = to->unit;
  out.divisor = std::max({from->number.divisor, to->number.divisor, step->number.divisor});
  const auto first = over(from->number, out.divisor), end = over(to->number, out.divisor);
  const auto stride = out.rule == Range::Rule::by ? over(step->number, out.divisor) : step->number.digits;
  if (!first || !end || !stride || *first > *end || *stride < 1) return std::nullopt;
  const bool has_places = out.divisor > 1;
  if (out.rule != Range::Rule::by && (has_places || *first == 0 || *stride < 2)) return std::nullopt;
  if (has_places && rule.empty()) return std::nullopt;  // no step goes without saying
  out.from = *first;
  out.to = *end;
  out.step = *stride;
  return out;
}

/// `count` whole numbers from the first to the last in equal ratios, each once.
std::vector<std::int64_t> in_equal_ratios(const Range& range) {
  std::vector<std::int64_t> out = {range.from};
  const double ratio = std::log(static_cast<double>(range.to) / static_cast<double>(range.from));
  for (std::int64_t i = 1; i < range.step; ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(range.step - 1);
    const bool last = i + 1 == range.step;
    const std::int64_t value = last ? range.to : std::llround(static_cast<double>(range.from) * std::exp(ratio * part));
    if (value > out.back()) out.push_back(value);
  }
  return out;
}

/// Numbers of a range; nothing where the text is none.
std::optional<std::vector<std::string>> range_values(const std::string& text, const SourceLoc& where) {
  const std::size_t dots = text.find("..");
  if (dots == std::string::npos || dots == 0 || text[0] < '0' || text[0] > '9') return std::nullopt;
  const std::optional<Range> range = parsed_range(text, dots);
  if (!range)
    throw InputError(where, "'" + text + "' must be a range such as 1..36, 8..64 by 8, 1..64 x2 or 1..1000 log 4");
  const auto too_many = [&] { throw InputError(where, "'" + text + "' has more than ten million values"); };
  std::vector<std::string> out;
  if (range->rule == Range::Rule::log) {
    if (range->step > static_cast<std::int64_t>(max_axis_values)) too_many();
    for (const std::int64_t value : in_equal_ratios(*range)) out.push_back(written(value, 1, range->unit));
    return out;
  }
  for (std::int64_t value = range->from; value <= range->to;) {
    if (out.size() == max_axis_values) too_many();
    out.push_back(written(value, range->divisor, range->unit));
    const auto next =
        range->rule == Range::Rule::grows ? checked_product(value, range->step) : checked_sum(value, range->step);
    if (!next) break;
    value = *next;
  }
  return out;
}

/// A node as the text that stands for it.
std::string flow(const DocNode& node) {
  switch (node.kind) {
    case DocNode::Kind::null:
      return "null";
    case DocNode::Kind::scalar:
      return node.quoted ? "'" + node.text + "'" : node.text;
    case DocNode::Kind::list: {
      std::string out = "[";
      for (std::size_t i = 0; i < node.items.size(); ++i) out += (i == 0 ? "" : ", ") + flow(*node.items[i]);
      return out + "]";
    }
    case DocNode::Kind::map: {
      std::string out = "{";
      for (std::size_t i = 0; i < node.entries.size(); ++i)
        out += (i == 0 ? "" : ", ") + flow(*node.entries[i].key) + ": " + flow(*node.entries[i].value);
      return out + "}";
    }
  }
  return "";
}

std::int64_t bound(const DocNode& node, const char* key, std::int64_t fallback) {
  const DocPtr value = node.find(key);
  if (!value) return fallback;
  const auto number = parse_whole(value->text);
  if (value->kind != DocNode::Kind::scalar || !number)
    throw InputError(value->where(), "'" + std::string(key) + "' must be a whole number, not " + shown(*value));
  return *number;
}

/// Every choice of some of the listed ops: bit i of the number says whether op i is in.
std::vector<std::string> subsets(const DocNode& node) {
  const DocPtr list = node.find("subsets");
  for (const DocEntry& entry : node.entries)
    if (entry.key->text != "subsets" && entry.key->text != "at_least" && entry.key->text != "at_most")
      throw InputError(entry.key->where(),
                       "unknown key '" + entry.key->text + "' beside 'subsets'; expected one of: at_least, at_most");
  if (list->kind != DocNode::Kind::list || list->items.empty() || list->items.size() > max_subset_ops)
    throw InputError(list->where(), "'subsets' must be a list of 1 to " + std::to_string(max_subset_ops) +
                                        " ops, not " + shown(*list));
  const auto count = static_cast<std::int64_t>(list->items.size());
  const std::int64_t least = bound(node, "at_least", 1), most = bound(node, "at_most", count);
  std::vector<std::string> out;
  for (std::uint32_t chosen = 0; chosen < (1U << list->items.size()); ++chosen) {
    const int size = __builtin_popcount(chosen);
    if (size < least || size > most) continue;
    std::string text;
    for (std::size_t i = 0; i < list->items.size(); ++i)
      if ((chosen >> i & 1U) != 0) text += (text.empty() ? "" : ", ") + flow(*list->items[i]);
    out.push_back("[" + text + "]");
  }
  return out;
}

/// Keys that `block` knows, of one variant or of all.
std::vector<const Key*> keys_of(std::string_view block_name, const std::optional<std::string>& variant) {
  std::vector<const Key*> out;
  for (const Block& block : blocks())
    if (block.name == block_name && (!variant || block.variant == *variant))
      for (const Key& key : block.keys) out.push_back(&key);
  return out;
}

/// The kind that decides which keys a block has, where it is settled.
std::optional<std::string> settled_variant(std::string_view block_name, const DocNode& scenario,
                                           const std::vector<std::string>& keys) {
  const bool is_model = block_name == "model", is_policy = block_name == "policy";
  if (!is_model && !is_policy) return std::nullopt;
  const std::string kind = is_model ? "family" : "kind", name(block_name);
  if (std::ranges::find(keys, name) != keys.end() || std::ranges::find(keys, name + "." + kind) != keys.end())
    return std::nullopt;
  const DocPtr written = scenario.find(name);
  const DocPtr node = written ? expanded(written, name) : nullptr;
  const DocPtr given = node && node->kind == DocNode::Kind::map ? node->find(kind) : nullptr;
  const std::vector<std::string> known = variants(block_name);
  if (!given || std::ranges::find(known, given->text) == known.end()) return std::nullopt;
  return given->text;
}

}  // namespace

std::vector<std::string> axis_values(const DocNode& node) {
  if (node.kind == DocNode::Kind::list) {
    std::vector<std::string> out;
    for (const DocPtr& item : node.items) out.push_back(flow(*item));
    return out;
  }
  if (node.kind == DocNode::Kind::map && node.find("subsets")) return subsets(node);
  if (node.kind == DocNode::Kind::scalar)
    if (auto numbers = range_values(node.text, node.where())) return *numbers;
  return {flow(node)};
}

Axis parse_axis(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw InputError("--vary needs key.path=values, such as policy.interval=1..36, not '" + text + "'");
  const std::string values = text.substr(equals + 1);
  const DocPtr node = parse_yaml(values.empty() ? "[]" : values, {"--vary " + text, ""});
  return {text.substr(0, equals), axis_values(*node)};
}

void check_axis_key(const std::string& key, const SourceLoc& where, const DocNode& scenario,
                    const std::vector<std::string>& keys) {
  std::string_view block_name = "scenario";
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t dot = std::min(key.find('.', begin), key.size());
    const std::string part = key.substr(begin, dot - begin);
    if (block_name.empty()) throw InputError(where, "'" + key.substr(0, begin - 1) + "' has no keys below it to sweep");
    const std::vector<const Key*> known = keys_of(block_name, settled_variant(block_name, scenario, keys));
    const auto found = std::ranges::find(known, std::string_view(part), &Key::name);
    if (found == known.end()) {
      std::vector<std::string> names;
      for (const Key* one : known) names.emplace_back(one->name);
      const std::string near = nearest_name(part, names);
      throw InputError(where, "no key of a scenario is called '" + key.substr(0, dot) + "'" +
                                  (near.empty() ? "; expected one of: " + joined(names)
                                                : "; did you mean '" + key.substr(0, begin) + near + "'?"));
    }
    block_name = (*found)->block;
    begin = dot + 1;
  }
}

}  // namespace tidemark
