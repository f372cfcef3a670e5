#include "tidemark/plan/describe.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "tidemark/plan/choices.hpp"

namespace tidemark {
namespace {

std::string count_of(std::size_t n, const std::string& thing) {
  return std::to_string(n) + " " + thing + (n == 1 ? "" : "s");
}

std::string joined(const std::vector<std::string>& names) {
  constexpr std::size_t most = 6;
  std::string out;
  for (std::size_t i = 0; i < names.size() && i < most; ++i) out += (i == 0 ? "" : ", ") + names[i];
  return out + (names.size() > most ? ", ..." : "");
}

/// How often each op runs again.
struct Reruns {
  std::set<std::int32_t> whole;                          // layers of which every op does
  std::map<std::int32_t, std::set<std::int32_t>> parts;  // layers of which some do, and which
  std::size_t runs = 0;                                  // of whole layers, each time counted
  std::set<std::int32_t> regions;
};

Reruns count_reruns(const Plan& plan, const Outline& outline) {
  Reruns out;
  for (const PlanStep& step : plan.steps) {
    if (step.action != Action::recompute) continue;
    auto& ops = out.parts[step.layer];
    const std::size_t count = outline.layers[static_cast<std::size_t>(step.layer)].ops.size();
    if (step.ops.empty()) {
      ++out.runs;
      for (std::size_t k = 0; k < count; ++k) ops.insert(static_cast<std::int32_t>(k));
    }
    ops.insert(step.ops.begin(), step.ops.end());
    if (ops.size() == count) out.whole.insert(step.layer);
  }
  for (const std::int32_t layer : out.whole) out.parts.erase(layer);
  for (const PlanStep& step : plan.steps)
    if (step.action == Action::forward && step.region >= 0 && out.whole.contains(step.layer))
      out.regions.insert(step.region);
  return out;
}

}  // namespace

std::string describe(const Plan& plan, const Outline& outline) {
  const Reruns reruns = count_reruns(plan, outline);
  const std::string of_all = " of " + count_of(block_layers(outline).size(), "block");
  std::string out;
  if (!reruns.whole.empty()) {
    out = std::to_string(reruns.whole.size()) + of_all + (reruns.whole.size() == 1 ? " runs again" : " run again");
    if (!reruns.regions.empty()) out += ", in " + count_of(reruns.regions.size(), "region");
    if (reruns.runs > reruns.whole.size()) out += ", " + std::to_string(reruns.runs) + " times in all";
  }
  // Blocks that run the same ops again stand together, in the order of their first.
  std::vector<std::pair<std::vector<std::string>, std::size_t>> parts;
  for (const auto& [layer, ops] : reruns.parts) {
    std::vector<std::string> names;
    for (const std::int32_t k : ops)
      names.push_back(outline.layers[static_cast<std::size_t>(layer)].ops[static_cast<std::size_t>(k)].name);
    const auto found = std::ranges::find(parts, names, [](const auto& part) { return part.first; });
    if (found == parts.end())
      parts.emplace_back(names, 1);
    else
      ++found->second;
  }
  for (const auto& [names, blocks] : parts)
    out += (out.empty() ? "" : "; ") + count_of(names.size(), "op") + " of " + std::to_string(blocks) + of_all +
           " run again: " + joined(names);
  if (plan.checkpointing.kind == Checkpointing::Kind::offload) {
    std::set<std::int32_t> moved;
    for (const PlanStep& step : plan.steps)
      if (step.action == Action::forward && step.region >= 0) moved.insert(step.layer);
    if (!moved.empty()) return "what " + std::to_string(moved.size()) + of_all + " save is copied out and back";
  }
  return out.empty() ? "nothing runs again" : out;
}

}  // namespace tidemark
