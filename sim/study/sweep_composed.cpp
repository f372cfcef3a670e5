#include "tidemark/study/sweep_composed.hpp"

#include <algorithm>
#include <utility>

#include "tidemark/base/errors.hpp"
#include "tidemark/base/units.hpp"
#include "tidemark/input/policy_reader.hpp"
#include "tidemark/input/settings.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t fewest_policies = 8;   // that pay for a setting's composer
constexpr std::size_t most_nodes = 100'000;   // of an axis that are kept as they are read
constexpr std::size_t most_settings = 64;     // kept at a time; a study has few, or few points of each
constexpr std::size_t most_libraries = 4096;  // of all settings; a few ten kilobytes each

bool is_policy(const std::string& key) { return key == "policy" || key.starts_with("policy."); }

/// The document without its policy, or with that alone.
DocPtr only(const DocPtr& document, bool policy) {
  auto out = std::make_shared<DocNode>(*document);
  std::erase_if(out->entries, [&](const DocEntry& entry) { return is_policy(entry.key->text) != policy; });
  return out;
}

}  // namespace

ComposedPoints::ComposedPoints(const Study& study) : study_(study), policy_(only(study.scenario, true)) {
  for (const std::size_t axis : setting_order(study))
    (is_policy(study.axes[axis].key) ? policy_axes_ : other_axes_).push_back(axis);
  std::optional<std::int64_t> policies = 1;
  for (const auto& together : study.dimensions) {
    const bool varies = std::ranges::any_of(together, [&](std::size_t i) { return is_policy(study.axes[i].key); });
    if (varies && policies)
      policies = checked_product(*policies, static_cast<std::int64_t>(study.axes[together.front()].values.size()));
  }
  worthwhile_ = !policy_axes_.empty() && (!policies || *policies >= fewest_policies);
  nodes_.resize(study.axes.size());
  if (!worthwhile_) return;
  for (const std::size_t axis : policy_axes_) {
    const std::size_t count = study.axes[axis].values.size();
    if (count > most_nodes) continue;
    std::vector<DocPtr> nodes;
    for (std::size_t choice = 0; choice < count; ++choice) nodes.push_back(value_node(axis, choice));
    nodes_[axis] = std::move(nodes);
  }
}

/// Null where the text is no YAML: its point will say so.
DocPtr ComposedPoints::value_node(std::size_t axis, std::size_t choice) const {
  if (!nodes_[axis].empty()) return nodes_[axis][choice];
  const Axis& of = study_.axes[axis];
  try {
    return setting_node(of.values[choice], of.key + "=" + of.values[choice]);
  } catch (const InputError&) {
    return nullptr;
  }
}

Policy ComposedPoints::policy_at(const std::vector<std::size_t>& choices) const {
  DocPtr document = policy_;
  for (const std::size_t axis : policy_axes_) {
    const DocPtr node = value_node(axis, choices[axis]);
    if (!node) throw NotComposable{"a value is no YAML"};
    document = with_node(document, study_.axes[axis].key, node);
  }
  PolicyRequest request = read_policy(document->find("policy"));
  if (!request.plan_file.empty()) throw NotComposable{"a plan is simulated"};
  return std::move(request.policy);
}

std::unique_ptr<Composer> ComposedPoints::make_composer(const std::vector<std::size_t>& choices) const {
  try {
    DocPtr document = only(study_.scenario, false);
    for (const std::size_t axis : other_axes_) {
      const Axis& of = study_.axes[axis];
      document = with_value(document, of.key, of.values[choices[axis]], of.key);
    }
    return std::make_unique<Composer>(read_scenario_document(document, study_.file));
  } catch (const NotComposable&) {
  } catch (const InputError&) {
  }
  return nullptr;
}

std::shared_ptr<ComposedPoints::Setting> ComposedPoints::setting(const std::vector<std::size_t>& choices) {
  std::vector<std::size_t> key;
  for (const std::size_t axis : other_axes_) key.push_back(choices[axis]);
  std::shared_ptr<Setting> found;
  {
    const std::lock_guard<std::mutex> guard(lock_);
    if (settings_.size() >= most_settings && !settings_.contains(key)) forget();
    std::shared_ptr<Setting>& place = settings_[key];
    if (!place) place = std::make_shared<Setting>();
    found = place;
  }
  std::call_once(found->made, [&] { found->composer = make_composer(choices); });
  if (found->composer) count(*found);
  return found;
}

/// A row that is being made keeps its setting until it is done.
void ComposedPoints::forget() {
  settings_.clear();
  libraries_ = 0;
}

void ComposedPoints::count(Setting& of) {
  if (of.composer->libraries() == of.counted) return;
  const std::lock_guard<std::mutex> guard(lock_);
  const std::size_t now = of.composer->libraries();
  libraries_ += now - of.counted.exchange(now);
  if (libraries_ > most_libraries) forget();
}

std::optional<SweepRow> ComposedPoints::row(std::int64_t index) {
  if (!worthwhile_) return std::nullopt;
  const std::vector<std::size_t> choices = choices_at(study_, index);
  const std::shared_ptr<Setting> at = setting(choices);
  if (!at->composer) return std::nullopt;
  try {
    const std::optional<Summary> summary = at->composer->summary(policy_at(choices));
    if (!summary) return std::nullopt;
    return make_row(row_start(study_, index), *summary, SweepMethod::composed);
  } catch (const NotComposable&) {
  } catch (const InputError&) {  // the simulation says what is wrong
  }
  return std::nullopt;
}

}  // namespace tidemark
