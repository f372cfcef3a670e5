#include "tidemark/input/study_file.hpp"

#include <algorithm>
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

constexpr std::size_t max_axis_values = 10'000'000;

[[noreturn]] void bad_range(const SourceLoc& where, const std::string& text) {
  throw InputError(where, "'" + text + "' must be a range such as 1..36, 8..64 by 8 or 1..64 x2");
}

/// Numbers of "A..B", "A..B by S", "A..B xF"; nothing where the text is no range.
std::optional<std::vector<std::string>> range(const std::string& text, const SourceLoc& where) {
  const std::size_t dots = text.find("..");
  if (dots == std::string::npos || dots == 0 || text[0] < '0' || text[0] > '9') return std::nullopt;
  std::string last = text.substr(dots + 2), rule;
  if (const std::size_t space = last.find(' '); space != std::string::npos) {
    rule = last.substr(space + 1);
    last = last.substr(0, space);
  }
  const auto from = parse_whole(text.substr(0, dots)), to = parse_whole(last);
  std::optional<std::int64_t> step = 1;
  const bool grows = rule.starts_with("x");
  if (grows) step = parse_whole(rule.substr(1));
  if (rule.starts_with("by ")) step = parse_whole(rule.substr(3));
  const bool known_rule = rule.empty() || grows || rule.starts_with("by ");
  if (!from || !to || !step || !known_rule || *from > *to || *step < (grows ? 2 : 1) || (grows && *from == 0))
    bad_range(where, text);
  std::vector<std::string> out;
  std::int64_t value = *from;
  while (value <= *to && out.size() <= max_axis_values) {
    out.push_back(std::to_string(value));
    const auto next = grows ? checked_product(value, *step) : checked_sum(value, *step);
    if (!next) break;
    value = *next;
  }
  if (out.size() > max_axis_values) throw InputError(where, "'" + text + "' has more than ten million values");
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

std::vector<std::string> values_of(const DocNode& node) {
  if (node.kind == DocNode::Kind::list) {
    std::vector<std::string> out;
    for (const DocPtr& item : node.items) out.push_back(flow(*item));
    return out;
  }
  if (node.kind == DocNode::Kind::scalar)
    if (auto numbers = range(node.text, node.where())) return *numbers;
  return {flow(node)};
}

/// An axis must name a key that some block of a scenario knows: a misspelt one would fail at every point.
void check_key(const std::string& key, const SourceLoc& where) {
  std::vector<std::string> known;
  for (const Block& block : blocks())
    for (const Key& entry : block.keys) known.emplace_back(entry.name);
  std::size_t begin = 0;
  while (begin <= key.size()) {
    const std::size_t dot = std::min(key.find('.', begin), key.size());
    const std::string part = key.substr(begin, dot - begin);
    if (std::ranges::find(known, part) == known.end()) {
      const std::string near = nearest_name(part, known);
      throw InputError(where, "no key of a scenario is called '" + part + "'" +
                                  (near.empty() ? "" : "; did you mean '" + near + "'?"));
    }
    begin = dot + 1;
  }
}

DocPtr without_sweep(const DocPtr& document) {
  auto out = std::make_shared<DocNode>(*document);
  std::erase_if(out->entries, [](const DocEntry& entry) { return entry.key->text == "sweep"; });
  return out;
}

}  // namespace

Axis parse_axis(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw InputError("--vary needs key.path=values, such as policy.interval=1..36, not '" + text + "'");
  const std::string values = text.substr(equals + 1);
  const DocPtr node = parse_yaml(values.empty() ? "[]" : values, {"--vary " + text, ""});
  return {text.substr(0, equals), values_of(*node)};
}

Study read_study(const std::string& path, const std::vector<std::string>& vary) {
  const DocPtr document = read_yaml(path, "a study (YAML)");
  Study out{without_sweep(document), path, {}};
  if (const DocPtr sweep = document->find("sweep")) {
    if (sweep->kind != DocNode::Kind::map)
      throw InputError(sweep->where(), "'sweep' must be a map from key paths to values, not " + shown(*sweep));
    for (const DocEntry& entry : sweep->entries) {
      Axis axis{entry.key->text, values_of(*entry.value)};
      if (axis.values.empty()) throw InputError(entry.value->where(), "'" + axis.key + "' has no values to sweep");
      check_key(axis.key, entry.key->where());
      out.axes.push_back(std::move(axis));
    }
  }
  for (const std::string& text : vary) {
    Axis axis = parse_axis(text);
    check_key(axis.key, {"--vary " + text});
    if (axis.values.empty()) throw InputError({"--vary " + text}, "no values to sweep");
    const auto same = std::ranges::find(out.axes, axis.key, &Axis::key);
    if (same == out.axes.end())
      out.axes.push_back(std::move(axis));
    else
      *same = std::move(axis);
  }
  if (out.axes.empty()) throw InputError({path}, "nothing to sweep: give a 'sweep' block or --vary key=values");
  return out;
}

Scenario scenario_at(const Study& study, const std::vector<std::string>& values) {
  DocPtr document = study.scenario;
  for (std::size_t i = 0; i < study.axes.size(); ++i) {
    const std::string& key = study.axes[i].key;
    document = with_value(document, key, values[i], key + "=" + values[i]);
  }
  return read_scenario_document(document, study.file);
}

}  // namespace tidemark
