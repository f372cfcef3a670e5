#include "tidemark/input/stage_policies.hpp"

#include <fmt/core.h>

#include <array>
#include <string_view>
#include <utility>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/policy_reader.hpp"
#include "tidemark/input/quantities.hpp"
#include "tidemark/input/settings.hpp"
#include "tidemark/input/yaml_map.hpp"

namespace tidemark {
namespace {

std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
  return "'" + out + "'";
}

std::string list(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + quoted(word);
  return "[" + out + "]";
}

std::string layer_ranges(const std::vector<std::pair<int, int>>& layers) {
  std::string out;
  for (const auto& [first, last] : layers) out += fmt::format("{}{}-{}", out.empty() ? "" : ",", first, last);
  return "'" + out + "'";
}

std::string kind_text(const policy::None& /*none*/) { return "kind: none"; }
std::string kind_text(const policy::Full& /*full*/) { return "kind: full"; }
std::string kind_text(const policy::Interval& rule) {
  return fmt::format("kind: interval, interval: {}{}", rule.interval,
                     rule.checkpoint_last ? "" : ", checkpoint_last: false");
}
std::string kind_text(const policy::Sqrt& rule) {
  return std::string("kind: sqrt") + (rule.checkpoint_last ? "" : ", checkpoint_last: false");
}
std::string kind_text(const policy::Sequential& rule) {
  return fmt::format("kind: sequential, segments: {}", rule.segments);
}
std::string kind_text(const policy::Block& rule) { return fmt::format("kind: block, layers: {}", rule.layers); }
std::string kind_text(const policy::Whole& /*whole*/) { return "kind: whole"; }
std::string kind_text(const policy::Selective& rule) {
  std::string out = "kind: selective";
  if (!rule.recompute.empty()) out += ", recompute: " + list(rule.recompute);
  if (!rule.keep.empty()) out += ", keep: " + list(rule.keep);
  if (!rule.discard.empty()) out += ", discard: " + list(rule.discard);
  if (!rule.layers.empty()) out += ", layers: " + layer_ranges(rule.layers);
  if (rule.every != 1) out += fmt::format(", every: {}", rule.every);
  if (rule.interval != 1) out += fmt::format(", interval: {}", rule.interval);
  return out;
}
std::string kind_text(const policy::Rule& rule) {
  return fmt::format("kind: rule, attention_threshold: {} B, ffn_threshold: {} B, ffn_max_ratio: {}",
                     rule.attention_threshold.count, rule.ffn_threshold.count, rule.ffn_max_ratio);
}
std::string kind_text(const policy::Sequence& rule) { return "kind: plan, sequence: " + quoted(rule.sequence); }
std::string kind_text(const policy::Given& /*given*/) {
  check(false, "a finished plan is no rule that a stage's policy could be written as");
  return "";
}

std::string schedule_text(const Policy& policy) {
  switch (policy.schedule) {
    case RecomputeSchedule::per_segment:
      return "";
    case RecomputeSchedule::just_in_time:
      return ", schedule: just_in_time";
    case RecomputeSchedule::up_front:
      return ", schedule: up_front";
    case RecomputeSchedule::on_grad_of:
      return ", schedule: {on_grad_of: " + quoted(policy.on_grad_of) + "}";
  }
  return "";
}

std::string checkpointing_text(const Checkpointing& how) {
  if (how == Checkpointing{}) return "";
  constexpr std::array<std::string_view, 4> names = {"direct", "reentrant", "nonreentrant", "offload"};
  return fmt::format(", checkpointing: {{kind: {}{}{}{}}}", names[static_cast<std::size_t>(how.kind)],
                     how.early_stop ? "" : ", early_stop: false", how.preserve_rng ? "" : ", preserve_rng: false",
                     how.offload_parameters ? ", parameters: true" : "");
}

std::string offload_text(const Offload& offload) {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  if (!offload.modules.empty()) add("modules: " + list(offload.modules));
  if (!offload.layers.empty()) add("layers: " + layer_ranges(offload.layers));
  if (offload.min_size != Offload{}.min_size) add(fmt::format("min_size: {} B", offload.min_size.count));
  if (offload.fraction < 1) add(fmt::format("fraction: {}", offload.fraction));
  if (offload.prefetch != Offload{}.prefetch) add(fmt::format("prefetch: {}", offload.prefetch));
  if (offload.wait_after) add(fmt::format("wait_after: {}", *offload.wait_after));
  return ", offload: {" + out + "}";
}

}  // namespace

std::string write_policy(const Policy& policy) {
  if (policy == Policy{}) return "none";
  std::string out = std::visit([](const auto& rule) { return kind_text(rule); }, policy.kind);
  out += schedule_text(policy) + checkpointing_text(policy.checkpointing);
  if (policy.hold_boundaries) out += ", boundaries: hold";
  if (policy.offload) out += offload_text(*policy.offload);
  std::string nested;
  for (const int interval : policy.nested) nested += (nested.empty() ? "" : ", ") + std::to_string(interval);
  if (!nested.empty()) out += ", nested: [" + nested + "]";
  return "{" + out + "}";
}

std::string write_stage_policies(const std::vector<Policy>& policies) {
  std::string out = "stage_policies:\n";
  for (const Policy& policy : policies) out += "  - " + write_policy(policy) + "\n";
  return out;
}

std::vector<Policy> stage_policies(const Field& list) {
  std::vector<Policy> out;
  for (const Field& item : items(list)) {
    PolicyRequest request = read_policy(expanded(item.value, "policy"));
    if (!request.plan_file.empty()) item.fail("a stage's policy cannot be a plan's file; expected a rule");
    out.push_back(std::move(request.policy));
  }
  return out;
}

std::vector<Policy> read_stage_policies(const std::string& path) {
  const YamlMap map(read_yaml(path, "stages' policies (YAML)"), block("stage_plan"));
  return stage_policies(map.require("stage_policies"));
}

}  // namespace tidemark
