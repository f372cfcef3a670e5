#include "torch_plans.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "csv.hpp"

namespace tidemark::test {
namespace {

using Settings = std::map<std::string, std::string>;

std::string get(const Settings& s, const std::string& key, const std::string& otherwise) {
  const auto found = s.find(key);
  return found == s.end() ? otherwise : found->second;
}

/// Blocks [first, end) of each checkpointed region.
std::vector<std::pair<int, int>> regions_of(const Settings& policy, int blocks) {
  std::vector<std::pair<int, int>> out;
  const std::string kind = policy.at("kind");
  if (kind == "every") {
    const int k = std::stoi(policy.at("K"));
    for (int first = 0; first < blocks; first += k)
      if (first + k < blocks || policy.at("last") == "1") out.emplace_back(first, std::min(first + k, blocks));
  } else if (kind == "sequential") {
    const int segments = std::stoi(policy.at("segments"));
    for (int i = 0; i + 1 < segments; ++i) out.emplace_back(i * (blocks / segments), (i + 1) * (blocks / segments));
  } else if (kind == "mask") {
    const std::vector<std::string> mask = split(policy.at("mask"), '/');
    for (int i = 0; i < blocks; ++i)
      if (mask[static_cast<std::size_t>(i)] == "1") out.emplace_back(i, i + 1);
  }
  return out;
}

/// aten's name of an op, as selective checkpointing's policy function sees it.
std::string aten_name(const ProgramOp& op) {
  switch (op.kind) {
    case OpKind::matmul:
      return "mm";
    case OpKind::addmm:
      return "addmm";
    case OpKind::bmm:
      return "bmm";
    case OpKind::relu:
      return "relu";
    case OpKind::softmax:
      return "_softmax";
    default:
      return "";
  }
}

PlanStep plan_step(Action action, int layer, Keep keep = Keep::all, int region = -1) {
  PlanStep step;
  step.action = action;
  step.layer = layer;
  step.keep = keep;
  step.region = region;
  return step;
}

}  // namespace

Plan torch_plan(const Program& program, const Settings& policy) {
  Plan plan;
  std::vector<int> blocks, region_of(program.layers.size(), -1);
  for (std::size_t i = 0; i < program.layers.size(); ++i)
    if (program.layers[i].is_block) blocks.push_back(static_cast<int>(i));
  const auto regions = regions_of(policy, static_cast<int>(blocks.size()));
  for (std::size_t r = 0; r < regions.size(); ++r)
    for (int i = regions[r].first; i < regions[r].second; ++i)
      region_of[static_cast<std::size_t>(blocks[static_cast<std::size_t>(i)])] = static_cast<int>(r);
  const bool core = get(policy, "what", "") == "core";
  std::vector<std::vector<std::int32_t>> local(program.layers.size());  // ops recomputed, when not the whole layer
  std::map<std::string, int> seen;
  const std::vector<std::string> keeps = split(get(policy, "sac", ""), '/');
  std::vector<std::int32_t> next(program.layers.size(), 0);
  int previous_region = -1;
  for (const ProgramOp& op : program.ops) {
    const auto layer = static_cast<std::size_t>(op.layer);
    const std::int32_t index = next[layer]++;
    if (core) {
      if (op.name.find(".core.") != std::string::npos) local[layer].push_back(index);
      if (program.layers[layer].is_block) region_of[layer] = static_cast<int>(layer);
    } else if (policy.count("sac") != 0 && region_of[layer] >= 0) {
      if (region_of[layer] != previous_region) seen.clear();
      previous_region = region_of[layer];
      bool kept = false;
      for (std::size_t i = 0; i < keeps.size(); ++i) {
        const bool second = i + 1 < keeps.size() && keeps[i + 1] == "2";
        if (keeps[i] != aten_name(op)) continue;
        kept = !second || ++seen[keeps[i]] % 2 == 0;
      }
      if (!kept) local[layer].push_back(index);
    }
  }
  const int n = static_cast<int>(program.layers.size());
  for (int i = 0; i < n; ++i) {
    const int r = region_of[static_cast<std::size_t>(i)];
    if (program.layers[static_cast<std::size_t>(i)].name == "loss") continue;
    if (core && r >= 0) {
      plan.steps.push_back(plan_step(Action::forward, i));
      plan.steps.push_back(plan_step(Action::drop, i));
      plan.steps.back().ops = local[static_cast<std::size_t>(i)];
      continue;
    }
    const bool first = i == 0 || region_of[static_cast<std::size_t>(i - 1)] != r;
    plan.steps.push_back(plan_step(Action::forward, i, r < 0 ? Keep::all : first ? Keep::input : Keep::none, r));
  }
  plan.steps.push_back(plan_step(Action::loss, -1));
  int open = -1;
  for (int i = n; i-- > 0;) {
    const int r = region_of[static_cast<std::size_t>(i)];
    if (r >= 0 && r != open)
      for (int j = 0; j <= i; ++j)
        if (region_of[static_cast<std::size_t>(j)] == r) {
          plan.steps.push_back(plan_step(Action::recompute, j, Keep::all, r));
          plan.steps.back().ops = local[static_cast<std::size_t>(j)];
        }
    open = r;
    plan.steps.push_back(plan_step(Action::backward, i));
  }
  plan.checkpointing.kind =
      get(policy, "reentrant", "0") == "1" ? Checkpointing::Kind::reentrant : Checkpointing::Kind::nonreentrant;
  if (policy.at("kind") == "offload") {
    plan.checkpointing.kind = Checkpointing::Kind::offload;
    plan.checkpointing.offload_parameters = get(policy, "params", "0") == "1";
    for (PlanStep& step : plan.steps)
      if (step.action == Action::forward && program.layers[static_cast<std::size_t>(step.layer)].is_block)
        step.region = 0;
  }
  plan.checkpointing.early_stop = get(policy, "early", "1") == "1";
  plan.checkpointing.preserve_rng = get(policy, "rng", "0") == "1";
  return plan;
}

Training torch_training(const std::map<std::string, std::string>& row) {
  Training t;
  t.profile.runtime = "pytorch-" + row.at("version");
  t.profile.kernels = "cpu-" + row.at("version");
  const std::string& o = row.at("optimizer");
  if (o == "sgd") t.optimizer.kind = OptimizerKind::sgd;
  if (o == "sgdm") t.optimizer.kind = OptimizerKind::momentum;
  if (o.starts_with("adam")) t.optimizer.kind = o.starts_with("adamw") ? OptimizerKind::adamw : OptimizerKind::adam;
  t.optimizer.multi_tensor = o == "adam_foreach";
  t.optimizer.fused = o == "adamw_fused";
  t.optimizer.zero_grad_to_none = row.at("zero_grad") != "zero";
  t.batch.accumulate = std::stoi(row.at("micro_batches"));
  t.loop.steps = std::stoi(row.at("warm")) + 1;
  return t;
}

}  // namespace tidemark::test
