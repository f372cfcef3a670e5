#include "tidemark/step/schedule.hpp"

#include <algorithm>
#include <string>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

struct OpRange {
  OpIndex begin = 0, end = 0;
};

std::vector<OpRange> ops_by_layer(const Program& program) {
  std::vector<OpRange> ranges(program.layers.size());
  for (OpIndex k = 0; k < static_cast<OpIndex>(program.ops.size()); ++k) {
    OpRange& range = ranges[static_cast<std::size_t>(program.ops[static_cast<std::size_t>(k)].layer)];
    if (range.end == 0) range.begin = k;
    range.end = k + 1;
  }
  return ranges;
}

/// The ops a plan step names, in forward order.
std::vector<OpIndex> ops_of(const PlanStep& step, const OpRange& range) {
  std::vector<OpIndex> ops;
  if (step.ops.empty())
    for (OpIndex k = range.begin; k < range.end; ++k) ops.push_back(k);
  for (const std::int32_t local : step.ops) {
    if (local < 0 || range.begin + local >= range.end)
      throw InputError("the plan names op " + std::to_string(local) + " of a layer with " +
                       std::to_string(range.end - range.begin) + " ops");
    ops.push_back(range.begin + local);
  }
  return ops;
}

std::int32_t loss_layer(const Program& program) {
  for (std::size_t i = 0; i < program.layers.size(); ++i)
    if (program.layers[i].name == "loss") return static_cast<std::int32_t>(i);
  return -1;
}

/// From plan steps on layers to turns of ops.
class Expansion {
 public:
  Expansion(const Program& program, const Plan& plan)
      : program_(program),
        takes_(plan.checkpointing.kind != Checkpointing::Kind::direct),
        offloads_(plan.checkpointing.kind == Checkpointing::Kind::offload),
        ranges_(ops_by_layer(program)),
        dropped_(program.ops.size(), false),
        region_(program.ops.size(), -1),
        run_again_(program.ops.size(), false) {
    result.offloaded.assign(program.ops.size(), false);
    for (const PlanStep& step : plan.steps) note_runs_again(step);
    for (const PlanStep& step : plan.steps) expand(step);
    for (Turn& turn : result.turns)
      if (turn.what != Turn::What::copy) turn.region = region_[static_cast<std::size_t>(turn.op)];
    decide_saves();
  }

  Schedule result;

 private:
  void expand(const PlanStep& step) {
    const std::int32_t layer = step.action == Action::loss ? loss_layer(program_) : step.layer;
    if (step.action == Action::loss && layer < 0) return;
    if (layer < 0 || static_cast<std::size_t>(layer) >= ranges_.size())
      throw InputError("the plan names layer " + std::to_string(layer) + " of a model with " +
                       std::to_string(ranges_.size()) + " layers");
    const bool loss = program_.layers[static_cast<std::size_t>(layer)].name == "loss";
    const OpRange& range = ranges_[static_cast<std::size_t>(layer)];
    const std::vector<OpIndex> ops = ops_of(step, range);
    switch (step.action) {
      case Action::forward:
      case Action::loss:
        for (const OpIndex k : ops) {
          push(Turn::What::run, k, loss ? Phase::loss : Phase::forward);
          if (offloads_ && step.region >= 0) result.offloaded[static_cast<std::size_t>(k)] = true;
          if (step.keep != Keep::all) drop(k);
        }
        break;
      case Action::drop:
        for (const OpIndex k : ops) drop(k);
        break;
      case Action::recompute:
        recompute(step, range, ops);
        if (step.refills) refill(ops);
        break;
      case Action::backward:
        for (std::size_t i = ops.size(); i-- > 0;) push(Turn::What::backward, ops[i], Phase::backward);
        break;
      case Action::copy_out:
      case Action::copy_in:
      case Action::copy_wait:
        push(Turn::What::copy, static_cast<OpIndex>(result.copies.size()), Phase::offload);
        result.copies.push_back({step.action, 0, ops, {}});
        break;
      case Action::discard_input:
      case Action::discard_saved:
        throw InputError("a plan for a program cannot hold discards");
    }
  }

  void note_runs_again(const PlanStep& step) {
    if (step.action != Action::recompute || step.keep != Keep::all) return;
    if (step.layer < 0 || static_cast<std::size_t>(step.layer) >= ranges_.size()) return;  // expand says so
    for (const OpIndex k : ops_of(step, ranges_[static_cast<std::size_t>(step.layer)]))
      run_again_[static_cast<std::size_t>(k)] = true;
  }

