#include "tidemark/input/study_file.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "tidemark/base/errors.hpp"
#include "tidemark/base/units.hpp"
#include "tidemark/input/settings.hpp"

namespace tidemark {
namespace {

DocPtr without_sweep(const DocPtr& document) {
  auto out = std::make_shared<DocNode>(*document);
  std::erase_if(out->entries, [](const DocEntry& entry) { return entry.key->text == "sweep"; });
  return out;
}

/// Collects axes in the order written, and what binds them.
class StudyReader {
 public:
  explicit StudyReader(Study& out) : out_(out) {}

  void read_block(const DocNode& sweep) {
    if (sweep.kind != DocNode::Kind::map)
      throw InputError(sweep.where(), "'sweep' must be a map from key paths to values, not " + shown(sweep));
    for (const DocEntry& entry : sweep.entries) {
      if (entry.key->text == "zip") {
        read_zips(entry.value);
      } else if (entry.key->text == "where") {
        conditions_ = entry.value;
      } else {
        out_.dimensions.push_back({add_axis(entry)});
      }
    }
  }

  void vary(const std::string& text) {
    Axis axis = parse_axis(text);
    const SourceLoc where{"--vary " + text};
    if (axis.values.empty()) throw InputError(where, "no values to sweep");
    const auto same = std::ranges::find(out_.axes, axis.key, &Axis::key);
    if (same != out_.axes.end()) {
      *same = std::move(axis);
      return;
    }
    out_.dimensions.push_back({out_.axes.size()});
    places_.push_back(where);
    out_.axes.push_back(std::move(axis));
  }

  void finish() {
    std::vector<std::string> keys;
    for (const Axis& axis : out_.axes) keys.push_back(axis.key);
    for (std::size_t i = 0; i < keys.size(); ++i) check_axis_key(keys[i], places_[i], *out_.scenario, keys);
    for (const auto& together : out_.dimensions)
      for (const std::size_t i : together) check_zipped(out_.axes[together.front()], out_.axes[i], places_[i]);
    if (conditions_) read_conditions(keys);
  }

 private:
  std::size_t add_axis(const DocEntry& entry) {
    Axis axis{entry.key->text, axis_values(*entry.value)};
    if (axis.values.empty()) throw InputError(entry.value->where(), "'" + axis.key + "' has no values to sweep");
    if (std::ranges::find(out_.axes, axis.key, &Axis::key) != out_.axes.end())
      throw InputError(entry.key->where(), "'" + axis.key + "' is swept twice");
    out_.axes.push_back(std::move(axis));
    places_.push_back(entry.key->where());
    return out_.axes.size() - 1;
  }

  /// One map of axes, or a list of such maps.
  void read_zips(const DocPtr& node) {
    const std::vector<DocPtr> zips = node->kind == DocNode::Kind::list ? node->items : std::vector<DocPtr>{node};
    for (const DocPtr& zip : zips) {
      if (zip->kind != DocNode::Kind::map)
        throw InputError(zip->where(), "'zip' must be a map from key paths to values, not " + shown(*zip));
      if (zip->entries.empty()) throw InputError(zip->where(), "'zip' has no key paths to vary together");
      std::vector<std::size_t> together;
      for (const DocEntry& entry : zip->entries) together.push_back(add_axis(entry));
      out_.dimensions.push_back(std::move(together));
    }
  }

  static void check_zipped(const Axis& first, const Axis& other, const SourceLoc& where) {
    if (first.values.size() != other.values.size())
      throw InputError(where, "'" + other.key + "' has " + std::to_string(other.values.size()) + " values and '" +
                                  first.key + "' " + std::to_string(first.values.size()) +
                                  "; expected as many of each in a zip");
  }

  void read_conditions(const std::vector<std::string>& keys) {
    const bool many = conditions_->kind == DocNode::Kind::list;
    for (const DocPtr& line : many ? conditions_->items : std::vector<DocPtr>{conditions_}) {
      if (line->kind != DocNode::Kind::scalar)
        throw InputError(line->where(), "'where' must be a condition or a list of them, not " + shown(*line));
      out_.conditions.push_back(parse_condition(line->text, line->where(), [&](const std::string& word) {
        return std::ranges::find(keys, word) != keys.end();
      }));
    }
  }

