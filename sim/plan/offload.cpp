#include "tidemark/plan/offload.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "tidemark/base/errors.hpp"
#include "tidemark/plan/block_regions.hpp"
#include "tidemark/plan/choices.hpp"
#include "tidemark/plan/selection.hpp"

namespace tidemark {
namespace {

bool is_copy(const PlanStep& step) {
  return step.action == Action::copy_out || step.action == Action::copy_in || step.action == Action::copy_wait;
}

/// What moves together: an op's share of what its layer saved, or a region's input (no ops).
struct Unit {
  std::int32_t layer = -1;
  std::int32_t op = -1;  // -1: all the layer holds
  Bytes bytes;
};

class Copier {
 public:
  Copier(const Offload& offload, const Outline& outline, Plan& plan)
      : offload_(offload), outline_(outline), plan_(plan), blocks_(block_layers(outline)) {}

  void add() {
    check_settings();
    walk_forward();
    std::vector<Unit> units = all_units();
    keep_fraction(units);
    for (std::size_t i = 0; i < units.size(); ++i) {
      PlanStep step{Action::copy_out, units[i].layer, {}, Keep::all, -1};
      for (; units[i].op >= 0; ++i) {
        step.ops.push_back(units[i].op);
        if (i + 1 == units.size() || units[i + 1].layer != step.layer) break;
      }
      if (step.ops.size() == held(step.layer).size() && offload_.modules.empty()) step.ops.clear();
      place(step);
    }
    put_in();
    plan_.copies = {offload_.min_size, offload_.wait_after.has_value()};
  }

 private:
  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  const OutlineLayer& at(std::int32_t layer) const { return outline_.layers[index(layer)]; }
  bool moves(const OutlineSaved& saved) const { return saved.bytes.count > 0 && saved.bytes >= offload_.min_size; }

  void check_settings() const;
  void walk_forward();
  std::vector<std::int32_t> held(std::int32_t layer) const;
  std::vector<Unit> all_units();
  void add_units(std::int32_t layer, std::vector<Unit>& units);
  Bytes input_of(std::int32_t layer) const;
  [[noreturn]] void refuse_nothing() const;
  void keep_fraction(std::vector<Unit>& units) const;
  void warn_of_other_holders(const std::vector<Unit>& units);

  void place(const PlanStep& out);
  bool reads(std::int32_t reader, std::int32_t layer) const;
  /// What the layer saved and its output are one storage, which moves as a whole.
  bool moves_output(std::int32_t layer) const { return outline_.saves_as_one && !keeps_input_[index(layer)]; }
  std::size_t end_of_forward(std::int32_t layer) const;
  std::size_t start_of_need(const PlanStep& out) const;
  std::size_t ahead(std::size_t position) const;
  void put_in();

