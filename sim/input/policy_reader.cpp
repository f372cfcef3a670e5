#include "tidemark/input/policy_reader.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "tidemark/input/plan_file.hpp"
#include "tidemark/input/quantities.hpp"
#include "tidemark/input/settings.hpp"
#include "tidemark/plan/discards.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t max_blocks = 1'000'000;

/// Planners decide by simulating: `tidemark plan` asks them, and a scenario takes what they write.
constexpr std::array<std::string_view, 11> planners = {"chen",        "revolve",     "mixed",    "two_level",
                                                       "rotor",       "rotor_tight", "knapsack", "checkmate",
                                                       "chain_exact", "dtr",         "search"};

int count(const Field& field) { return static_cast<int>(positive_integer(field, max_blocks)); }

std::string kind_of(const DocPtr& node) {
  const Key& key = *block("policy", "none").find("kind");
  const DocPtr value = node->kind == DocNode::Kind::map ? node->find("kind") : nullptr;
  if (node->kind == DocNode::Kind::map && !value) throw InputError(node->where(), "missing key 'kind' in 'policy'");
  const Field field{&key, value ? value : node};
  if (std::ranges::find(planners, field.value->text) != planners.end())
    field.fail(fmt::format("{} is a planner; expected a rule, or the plan that tidemark plan --method {} writes",
                           shown(*field.value), field.value->text));
  return choice(field);
}

policy::Selective selective(const YamlMap& map) {
  policy::Selective out;
  out.recompute = map.get("recompute", texts, out.recompute);
  out.keep = map.get("keep", texts, out.keep);
  out.layers = map.get("layers", ranges, out.layers);
  out.every = map.get("every", count, out.every);
  out.interval = map.get("interval", count, out.interval);
  out.discard = map.get("discard", texts, out.discard);
  if (const auto field = map.optional("discard"))
    for (const std::string& module : out.discard)
      if (std::ranges::find(discarding_modules, module) == discarding_modules.end())
        field->fail(fmt::format("'{}' is no module that discards its output; known are: {}", module,
                                joined({discarding_modules.begin(), discarding_modules.end()})));
  return out;
}

policy::Rule rule(const YamlMap& map) {
  policy::Rule out;
  out.attention_threshold = map.get("attention_threshold", size, out.attention_threshold);
  out.ffn_threshold = map.get("ffn_threshold", size, out.ffn_threshold);
  out.ffn_max_ratio = map.get("ffn_max_ratio", probability, out.ffn_max_ratio);
  return out;
}

PolicyKind policy_kind(const std::string& kind, const YamlMap& map) {
  if (kind == "full") return policy::Full{};
  if (kind == "interval")
    return policy::Interval{count(map.require("interval")), map.get("checkpoint_last", boolean, true)};
  if (kind == "sqrt") return policy::Sqrt{map.get("checkpoint_last", boolean, true)};
  if (kind == "sequential") return policy::Sequential{count(map.require("segments"))};
  if (kind == "block") return policy::Block{static_cast<int>(whole_number(map.require("layers"), 0, max_blocks))};
  if (kind == "whole") return policy::Whole{};
  if (kind == "selective") return selective(map);
  if (kind == "rule") return rule(map);
  return policy::None{};
}

void read_plan_policy(const YamlMap& map, PolicyRequest& request) {
  const auto sequence = map.optional("sequence");
  const auto file = map.optional("file");
  if (sequence.has_value() == file.has_value())
    throw InputError(map.where(), "policy 'plan' needs one of 'sequence' and 'file'");
  if (sequence) request.policy.kind = policy::Sequence{text(*sequence)};
  if (file) request.plan_file = path(*file);
}

Offload offload(const YamlMap& map) {
  Offload out;
  out.modules = map.get("modules", texts, out.modules);
  out.layers = map.get("layers", ranges, out.layers);
  out.min_size = map.get("min_size", size, out.min_size);
  out.fraction = map.get("fraction", probability, out.fraction);
  const auto blocks = [](const Field& field) { return static_cast<int>(whole_number(field, 0, max_blocks)); };
  out.prefetch = map.get("prefetch", blocks, out.prefetch);
  if (const auto field = map.optional("wait_after")) out.wait_after = blocks(*field);
  return out;
}

void read_schedule(const YamlMap& map, Policy& policy) {
  const auto field = map.optional("schedule");
  if (!field) return;
  if (field->value->kind == DocNode::Kind::map) {
    policy.schedule = RecomputeSchedule::on_grad_of;
    policy.on_grad_of = text(YamlMap(field->value, block("schedule")).require("on_grad_of"));
    return;
  }
  const std::string name = field->value->text;
  if (field->value->kind == DocNode::Kind::scalar && name == "on_grad_of")
    field->fail("schedule on_grad_of needs an op: write {on_grad_of: name}");
  const std::string chosen = choice(*field);
  policy.schedule = chosen == "just_in_time" ? RecomputeSchedule::just_in_time
                    : chosen == "up_front"   ? RecomputeSchedule::up_front
                                             : RecomputeSchedule::per_segment;
}

}  // namespace

PolicyRequest read_policy(const DocPtr& written) {
  const DocPtr node = expanded(written, "policy");
  const std::string kind = kind_of(node);
  const YamlMap map(node, block("policy", kind));
  PolicyRequest request;
  request.policy.kind = policy_kind(kind, map);
  if (kind == "plan") read_plan_policy(map, request);
  const auto moved = map.optional("offload");
  if (moved && kind == "offload") moved->fail("policy offload has the keys of 'offload' itself");
  if (kind == "offload") request.policy.offload = offload(map);
  if (moved) request.policy.offload = offload(YamlMap(moved->value, block("offload")));
  read_schedule(map, request.policy);
  request.policy.hold_boundaries = map.get("boundaries", choice, std::string("release")) == "hold";
  if (const auto how = map.optional("checkpointing")) request.policy.checkpointing = read_checkpointing(how->value);
  if (const auto nested = map.optional("nested"))
    for (const std::int64_t interval : positive_integers(*nested, max_blocks))
      request.policy.nested.push_back(static_cast<int>(interval));
  return request;
}

}  // namespace tidemark