  /// Runs the named ops again; where a framework carries the region out, those that no step runs again take their kept
  /// results. Another function's ops in the same layer are that one's.
  void recompute(const PlanStep& step, const OpRange& range, const std::vector<OpIndex>& ops) {
    for (OpIndex k = range.begin; k < range.end; ++k) {
      const bool runs = std::ranges::binary_search(ops, k);
      const bool takes = takes_ && dropped_[static_cast<std::size_t>(k)] && !run_again_[static_cast<std::size_t>(k)] &&
                         step.keep == Keep::all;
      if (!runs && !takes) continue;
      region_[static_cast<std::size_t>(k)] = step.region;
      push(runs ? Turn::What::run : Turn::What::take, k, Phase::recompute);
    }
  }

  /// Of what the ops make, all that others read.
  void refill(const std::vector<OpIndex>& ops) {
    Schedule::Refill& out = result.refills[ops.back()];
    out.first = ops.front();
    const std::int32_t layer = program_.ops[static_cast<std::size_t>(ops.front())].layer;
    const OpRange& range = ranges_[static_cast<std::size_t>(layer)];
    for (OpIndex reader = ops.front(); reader < range.end; ++reader) {
      if (std::ranges::binary_search(ops, reader)) continue;
      for (const TensorId t : program_.ops[static_cast<std::size_t>(reader)].inputs) {
        const bool made = std::ranges::any_of(ops, [&](OpIndex k) {
          const std::vector<TensorId>& outputs = program_.ops[static_cast<std::size_t>(k)].outputs;
          return std::ranges::find(outputs, t) != outputs.end();
        });
        if (made && std::ranges::find(out.tensors, t) == out.tensors.end()) out.tensors.push_back(t);
      }
    }
  }

  void push(Turn::What what, OpIndex k, Phase phase) { result.turns.push_back({what, k, phase, false, -1}); }
  void drop(OpIndex k) { dropped_[static_cast<std::size_t>(k)] = true; }

  /// The first run saves unless dropped; of a dropped op's further runs the last one before its backward does.
  void decide_saves() {
    const std::size_t n = program_.ops.size();
    std::vector<int> runs(n, 0), backwards(n, 0);
    std::vector<Turn*> last(n, nullptr);
    for (Turn& turn : result.turns) {
      if (turn.what == Turn::What::copy) continue;
      const auto k = static_cast<std::size_t>(turn.op);
      if (turn.what == Turn::What::backward) {
        ++backwards[k];
        if (last[k] != nullptr) last[k]->saves = true;
        if (runs[k] == 0) throw InputError("the plan runs '" + program_.ops[k].name + "' backward before forward");
      } else if (runs[k]++ == 0) {
        turn.saves = !dropped_[k];
      } else if (dropped_[k] && backwards[k] == 0) {
        last[k] = &turn;
      }
    }
    result.cached.assign(n, false);
    for (std::size_t k = 0; k < n; ++k) {
      if (runs[k] == 0 || backwards[k] != 1)
        throw InputError("the plan must run '" + program_.ops[k].name + "' and its backward once; it has " +
                         std::to_string(runs[k]) + " runs and " + std::to_string(backwards[k]) + " backwards");
      result.cached[k] = dropped_[k] && last[k] == nullptr;
    }
  }

  const Program& program_;
  bool takes_ = false;
  bool offloads_ = false;
  std::vector<OpRange> ranges_;
  std::vector<bool> dropped_;
  std::vector<std::int32_t> region_;  // by op: the region that recomputes it
  std::vector<bool> run_again_;       // by op: a step of the plan runs it again, saving
};

bool is_recompute(const Turn& turn) { return turn.what != Turn::What::backward && turn.phase == Phase::recompute; }

/// Something saved exists only once outputs do: a kernel's result, or a statistic it makes beside them.
bool saves_results(const Kernel& kernel) {
  const auto output = std::ranges::find(kernel.forward, Move{Move::What::alloc, Slot{Slot::Of::output, 0}});
  return std::ranges::any_of(kernel.saved, [&](const Saved& saved) {
    if (saved.of == Saved::Of::input) return false;
    const Move made{Move::What::alloc, Slot{Slot::Of::temp, saved.index}};
    return saved.of == Saved::Of::output || std::find(output, kernel.forward.end(), made) != kernel.forward.end();
  });
}