  Study& out_;
  std::vector<SourceLoc> places_;  // by axis: where its key stands
  DocPtr conditions_;
};

std::size_t length(const Study& study, const std::vector<std::size_t>& together) {
  return study.axes[together.front()].values.size();
}

/// A plain value that the scenario itself gives.
std::optional<std::string> given(const DocPtr& scenario, const std::string& key) {
  DocPtr node = scenario;
  for (std::size_t begin = 0; begin <= key.size() && node;) {
    const std::size_t dot = std::min(key.find('.', begin), key.size());
    if (begin > 0) node = expanded(node, key.substr(0, begin - 1));
    node = node->kind == DocNode::Kind::map ? node->find(key.substr(begin, dot - begin)) : nullptr;
    begin = dot + 1;
  }
  if (!node || node->kind != DocNode::Kind::scalar) return std::nullopt;
  return node->text;
}

}  // namespace

Study read_study(const std::string& path, const std::vector<std::string>& vary) {
  const DocPtr document = read_yaml(path, "a study (YAML)");
  Study out;
  out.scenario = without_sweep(document);
  out.file = path;
  StudyReader reader(out);
  if (const DocPtr sweep = document->find("sweep")) reader.read_block(*sweep);
  for (const std::string& text : vary) reader.vary(text);
  reader.finish();
  if (out.axes.empty()) throw InputError({path}, "nothing to sweep: give a 'sweep' block or --vary key=values");
  return out;
}

std::optional<std::int64_t> grid_size(const Study& study) {
  std::optional<std::int64_t> places = 1;
  for (const auto& together : study.dimensions)
    if (places) places = checked_product(*places, static_cast<std::int64_t>(length(study, together)));
  return places;
}

std::vector<std::size_t> choices_at(const Study& study, std::int64_t index) {
  std::vector<std::size_t> out(study.axes.size());
  for (std::size_t d = study.dimensions.size(); d-- > 0;) {
    const auto count = static_cast<std::int64_t>(length(study, study.dimensions[d]));
    for (const std::size_t axis : study.dimensions[d]) out[axis] = static_cast<std::size_t>(index % count);
    index /= count;
  }
  return out;
}

std::vector<std::string> values_at(const Study& study, std::int64_t index) {
  const std::vector<std::size_t> choices = choices_at(study, index);
  std::vector<std::string> out;
  for (std::size_t i = 0; i < choices.size(); ++i) out.push_back(study.axes[i].values[choices[i]]);
  return out;
}

std::vector<std::size_t> setting_order(const Study& study) {
  std::vector<std::size_t> order(study.axes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_partition(order.begin(), order.end(), [&](std::size_t i) {
    const std::string& key = study.axes[i].key;
    return key.find('.') == std::string::npos || key.ends_with(".kind");
  });
  return order;
}

bool is_wanted(const Study& study, std::int64_t index) {
  if (study.conditions.empty()) return true;
  const std::vector<std::size_t> choices = choices_at(study, index);
  const auto value_of = [&](const std::string& key) -> std::optional<std::string> {
    for (std::size_t i = 0; i < choices.size(); ++i)
      if (study.axes[i].key == key) return study.axes[i].values[choices[i]];
    return given(study.scenario, key);
  };
  return std::ranges::all_of(study.conditions, [&](const Condition& condition) { return holds(condition, value_of); });
}

Scenario scenario_at(const Study& study, const std::vector<std::string>& values) {
  DocPtr document = study.scenario;
  for (const std::size_t i : setting_order(study)) {
    const std::string& key = study.axes[i].key;
    document = with_value(document, key, values[i], key + "=" + values[i]);
  }
  return read_scenario_document(document, study.file);
}

}  // namespace tidemark
