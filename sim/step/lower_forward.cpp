#include <algorithm>
#include <utility>

#include "program_lowering.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark {

/// One kernel: inputs are saved before it runs, results after it (E1).
void ProgramLowering::emit_run(const Turn& turn) {
  const auto k = static_cast<std::size_t>(turn.op);
  const ProgramOp& op = op_at(k);
  const Kernel& kernel = kernels_[k];
  // A view makes no op: what dies at it belongs to the op before.
  if (!kernel.forward.empty()) emit_.begin_op(new_op(op, turn.phase, kernel.forward_cost), op.name);
  bind_aliases(op);
  std::vector<StorageId> temps(kernel.temps.size(), none);
  const bool caches = schedule_.cached[k] && turn.phase != Phase::recompute && !carried_out();
  if (turn.saves || caches) save_inputs(k, caches);
  for (const Move& move : kernel.forward) {
    if (move.what == Move::What::run)
      emit_.compute(touched_by_run(op, temps, turn.phase));
    else if (move.slot.of == Slot::Of::temp)
      move_temp(move, kernel, op, temps);
    else if (move.what == Move::What::alloc)
      make_output(k, static_cast<std::size_t>(move.slot.index));
  }
  if (turn.saves || caches) save_results(k, temps);
  nodes_[k].recomputed = turn.saves && turn.phase == Phase::recompute && carried_out() && !reentrant();
  if (runtime_.host_scopes) hold_variables(op);
  for (const StorageId temp : temps)
    if (temp != none) emit_.release(temp);
}

/// Early stop: recomputation ends where the last tensor is saved, before the kernel that would use it.
void ProgramLowering::emit_save_only(const Turn& turn) {
  const auto k = static_cast<std::size_t>(turn.op);
  save_inputs(k, false);
  nodes_[k].recomputed = true;
}

/// A kept result comes out of the region's cache in place of a kernel.
void ProgramLowering::emit_take(const Turn& turn) {
  const auto k = static_cast<std::size_t>(turn.op);
  const ProgramOp& op = op_at(k);
  RegionState& state = region_state(turn.region);
  bind_aliases(op);
  for (const TensorId t : op.outputs) {
    if (value(t) != none) continue;
    StorageId& kept = state.cache[static_cast<std::size_t>(t)];
    value(t) = kept;
    kept = none;
  }
  if (turn.saves) {
    save_inputs(k, false);
    save_results(k, {});
    nodes_[k].recomputed = true;
  }
  if (runtime_.host_scopes) hold_variables(op);
}

/// Outputs that share an input's storage: views and in-place results.
void ProgramLowering::bind_aliases(const ProgramOp& op) {
  for (const TensorId out : op.outputs)
    for (const TensorId in : op.inputs)
      if (tensor(out).storage == tensor(in).storage) {
        value(out) = value(in);
        emit_.hold(value(out));
        break;
      }
}

void ProgramLowering::make_output(std::size_t k, std::size_t index) {
  const TensorId t = op_at(k).outputs[index];
  const std::vector<Bytes>& given = kernels_[k].output_bytes;
  const Bytes bytes =
      given.empty() ? program_.storages[static_cast<std::size_t>(tensor(t).storage)].bytes : given[index];
  value(t) = emit_.alloc(tensor(t).name, bytes, Category::temporary, op_at(k).layer);
}

void ProgramLowering::move_temp(const Move& move, const Kernel& kernel, const ProgramOp& op,
                                std::vector<StorageId>& temps) {
  const auto index = static_cast<std::size_t>(move.slot.index);
  if (move.what == Move::What::alloc) {
    const Temp& temp = kernel.temps[index];
    temps[index] = emit_.alloc(op.name + "." + temp.name, temp.bytes, temp.category, op.layer);
  } else {
    emit_.release(temps[index]);
    temps[index] = none;
  }
}

std::vector<StorageId> ProgramLowering::touched_by_run(const ProgramOp& op, const std::vector<StorageId>& temps,
                                                       Phase phase) {
  std::vector<StorageId> touched;
  for (const TensorId t : op.inputs) {
    check(value(t) != none, "an op reads a tensor that is gone: " + op.name);
    touched.push_back(value(t));
    if (phase == Phase::recompute) mark_activation(value(t));
  }
  for (const TensorId t : op.outputs) touched.push_back(value(t));
  touched.insert(touched.end(), temps.begin(), temps.end());
  std::erase(touched, none);
  return touched;
}

/// A caching node leaves its inputs to the recomputation.
void ProgramLowering::save_inputs(std::size_t k, bool caches) {
  const std::vector<Saved>& list = kernels_[k].saved;
  Node& node = nodes_[k];
  node.saved.assign(list.size(), none);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].of != Saved::Of::input) continue;
    const TensorId t = op_at(k).inputs[static_cast<std::size_t>(list[i].index)];
    if (!caches || is_static(t)) save_one(node, i, value(t));
  }
}

void ProgramLowering::save_results(std::size_t k, const std::vector<StorageId>& temps) {
  const std::vector<Saved>& list = kernels_[k].saved;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto index = static_cast<std::size_t>(list[i].index);
    if (list[i].of == Saved::Of::output) save_one(nodes_[k], i, value(op_at(k).outputs[index]));
    if (list[i].of == Saved::Of::temp && index < temps.size()) save_one(nodes_[k], i, temps[index]);
  }
}

void ProgramLowering::save_one(Node& node, std::size_t i, StorageId id) {
  if (id == none) return;
  emit_.hold(id);
  mark_activation(id);
  node.saved[i] = id;
}

void ProgramLowering::hold_variables(const ProgramOp& op) {
  for (const TensorId t : op.outputs) {
    StorageId& variable = variables_[static_cast<std::size_t>(t)];
    if (variable != none) emit_.release(variable);
    variable = value(t);
    emit_.hold(variable);
  }
}

void ProgramLowering::release_variables(OpIndex k) {
  for (const TensorId t : op_at(static_cast<std::size_t>(k)).releases) {
    const bool held = t == program_.logits && training_.loop.logits_held;
    if (!held) drop_variable(t);
  }
}

void ProgramLowering::drop_variable(TensorId t) {
  StorageId& variable = variables_[static_cast<std::size_t>(t)];
  if (variable == none) return;
  emit_.release(variable);
  variable = none;
}

}  // namespace tidemark