/// Nonreentrant recomputation (2.x) ends at the last tensor that is saved: before that kernel runs if it saves inputs
/// alone.
void stop_early(std::vector<Turn>& block, const std::vector<Kernel>& kernels) {
  while (!block.empty() && kernels[static_cast<std::size_t>(block.back().op)].saved.empty()) block.pop_back();
  if (block.empty()) return;
  if (!saves_results(kernels[static_cast<std::size_t>(block.back().op)])) block.back().what = Turn::What::save;
}

/// Where torch.utils.checkpoint recomputes, wherever the plan has it: reentrant before the region's first backward,
/// nonreentrant when the first saved tensor of the region is asked for.
void place_regions(Schedule& schedule, const std::vector<Kernel>& kernels, bool reentrant, bool stops_early) {
  std::vector<Turn> out;
  const std::vector<Turn>& in = schedule.turns;
  const auto starts = [&](const Turn& turn, std::int32_t region) {
    return turn.what == Turn::What::backward && turn.region == region &&
           (reentrant || !kernels[static_cast<std::size_t>(turn.op)].saved.empty());
  };
  for (std::size_t i = 0; i < in.size();) {
    if (!is_recompute(in[i])) {
      out.push_back(in[i++]);
      continue;
    }
    const std::int32_t region = in[i].region;
    std::vector<Turn> block;
    while (i < in.size() && is_recompute(in[i]) && in[i].region == region) block.push_back(in[i++]);
    if (stops_early) stop_early(block, kernels);
    while (i < in.size() && !is_recompute(in[i]) && !starts(in[i], region)) out.push_back(in[i++]);
    out.insert(out.end(), block.begin(), block.end());
  }
  schedule.turns = std::move(out);
}

/// From among the turns to between them.
void take_copies_out(Schedule& schedule) {
  std::size_t next = 0;
  std::vector<CopyTurn> copies;
  for (const Turn& turn : schedule.turns) {
    if (turn.what != Turn::What::copy) {
      schedule.turns[next++] = turn;
      continue;
    }
    copies.push_back(std::move(schedule.copies[static_cast<std::size_t>(turn.op)]));
    copies.back().before = next;
  }
  schedule.turns.resize(next);
  schedule.copies = std::move(copies);
}

/// The tensors that a turn reads by name; what it makes is apart.
std::vector<TensorId> named_reads(const Schedule& schedule, const Turn& turn, const Program& program,
                                  const std::vector<Kernel>& kernels) {
  const auto k = static_cast<std::size_t>(turn.op);
  if (turn.what == Turn::What::run) return program.ops[k].inputs;
  std::vector<TensorId> out;
  if (turn.what == Turn::What::backward && !schedule.cached[k]) return out;
  for (const Saved& saved : kernels[k].saved)
    if (saved.of == Saved::Of::input) out.push_back(program.ops[k].inputs[static_cast<std::size_t>(saved.index)]);
  return out;
}

/// What a copy out can take besides what nodes saved: versions of tensors that nobody but its own ops will read, and
/// those only when they run again.
void find_movable_values(Schedule& out, const Program& program, const std::vector<Kernel>& kernels) {
  std::vector<std::vector<OpIndex>> readers(program.tensors.size());  // of the current version, later on
  std::vector<bool> in_forward(program.tensors.size(), false);        // one of them is
  std::size_t copy = out.copies.size();
  for (std::size_t i = out.turns.size() + 1; i-- > 0;) {
    if (i < out.turns.size()) {
      const Turn& turn = out.turns[i];
      const bool again = turn.phase == Phase::recompute || turn.what == Turn::What::backward;
      if (turn.what == Turn::What::run || turn.what == Turn::What::take)
        for (const TensorId t : program.ops[static_cast<std::size_t>(turn.op)].outputs) {
          readers[static_cast<std::size_t>(t)].clear();
          in_forward[static_cast<std::size_t>(t)] = false;
        }
      for (const TensorId t : named_reads(out, turn, program, kernels)) {
        readers[static_cast<std::size_t>(t)].push_back(turn.op);
        if (!again) in_forward[static_cast<std::size_t>(t)] = true;
      }
    }
    for (; copy > 0 && out.copies[copy - 1].before == i; --copy) {
      CopyTurn& here = out.copies[copy - 1];
      if (here.action != Action::copy_out) continue;
      for (const OpIndex k : here.ops)
        for (const TensorId t : program.ops[static_cast<std::size_t>(k)].inputs) {
          const auto& later = readers[static_cast<std::size_t>(t)];
          const bool own =
              !later.empty() && !in_forward[static_cast<std::size_t>(t)] &&
              std::ranges::all_of(later, [&](OpIndex r) { return std::ranges::binary_search(here.ops, r); });
          if (own && std::ranges::find(here.values, t) == here.values.end()) here.values.push_back(t);
        }
    }
  }
}

