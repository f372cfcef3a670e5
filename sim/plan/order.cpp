#include "tidemark/plan/order.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "tidemark/base/errors.hpp"
#include "tidemark/plan/selection.hpp"

namespace tidemark {
namespace {

using Layers = std::span<const std::int32_t>;

class Ordering {
 public:
  Ordering(const Choices& choices, const Policy& policy, const Outline& outline)
      : choices_(choices), policy_(policy), outline_(outline), region_of_(outline.layers.size(), -1) {
    for (std::size_t r = 0; r < choices.regions.size(); ++r)
      for (const std::int32_t layer : choices.regions[r])
        region_of_[static_cast<std::size_t>(layer)] = static_cast<std::int32_t>(r);
    next_region_ = static_cast<std::int32_t>(choices.regions.size());
  }

  std::vector<PlanStep> steps() {
    if (outline_.is_whole_step) return whole_step();
    place_recomputes();
    forward();
    backward();
    return std::move(steps_);
  }

 private:
  const OutlineLayer& at(std::int32_t layer) const { return outline_.layers[static_cast<std::size_t>(layer)]; }
  const std::vector<OpChoice>& choices_of(std::int32_t layer) const {
    return choices_.ops[static_cast<std::size_t>(layer)];
  }
  OpChoice choice(OpRef op) const { return choices_of(op.layer)[static_cast<std::size_t>(op.op)]; }
  std::int32_t region_of(std::int32_t layer) const { return region_of_[static_cast<std::size_t>(layer)]; }
  std::int32_t op_count(std::int32_t layer) const { return static_cast<std::int32_t>(at(layer).ops.size()); }
  /// The first of these layers' ops to run backward.
  OpRef last_op(Layers layers) const {
    std::size_t i = layers.size() - 1;
    while (i > 0 && op_count(layers[i]) == 0) --i;
    return {layers[i], op_count(layers[i]) - 1};
  }
  /// The loss of a program runs as the loss step, not as a layer of its own.
  bool is_loss(std::int32_t layer) const { return !at(layer).is_block && at(layer).name == "loss"; }

  std::vector<PlanStep> whole_step() const;
  void forward();
  void backward();
  Keep keep_in(Layers region, std::int32_t layer) const;

  void place_recomputes();
  void place_region(const std::vector<std::int32_t>& layers, OpRef before);
  bool has_functions(Layers layers) const;
  void place_functions(Layers layers);
  void place_just_in_time();
  void place_nested(Layers layers, std::span<const int> levels, std::int32_t region);
  OpRef named_op(const std::vector<std::int32_t>& layers) const;
  void ops_taken_by(OpRef op, std::int32_t region, std::set<OpRef>& out) const;
  void place(OpRef before, std::int32_t layer, std::vector<std::int32_t> ops, Keep keep, std::int32_t region);
  std::span<const Discard> discards_of(std::int32_t layer) const;
  void place_discards();
  bool is_discarded(OpRef op) const;

