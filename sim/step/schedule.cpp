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

class Expansion {
 public:
  Expansion(const Program& program, const Plan& plan)
      : program_(program), ranges_(ops_by_layer(program)), dropped_(program.ops.size(), false) {
    for (const PlanStep& step : plan.steps) expand(step);
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
    const std::vector<OpIndex> ops = ops_of(step, ranges_[static_cast<std::size_t>(layer)]);
    switch (step.action) {
      case Action::forward:
      case Action::loss:
        for (const OpIndex k : ops) {
          run(k, loss ? Phase::loss : Phase::forward);
          if (step.keep != Keep::all) drop(k);
        }
        break;
      case Action::drop:
        for (const OpIndex k : ops) drop(k);
        break;
      case Action::recompute:
        for (const OpIndex k : ops) run(k, Phase::recompute);
        break;
      case Action::backward:
        for (std::size_t i = ops.size(); i-- > 0;)
          result.turns.push_back({Turn::What::backward, ops[i], Phase::backward, false});
        break;
      default:
        throw InputError("a plan for a program cannot hold discards or copies");
    }
  }

  void run(OpIndex k, Phase phase) { result.turns.push_back({Turn::What::run, k, phase, false}); }
  void drop(OpIndex k) { dropped_[static_cast<std::size_t>(k)] = true; }

  /// The first run saves unless dropped; of a dropped op's further runs the last one before its backward does.
  void decide_saves() {
    const std::size_t n = program_.ops.size();
    std::vector<int> runs(n, 0), backwards(n, 0);
    std::vector<Turn*> last(n, nullptr);
    for (Turn& turn : result.turns) {
      const auto k = static_cast<std::size_t>(turn.op);
      if (turn.what == Turn::What::backward) {
        ++backwards[k];
        if (last[k] != nullptr) last[k]->saves = true;
        if (runs[k] == 0) throw InputError("the plan runs '" + program_.ops[k].name + "' backward before forward");
        continue;
      }
      if (runs[k]++ == 0) {
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
  std::vector<OpRange> ranges_;
  std::vector<bool> dropped_;
};

}  // namespace

Schedule schedule(const Program& program, const Plan& plan, const std::vector<Kernel>& kernels) {
  Schedule out = Expansion(program, plan).result;
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
    if (turn.what == Turn::What::run) {
      for (const TensorId t : op.outputs) {
        if (!read_later[static_cast<std::size_t>(t)]) out.last_reads[i].push_back(t);
        read_later[static_cast<std::size_t>(t)] = false;
      }
      for (const TensorId t : op.inputs) read(t);
    } else if (out.cached[k]) {
      for (const Saved& saved : kernels[k].saved)
        if (saved.of == Saved::Of::input) read(op.inputs[static_cast<std::size_t>(saved.index)]);
    }
  }
  return out;
}

}  // namespace tidemark