void find_last_reads(Schedule& out, const Program& program, const std::vector<Kernel>& kernels) {
  // Backwards over the turns: the first read met is the last one of the version.
  std::vector<bool> read_later(program.tensors.size(), false);
  out.last_reads.resize(out.turns.size());
  for (std::size_t i = out.turns.size(); i-- > 0;) {
    const Turn& turn = out.turns[i];
    const auto k = static_cast<std::size_t>(turn.op);
    const ProgramOp& op = program.ops[k];
    const auto read = [&](TensorId t) {
      if (read_later[static_cast<std::size_t>(t)]) return;
      read_later[static_cast<std::size_t>(t)] = true;
      out.last_reads[i].push_back(t);
    };
    if (turn.what == Turn::What::run || turn.what == Turn::What::take) {
      for (const TensorId t : op.outputs) {
        if (!read_later[static_cast<std::size_t>(t)]) out.last_reads[i].push_back(t);
        read_later[static_cast<std::size_t>(t)] = false;
      }
    }
    for (const TensorId t : named_reads(out, turn, program, kernels)) read(t);
  }
}

void find_regions(Schedule& out, const Program& program, const std::vector<Kernel>& kernels) {
  std::vector<std::int32_t> made_in(program.tensors.size(), -1);
  const auto add = [](std::vector<TensorId>& list, TensorId t) {
    if (std::ranges::find(list, t) == list.end()) list.push_back(t);
  };
  for (const Turn& turn : out.turns) {
    if (turn.what == Turn::What::backward || turn.phase == Phase::recompute) continue;
    const ProgramOp& op = program.ops[static_cast<std::size_t>(turn.op)];
    if (turn.region >= static_cast<std::int32_t>(out.regions.size()))
      out.regions.resize(static_cast<std::size_t>(turn.region) + 1);
    if (turn.region >= 0) out.regions[static_cast<std::size_t>(turn.region)].ops.push_back(turn.op);
    for (const TensorId t : op.inputs) {
      const Category category = program.tensors[static_cast<std::size_t>(t)].category;
      if (category == Category::parameter || category == Category::input) continue;
      const std::int32_t maker = made_in[static_cast<std::size_t>(t)];
      if (maker == turn.region) continue;
      if (turn.region >= 0) add(out.regions[static_cast<std::size_t>(turn.region)].inputs, t);
      if (maker >= 0) add(out.regions[static_cast<std::size_t>(maker)].outputs, t);
    }
    for (const TensorId t : op.outputs) made_in[static_cast<std::size_t>(t)] = turn.region;
    if (turn.region >= 0)
      out.regions[static_cast<std::size_t>(turn.region)].saved_tensors +=
          static_cast<std::int32_t>(kernels[static_cast<std::size_t>(turn.op)].saved.size());
    if (turn.region >= 0 && out.taken[static_cast<std::size_t>(turn.op)])
      out.regions[static_cast<std::size_t>(turn.region)].selective = true;
  }
}

}  // namespace

Schedule schedule(const Program& program, const Plan& plan, const std::vector<Kernel>& kernels, bool stops_early) {
  Schedule out = Expansion(program, plan).result;
  out.taken.assign(program.ops.size(), false);
  for (const Turn& turn : out.turns)
    if (turn.what == Turn::What::take) out.taken[static_cast<std::size_t>(turn.op)] = true;
  const bool reentrant = plan.checkpointing.kind == Checkpointing::Kind::reentrant;
  const bool early = !reentrant && stops_early && plan.checkpointing.early_stop;
  if (plan.checkpointing.kind != Checkpointing::Kind::direct) place_regions(out, kernels, reentrant, early);
  take_copies_out(out);
  find_regions(out, program, kernels);
  for (const Turn& turn : out.turns)
    if (is_recompute(turn) && turn.region >= 0)
      out.regions[static_cast<std::size_t>(turn.region)].last_recomputed = turn.op;
  for (Region& region : out.regions) region.stops_early = early && region.saved_tensors > 0;
  find_last_reads(out, program, kernels);
  if (!out.copies.empty()) find_movable_values(out, program, kernels);
  return out;
}

}  // namespace tidemark