  const Offload& offload_;
  const Outline& outline_;
  Plan& plan_;
  const std::vector<std::int32_t> blocks_;
  std::vector<std::vector<bool>> held_;        // by layer, by op: holds what it saved through backward's start
  std::vector<bool> keeps_input_;              // by layer: it runs again, and keeps its input for that
  std::size_t loss_ = 0;                       // the step
  std::set<std::int32_t> moved_storages_;      // whose bytes a unit counts
  Bytes too_small_;                            // the largest
  bool any_saved_ = false;                     // some chosen op saves what could move
  std::vector<std::vector<PlanStep>> before_;  // by step of the plan: copies that go in front of it
  std::vector<std::vector<PlanStep>> back_;    // the same of copies in, from the last block's on
};

void Copier::check_settings() const {
  if (outline_.is_whole_step)
    throw InputError("the rows of this graph are the whole step: offload finds no backward to copy for");
  if (std::ranges::any_of(plan_.steps, is_copy))
    throw InputError("the plan has copies of its own; expected no 'offload'");
  if (plan_.checkpointing.kind == Checkpointing::Kind::offload)
    throw InputError("checkpointing offload copies what blocks save already; expected one of it and 'offload'");
  if (offload_.fraction < 0 || offload_.fraction > 1) throw InputError("'fraction' must be from 0 to 1");
  if (offload_.prefetch < 0 || offload_.wait_after.value_or(0) < 0)
    throw InputError("'prefetch' and 'wait_after' must be at least 0");
  if (blocks_.empty()) throw InputError("the model has no blocks; offload copies what blocks save");
  if (outline_.saves_as_one && !offload_.modules.empty())
    throw InputError("a layer given by numbers moves as a whole; expected no 'modules'");
  check_patterns(offload_.modules, outline_, blocks_);
  for (const std::string& pattern : offload_.modules) {
    const bool saves = std::ranges::any_of(blocks_, [&](std::int32_t layer) {
      return std::ranges::any_of(at(layer).ops,
                                 [&](const OutlineOp& op) { return matches(pattern, op) && !op.saved.empty(); });
    });
    if (!saves)
      throw InputError("'" + pattern +
                       "' saves nothing but parameters and the batch, which are never freed; expected a module that "
                       "saves activations");
  }
}

/// What each op holds when the loss begins.
void Copier::walk_forward() {
  for (const OutlineLayer& layer : outline_.layers) held_.emplace_back(layer.ops.size(), false);
  keeps_input_.assign(outline_.layers.size(), false);
  for (loss_ = 0; loss_ < plan_.steps.size() && plan_.steps[loss_].action != Action::loss; ++loss_) {
    const PlanStep& step = plan_.steps[loss_];
    if (step.action != Action::forward && step.action != Action::drop) continue;
    const bool saves = step.action == Action::forward && step.keep == Keep::all;
    std::vector<bool>& ops = held_[index(step.layer)];
    if (step.ops.empty()) ops.assign(ops.size(), saves);
    for (const std::int32_t k : step.ops) ops[index(k)] = saves;
    const bool whole = std::ranges::none_of(ops, [](bool holds) { return holds; });
    keeps_input_[index(step.layer)] = whole && (step.action == Action::drop || step.keep == Keep::input);
  }
}

/// Its ops that hold something.
std::vector<std::int32_t> Copier::held(std::int32_t layer) const {
  std::vector<std::int32_t> out;
  for (std::size_t k = 0; k < at(layer).ops.size(); ++k)
    if (held_[index(layer)][k] &&
        std::ranges::any_of(at(layer).ops[k].saved, [&](const OutlineSaved& saved) { return moves(saved); }))
      out.push_back(static_cast<std::int32_t>(k));
  return out;
}

/// What a layer that runs again reads of others. The model's own input is the batch.
Bytes Copier::input_of(std::int32_t layer) const {
  std::set<OpRef> makers;
  for (const OutlineOp& op : at(layer).ops)
    for (const OpRef& input : op.inputs)
      if (input.layer != layer) makers.insert(input);
  Bytes bytes;
  for (const OpRef& maker : makers) bytes += at(maker.layer).ops[index(maker.op)].output_bytes;
  return bytes;
}

void Copier::add_units(std::int32_t layer, std::vector<Unit>& units) {
  const auto consider = [&](Bytes bytes) {
    any_saved_ = any_saved_ || bytes.count > 0;
    const bool large = moves({-1, bytes});
    if (!large) too_small_ = std::max(too_small_, bytes);
    return large;
  };
  if (keeps_input_[index(layer)]) {
    const Bytes bytes = input_of(layer);
    if (offload_.modules.empty() && consider(bytes)) units.push_back({layer, -1, bytes});
    return;
  }
  const std::vector<bool> chosen = matching_ops(offload_.modules, at(layer));
  for (std::size_t k = 0; k < chosen.size(); ++k) {
    if (!held_[index(layer)][k] || (!offload_.modules.empty() && !chosen[k])) continue;
    Unit unit{layer, static_cast<std::int32_t>(k), {}};
    bool any = false;
    for (const OutlineSaved& saved : at(layer).ops[k].saved) {
      if (!consider(saved.bytes)) continue;
      any = true;
      if (saved.storage < 0 || moved_storages_.insert(saved.storage).second) unit.bytes += saved.bytes;
    }
    if (any) units.push_back(unit);
  }
}

std::vector<Unit> Copier::all_units() {
  std::vector<Unit> units;
  const std::vector<bool> chosen = blocks_in(offload_.layers, blocks_.size());
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const bool read_by_loss = outline_.saves_as_one && end_of_forward(blocks_[b]) > loss_;
    if (chosen[b] && !read_by_loss) add_units(blocks_[b], units);
  }
  if (units.empty() && !any_saved_) refuse_nothing();
  if (units.empty())
    plan_.warnings.push_back("offload moves nothing: 'min_size', " + pretty(offload_.min_size) +
                             ", is above all that is held, " + pretty(too_small_) + " at most");
  warn_of_other_holders(units);
  return units;
}

void Copier::refuse_nothing() const {
  throw InputError(
      offload_.modules.empty()
          ? "offload finds nothing to move: the chosen layers hold nothing between forward and backward but "
            "what is never freed (parameters, the batch) or is needed at once"
          : "offload finds nothing to move: the modules run again and hold nothing; expected modules that "
            "the policy keeps, or no 'modules' for the regions' inputs");
}

/// Hooks copy what a node saved; another node that saved the same keeps it on the device.
void Copier::warn_of_other_holders(const std::vector<Unit>& units) {
  if (offload_.modules.empty()) return;
  std::set<OpRef> moved;
  for (const Unit& unit : units) moved.insert({unit.layer, unit.op});
  for (const Unit& unit : units)
    for (const OutlineSaved& saved : at(unit.layer).ops[index(unit.op)].saved) {
      if (saved.storage < 0 || !moves(saved)) continue;
      for (std::int32_t layer = 0; layer < static_cast<std::int32_t>(outline_.layers.size()); ++layer)
        for (std::size_t k = 0; k < at(layer).ops.size(); ++k) {
          const auto& other = at(layer).ops[k];
          const OpRef ref{layer, static_cast<std::int32_t>(k)};
          const bool holds = held_[index(layer)][k] &&
                             std::ranges::find(other.saved, saved.storage, &OutlineSaved::storage) != other.saved.end();
          if (!holds || moved.contains(ref)) continue;
          plan_.warnings.push_back("offload of '" + at(unit.layer).ops[index(unit.op)].name + "' copies what '" +
                                   other.name + "' holds too: that stays on the device");
          return;
        }
    }
}

/// In forward order, while they are within the fraction.
void Copier::keep_fraction(std::vector<Unit>& units) const {
  if (offload_.fraction >= 1) return;
  Bytes total, sum;
  for (const Unit& unit : units) total += unit.bytes;
  const Bytes most{static_cast<std::int64_t>(offload_.fraction * static_cast<double>(total.count))};
  std::size_t n = 0;
  while (n < units.size() && sum + units[n].bytes <= most) sum += units[n++].bytes;
  units.resize(n);
}

bool Copier::reads(std::int32_t reader, std::int32_t layer) const {
  return std::ranges::any_of(at(reader).ops, [&](const OutlineOp& op) {
    return std::ranges::find(op.inputs, layer, &OpRef::layer) != op.inputs.end();
  });
}

/// Behind the forward steps of the layer, and of those that read a storage of which its output is a part.
std::size_t Copier::end_of_forward(std::int32_t layer) const {
  const bool with_output = moves_output(layer);
  std::size_t end = 0;
  bool is_read = !with_output;
  for (std::size_t i = 0; i < loss_; ++i) {
    const std::int32_t other = plan_.steps[i].layer;
    const bool reader = with_output && other != layer && reads(other, layer);
    is_read = is_read || reader;
    if (other == layer || reader) end = i + 1;
  }
  return is_read ? end : loss_ + 1;
}

/// The first step after the loss that takes something of what the layer moved.
std::size_t Copier::start_of_need(const PlanStep& out) const {
  const bool with_output = moves_output(out.layer);
  for (std::size_t i = loss_ + 1; i < plan_.steps.size(); ++i) {
    const PlanStep& step = plan_.steps[i];
    if (step.action != Action::recompute && step.action != Action::backward) continue;
    if (step.layer == out.layer || (with_output && reads(step.layer, out.layer))) return i;
  }
  return plan_.steps.size();
}

/// So many blocks earlier: to where the work of that block, its recomputation with it, begins.
std::size_t Copier::ahead(std::size_t position) const {
  std::size_t start = position;
  int blocks = offload_.prefetch;
  for (; blocks > 0 && start > loss_ + 1; --blocks) {
    --start;  // the last step of the block before
    const auto ends_block = [&](const PlanStep& step) {
      const bool first_op = step.ops.empty() || step.ops.front() == 0;
      return step.action == Action::backward && at(step.layer).is_block && first_op;
    };
    while (start > loss_ + 1 && !ends_block(plan_.steps[start - 1])) --start;
  }
  return start;
}

void Copier::place(const PlanStep& out) {
  before_.resize(plan_.steps.size() + 1);
  back_.resize(plan_.steps.size() + 1);
  before_[end_of_forward(out.layer)].push_back(out);
  if (offload_.wait_after) {
    const auto block = static_cast<std::size_t>(std::ranges::find(blocks_, out.layer) - blocks_.begin());
    const std::size_t later = block + static_cast<std::size_t>(*offload_.wait_after);
    PlanStep wait = out;
    wait.action = Action::copy_wait;
    const std::size_t where = later < blocks_.size() ? end_of_forward(blocks_[later]) : loss_ + 1;
    if (where <= loss_) before_[std::max(where, end_of_forward(out.layer))].push_back(wait);
  }
  PlanStep in = out;
  in.action = Action::copy_in;
  back_[ahead(start_of_need(out))].push_back(in);
}

void Copier::put_in() {
  if (before_.empty()) return;
  std::vector<PlanStep> steps;
  for (std::size_t i = 0; i <= plan_.steps.size(); ++i) {
    steps.insert(steps.end(), before_[i].begin(), before_[i].end());
    steps.insert(steps.end(), back_[i].rbegin(), back_[i].rend());
    if (i < plan_.steps.size()) steps.push_back(plan_.steps[i]);
  }
  plan_.steps = std::move(steps);
}

}  // namespace

void add_copies(const Offload& offload, const Outline& outline, Plan& plan) { Copier(offload, outline, plan).add(); }

}  // namespace tidemark