  const Choices& choices_;
  const Policy& policy_;
  const Outline& outline_;
  std::vector<std::int32_t> region_of_;  // by layer
  std::int32_t next_region_ = 0;
  std::map<OpRef, std::vector<PlanStep>> before_;  // by the backward op they stand before
  std::set<OpRef> placed_;                         // just_in_time: ops that have run again
  std::vector<PlanStep> steps_;
};

/// The boundaries of a region stay for it: its first layer keeps its input, and so does one that reads past the region.
Keep Ordering::keep_in(Layers region, std::int32_t layer) const {
  if (layer == region.front()) return Keep::input;
  const bool reads_past_it = std::ranges::any_of(at(layer).ops, [&](const OutlineOp& op) {
    return std::ranges::any_of(op.inputs, [&](const OpRef& input) {
      return at(input.layer).is_block && !std::ranges::binary_search(region, input.layer);
    });
  });
  return reads_past_it ? Keep::input : Keep::none;
}

/// Every row once. A value goes after its last reader.
std::vector<PlanStep> Ordering::whole_step() const {
  if (!choices_.regions.empty())
    throw InputError(
        "the rows of this graph are the whole step: a policy finds no backward to recompute for; expected policy none, "
        "plan or sequence");
  std::vector<PlanStep> out;
  for (std::int32_t row = 0; row < static_cast<std::int32_t>(outline_.layers.size()); ++row)
    out.push_back({Action::forward, row, {}, Keep::none, -1});
  return out;
}

void Ordering::forward() {
  for (std::int32_t layer = 0; layer < static_cast<std::int32_t>(outline_.layers.size()); ++layer) {
    if (is_loss(layer)) continue;
    const std::int32_t region = region_of(layer);
    const Layers together = region < 0 ? Layers{} : Layers(choices_.regions[static_cast<std::size_t>(region)]);
    if (!together.empty() && std::ranges::all_of(together, [&](auto of) { return choices_.is_whole(of); })) {
      steps_.push_back({Action::forward, layer, {}, keep_in(together, layer), region});
      continue;
    }
    steps_.push_back({Action::forward, layer, {}, Keep::all, region});
    if (region < 0) continue;
    PlanStep drop{Action::drop, layer, {}, Keep::all, region};
    for (std::int32_t k = 0; k < op_count(layer); ++k)
      if (choice({layer, k}) != OpChoice::hold) drop.ops.push_back(k);
    if (drop.ops.empty()) continue;
    if (drop.ops.size() == at(layer).ops.size()) drop.ops.clear();
    steps_.push_back(drop);
  }
  steps_.push_back({Action::loss, -1, {}, Keep::all, -1});
}

void Ordering::backward() {
  for (auto layer = static_cast<std::int32_t>(outline_.layers.size()) - 1; layer >= 0; --layer) {
    std::int32_t end = op_count(layer);  // ops from here on have their backward behind them
    const auto run_down_to = [&](std::int32_t first) {
      PlanStep step{Action::backward, layer, {}, Keep::all, -1};
      const bool all = first == 0 && end == op_count(layer);
      for (std::int32_t k = first; k < end && !all; ++k) step.ops.push_back(k);
      steps_.push_back(step);
      end = first;
    };
    for (std::int32_t k = op_count(layer) - 1; k >= 0; --k) {
      const auto recomputes = before_.find({layer, k});
      if (recomputes == before_.end()) continue;
      if (k + 1 < end) run_down_to(k + 1);
      steps_.insert(steps_.end(), recomputes->second.begin(), recomputes->second.end());
    }
    run_down_to(0);
  }
}

void Ordering::place(OpRef before, std::int32_t layer, std::vector<std::int32_t> ops, Keep keep, std::int32_t region) {
  if (static_cast<std::int32_t>(ops.size()) == op_count(layer)) ops.clear();
  before_[before].push_back({Action::recompute, layer, std::move(ops), keep, region});
}

/// Of one layer; choices that no policy made have none.
std::span<const Discard> Ordering::discards_of(std::int32_t layer) const {
  const auto i = static_cast<std::size_t>(layer);
  return i < choices_.discards.size() ? std::span<const Discard>(choices_.discards[i]) : std::span<const Discard>();
}

bool Ordering::is_discarded(OpRef op) const {
  return std::ranges::any_of(discards_of(op.layer),
                             [&](const Discard& discard) { return std::ranges::binary_search(discard.ops, op.op); });
}

void Ordering::place_discards() {
  for (std::int32_t layer = 0; layer < static_cast<std::int32_t>(outline_.layers.size()); ++layer)
    for (const Discard& discard : discards_of(layer)) {
      const OpRef before{layer, discard.before};
      place(before, layer, discard.ops, Keep::all, region_of(layer));
      before_[before].back().refills = true;
    }
}

void Ordering::place_recomputes() {
  place_discards();
  if (policy_.schedule == RecomputeSchedule::just_in_time) return place_just_in_time();
  std::vector<std::int32_t> all_layers(outline_.layers.size());
  std::iota(all_layers.begin(), all_layers.end(), 0);
  for (const auto& layers : choices_.regions) {
    switch (policy_.schedule) {
      case RecomputeSchedule::just_in_time:
        break;
      case RecomputeSchedule::per_segment:
        if (has_functions(layers))
          place_functions(layers);
        else if (policy_.nested.empty())
          place_region(layers, last_op(layers));
        else
          place_nested(layers, policy_.nested, region_of(layers.front()));
        break;
      case RecomputeSchedule::up_front:
        place_region(layers, last_op(all_layers));
        break;
      case RecomputeSchedule::on_grad_of:
        place_region(layers, named_op(layers));
        break;
    }
  }
}

void Ordering::place_region(const std::vector<std::int32_t>& layers, OpRef before) {
  for (const std::int32_t layer : layers) {
    std::vector<std::int32_t> ops;
    for (std::int32_t k = 0; k < op_count(layer); ++k)
      if (choice({layer, k}) == OpChoice::rerun && !is_discarded({layer, k})) ops.push_back(k);
    if (!ops.empty()) place(before, layer, std::move(ops), Keep::all, region_of(layer));
  }
}

/// A framework carries the plan out, and of these layers only parts are checkpointed.
bool Ordering::has_functions(Layers layers) const {
  return policy_.checkpointing.kind != Checkpointing::Kind::direct &&
         std::ranges::any_of(layers, [&](std::int32_t layer) { return choices_.has_functions(layer); });
}

/// Each run of neighbouring ops, views between them included, is a function of its own.
void Ordering::place_functions(Layers layers) {
  std::int32_t region = region_of(layers.front());
  for (const std::int32_t layer : layers) {
    std::vector<std::int32_t> run, views;
    const auto close = [&] {
      views.clear();
      if (run.empty()) return;
      const OpRef last{layer, run.back()};
      place(last, layer, std::exchange(run, {}), Keep::all, region);
      region = next_region_++;
    };
    for (std::int32_t k = 0; k < op_count(layer); ++k) {
      if (choice({layer, k}) == OpChoice::rerun) {
        run.insert(run.end(), views.begin(), views.end());
        run.push_back(k);
        views.clear();
      } else if (!run.empty() && is_view(at(layer).ops[static_cast<std::size_t>(k)])) {
        views.push_back(k);
      } else {
        close();
      }
    }
    close();
  }
}

/// `levels` are the intervals left to split by, outermost first. The last inner region is rebuilt at once, so the run
/// that makes the inner regions' inputs stops before it.
void Ordering::place_nested(Layers layers, std::span<const int> levels, std::int32_t region) {
  const OpRef before = last_op(layers);
  while (!levels.empty() && static_cast<std::size_t>(levels.front()) >= layers.size()) levels = levels.subspan(1);
  if (levels.empty()) {
    for (const std::int32_t layer : layers) place(before, layer, {}, Keep::all, region);
    return;
  }
  const auto interval = static_cast<std::size_t>(levels.front());
  std::vector<Layers> inner;
  for (std::size_t first = 0; first < layers.size(); first += interval)
    inner.push_back(layers.subspan(first, std::min(interval, layers.size() - first)));
  for (std::size_t i = 0; i + 1 < inner.size(); ++i)
    for (const std::int32_t layer : inner[i]) place(before, layer, {}, keep_in(inner[i], layer), region);
  for (const Layers& part : inner) place_nested(part, levels.subspan(1), next_region_++);
}

/// Ops of the region that must run again so that `op` has what its backward takes: what it reads, and what that reads,
/// up to what is held.
void Ordering::ops_taken_by(OpRef op, std::int32_t region, std::set<OpRef>& out) const {
  std::vector<OpRef> pending = {op};
  while (!pending.empty()) {
    const OpRef next = pending.back();
    pending.pop_back();
    const bool again = choice(next) == OpChoice::rerun;
    if (again && (placed_.contains(next) || !out.insert(next).second)) continue;
    if (!again && next != op) continue;
    for (const OpRef& input : at(next.layer).ops[static_cast<std::size_t>(next.op)].inputs)
      if (region_of(input.layer) == region) pending.push_back(input);
  }
}

void Ordering::place_just_in_time() {
  for (auto layer = static_cast<std::int32_t>(outline_.layers.size()) - 1; layer >= 0; --layer)
    for (std::int32_t k = op_count(layer) - 1; k >= 0; --k) {
      const OpRef op{layer, k};
      if (choice(op) == OpChoice::hold) continue;
      std::set<OpRef> taken;  // in forward order
      ops_taken_by(op, region_of(layer), taken);
      placed_.insert(taken.begin(), taken.end());
      std::map<std::int32_t, std::vector<std::int32_t>> by_layer;
      for (const OpRef& t : taken) by_layer[t.layer].push_back(t.op);
      for (auto& [of, ops] : by_layer) place(op, of, std::move(ops), Keep::all, region_of(of));
    }
}

OpRef Ordering::named_op(const std::vector<std::int32_t>& layers) const {
  const std::int32_t layer = layers.back();
  const auto& ops = at(layer).ops;
  std::int32_t found = -1;
  for (std::int32_t k = 0; k < op_count(layer); ++k) {
    const OutlineOp& op = ops[static_cast<std::size_t>(k)];
    if (matches(policy_.on_grad_of, op)) found = k;
    if (op.name != policy_.on_grad_of) continue;
    found = k;
    break;
  }
  if (found < 0) {
    std::string known;
    for (const OutlineOp& op : ops) known += (known.empty() ? "" : ", ") + op.name;
    throw InputError("'on_grad_of' names no op '" + policy_.on_grad_of + "' of '" + at(layer).name +
                     "'; expected one of " + known);
  }
  for (std::int32_t k = found + 1; k < op_count(layer); ++k)
    if (choice({layer, k}) != OpChoice::hold)
      throw InputError("'on_grad_of: " + policy_.on_grad_of + "' is too late for '" +
                       ops[static_cast<std::size_t>(k)].name + "' of '" + at(layer).name +
                       "', which runs backward before it; expected that op or a later one");
  return {layer, found};
}

void check_settings(const Choices& choices, const Policy& policy) {
  if (policy.schedule == RecomputeSchedule::on_grad_of && policy.on_grad_of.empty())
    throw InputError("schedule on_grad_of needs the name of an op in 'on_grad_of'");
  if (policy.schedule != RecomputeSchedule::on_grad_of && !policy.on_grad_of.empty())
    throw InputError("'on_grad_of' has a meaning with schedule on_grad_of only");
  const bool discards = std::ranges::any_of(choices.discards, [](const auto& of) { return !of.empty(); });
  if (discards &&
      (policy.schedule != RecomputeSchedule::per_segment || policy.checkpointing.kind != Checkpointing::Kind::direct))
    throw InputError(
        "'discard' says itself when a module runs again; expected schedule per_segment and checkpointing direct");
  if (policy.nested.empty()) return;
  if (policy.schedule != RecomputeSchedule::per_segment)
    throw InputError("'nested' has a meaning with schedule per_segment only");
  for (const int interval : policy.nested)
    if (interval < 1) throw InputError("'nested' intervals must be at least 1, not " + std::to_string(interval));
  for (const auto& layers : choices.regions)
    for (const std::int32_t layer : layers)
      if (!choices.is_whole(layer)) throw InputError("'nested' needs a policy whose regions are whole blocks");
}

}  // namespace

Plan put_in_order(const Choices& choices, const Policy& policy, const Outline& outline) {
  check_settings(choices, policy);
  Plan plan;
  plan.warnings = choices.warnings;
  plan.steps = Ordering(choices, policy, outline).steps();
  for (const int interval : policy.nested)
    if (std::ranges::none_of(choices.regions,
                             [&](const auto& r) { return r.size() > static_cast<std::size_t>(interval); }))
      plan.warnings.push_back("nested interval " + std::to_string(interval) + " splits no region");
  return plan;
}

}  // namespace tidemark
