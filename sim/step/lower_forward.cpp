#include <algorithm>
#include <map>
#include <utility>

#include "program_lowering.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark {

/// The op that the script's next kernel or exchange belongs to: lines before it are at its start. None left: the last
/// op goes on.
void ProgramLowering::open_next(std::size_t k, const std::vector<Move>& script, std::size_t from, Phase phase) {
  const ProgramOp& op = op_at(k);
  const Kernel& kernel = kernels_[k];
  const auto next = std::find_if(script.begin() + static_cast<std::ptrdiff_t>(from), script.end(),
                                 [](const Move& move) { return move.works(); });
  if (next == script.end() && from > 0) return;
  if (next == script.end() || next->what == Move::What::run) {
    StepOp made = new_op(op, phase, phase == Phase::backward ? kernel.backward_cost : kernel.forward_cost);
    if (op.kind == OpKind::collective) made.kind = OpKind::contiguous;  // a rank's own part, copied
    emit_.begin_op(made, op.name);
    return;
  }
  const Exchange& exchange = kernel.exchanges[static_cast<std::size_t>(next->slot.index)];
  StepOp made = new_op(op, Phase::communication, {.moved = exchange.linked});
  made.kind = OpKind::collective;
  made.is_backward = phase == Phase::backward;
  const std::string how(exchange.how);
  emit_.begin_op(made, op.name.ends_with(how) ? op.name : op.name + "." + how);
}

/// One kernel: inputs are saved before it runs, results after it (E1).
void ProgramLowering::emit_run(const Turn& turn) {
  const auto k = static_cast<std::size_t>(turn.op);
  const ProgramOp& op = op_at(k);
  const Kernel& kernel = kernels_[k];
  if (turn.phase == Phase::recompute) check_is_here(k, false);
  // A view makes no op: what dies at it belongs to the op before.
  if (!kernel.forward.empty()) open_next(k, kernel.forward, 0, turn.phase);
  bind_aliases(op);
  std::vector<StorageId> temps(kernel.temps.size(), none);
  const bool caches = schedule_.cached[k] && turn.phase != Phase::recompute && !carried_out();
  if (turn.saves || caches) save_inputs(k, caches);
  StorageId second_number = none;  // E11: a dispatch mode wraps the number again
  for (std::size_t line = 0; line < kernel.forward.size(); ++line) {
    const Move& move = kernel.forward[line];
    if (move.works()) {
      emit_.compute(touched_by_run(op, temps, turn.phase));
      open_next(k, kernel.forward, line + 1, turn.phase);
    } else if (move.slot.of == Slot::Of::temp) {
      move_temp(move, kernel, op, temps);
      if (move.what == Move::What::free && second_number != none) emit_.release(std::exchange(second_number, none));
      const Temp& temp = kernel.temps[static_cast<std::size_t>(move.slot.index)];
      if (move.what == Move::What::alloc && temp.wrapped_number && turn.region >= 0 && region(turn.region).selective)
        second_number = emit_.alloc(op.name + ".number_again", temp.bytes, Category::temporary, op.layer);
    } else if (move.what == Move::What::alloc) {
      make_output(k, static_cast<std::size_t>(move.slot.index));
    }
  }
  if (turn.saves || caches) save_results(turn, temps);
  if (hides_numbers(turn)) save_number(turn, temps);
  if (schedule_.taken[k] && turn.phase != Phase::recompute) keep_results(turn, temps);
  nodes_[k].recomputed = turn.saves && turn.phase == Phase::recompute && carried_out() && !reentrant();
  send_to_host(op);
  const bool raises = turn.phase == Phase::recompute && turn.region >= 0 && region(turn.region).stops_early &&
                      region(turn.region).last_recomputed == turn.op;
  if (runtime_.host_scopes && !raises) hold_variables(op, turn.phase);
  for (const StorageId temp : temps)
    if (temp != none) emit_.release(temp);
}

/// Hooks never see a wrapped number: forward's node keeps it, a recomputation's graph until that is thrown away.
void ProgramLowering::save_number(const Turn& turn, const std::vector<StorageId>& temps) {
  const auto k = static_cast<std::size_t>(turn.op);
  for (const Saved& saved : kernels_[k].saved) {
    const auto index = static_cast<std::size_t>(saved.index);
    if (saved.of != Saved::Of::temp || !kernels_[k].temps[index].wrapped_number) continue;
    emit_.hold(temps[index]);
    if (turn.phase == Phase::recompute)
      region_state(turn.region).numbers.push_back(temps[index]);
    else
      nodes_[k].number = temps[index];
  }
}

/// Early stop: recomputation ends where the last tensor is saved, before the kernel that would use it. What the op
/// makes before its output (dropout's noise) is made.
void ProgramLowering::emit_save_only(const Turn& turn) {
  const auto k = static_cast<std::size_t>(turn.op);
  const ProgramOp& op = op_at(k);
  const Kernel& kernel = kernels_[k];
  save_inputs(k, false);
  std::vector<StorageId> temps(kernel.temps.size(), none);
  bool makes = false;
  for (const Saved& saved : kernel.saved) makes = makes || saved.of == Saved::Of::temp;
  if (makes) {
    emit_.begin_op(new_op(op, turn.phase, Cost{}), op.name);
    emit_.compute({});
    for (const Move& move : kernel.forward) {
      if (move.works() || move.slot.of != Slot::Of::temp) break;
      move_temp(move, kernel, op, temps);
    }
    save_results(turn, temps);
    for (const StorageId temp : temps)
      if (temp != none) emit_.release(temp);
  }
  nodes_[k].recomputed = true;
}

/// CheckpointWithoutOutput._recompute: the storages that forward emptied are resized and the new results copied into
/// them. The results themselves belong to the module's graph and live until it has run backward: two copies.
void ProgramLowering::refill(const Turn& turn) {
  const auto found = schedule_.refills.find(turn.op);
  if (turn.phase != Phase::recompute || found == schedule_.refills.end()) return;
  const ProgramOp& op = op_at(static_cast<std::size_t>(turn.op));
  std::map<StorageId, StorageId> copies;
  for (const TensorId t : found->second.tensors) {
    if (value(t) == none) continue;
    const auto [copy, is_new] = copies.try_emplace(value(t), none);
    if (is_new) {
      const Bytes bytes = step_.storages[value(t)].bytes;
      emit_.begin_op(new_op(op, Phase::recompute, {.moved = Bytes{2 * bytes.count}}), tensor(t).name + ".refill");
      copy->second = emit_.alloc(tensor(t).name + ".refilled", bytes, Category::activation, op.layer);
      emit_.compute({value(t), copy->second});
    } else {
      emit_.hold(copy->second);
    }
    nodes_[static_cast<std::size_t>(found->second.first)].results.push_back(value(t));
    value(t) = copy->second;
  }
}

/// A selective region's cache holds the results that are not to be computed again.
void ProgramLowering::keep_results(const Turn& turn, const std::vector<StorageId>& temps) {
  const auto k = static_cast<std::size_t>(turn.op);
  for (const TensorId t : op_at(k).outputs) {
    emit_.hold(value(t));
    mark_activation(value(t));
    region_state(turn.region).cache[static_cast<std::size_t>(t)] = value(t);
  }
  Node& node = nodes_[k];
  node.saved.assign(kernels_[k].saved.size(), none);
  for (std::size_t i = 0; i < node.saved.size(); ++i)
    if (const Saved& saved = kernels_[k].saved[i]; saved.of == Saved::Of::temp)
      save_one(k, i, temps[static_cast<std::size_t>(saved.index)]);
}

/// A kept result comes out of the region's cache in place of a kernel.
void ProgramLowering::emit_take(const Turn& turn) {
  const auto k = static_cast<std::size_t>(turn.op);
  const ProgramOp& op = op_at(k);
  RegionState& state = region_state(turn.region);
  for (const TensorId t : op.outputs) {
    if (value(t) != none) continue;
    StorageId& kept = state.cache[static_cast<std::size_t>(t)];
    value(t) = kept;
    kept = none;
  }
  if (turn.saves) {
    const std::vector<StorageId> kept_temps = nodes_[k].saved;
    save_inputs(k, false);
    save_results(turn, {});
    for (std::size_t i = 0; i < kept_temps.size(); ++i)
      if (kept_temps[i] != none) nodes_[k].saved[i] = kept_temps[i];
    nodes_[k].recomputed = true;
  }
  if (runtime_.host_scopes) hold_variables(op, turn.phase);
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
  const Category category = tensor(t).category == Category::input ? Category::input : Category::temporary;
  value(t) = emit_.alloc(tensor(t).name, bytes, category, op_at(k).layer);
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
  nodes_[k].saved.assign(list.size(), none);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].of != Saved::Of::input) continue;
    const TensorId t = op_at(k).inputs[static_cast<std::size_t>(list[i].index)];
    if (is_sharded(t)) continue;  // looked up again in backward
    if (!caches || is_static(t)) save_one(k, i, value(t));
  }
}

void ProgramLowering::save_results(const Turn& turn, const std::vector<StorageId>& temps) {
  const auto k = static_cast<std::size_t>(turn.op);
  const bool hidden = hides_numbers(turn);
  const std::vector<Saved>& list = kernels_[k].saved;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto index = static_cast<std::size_t>(list[i].index);
    if (list[i].of == Saved::Of::output) save_one(k, i, value(op_at(k).outputs[index]));
    const bool seen =
        list[i].of == Saved::Of::temp && index < temps.size() && !(hidden && kernels_[k].temps[index].wrapped_number);
    if (seen) save_one(k, i, temps[index]);
  }
}

/// The node takes hold; under offload hooks it gets a copy in its place.
void ProgramLowering::save_one(std::size_t k, std::size_t i, StorageId id) {
  if (id == none) return;
  Node& node = nodes_[k];
  const bool is_parameter = step_.storages[id].category == Category::parameter;
  if (schedule_.offloaded[k] && (checkpointing_.offload_parameters || !is_parameter)) {
    const SavedCopy copy = copy_of_saved(k, i);
    if (host_is_device_) {
      node.saved[i] = emit_.alloc(copy.name + ".offloaded", copy.bytes, Category::activation, op_at(k).layer);
    } else {
      emit_.hold(id);
      node.on_host.emplace_back(i, step_.host.size() + leaving_.size());
      leaving_.push_back({id, copy});
    }
    return;
  }
  emit_.hold(id);
  mark_activation(id);
  node.saved[i] = id;
}

/// Offload hooks copy to the host, and wait for it, what the op saved; then the device's tensor has one holder less.
void ProgramLowering::send_to_host(const ProgramOp& op) {
  for (const auto& [id, copy] : leaving_) {
    begin_copy(op, Stream::copy_out, copy, ".to_host");
    emit_.copy_and_wait({id});
    emit_.release(id);
    step_.host.push_back({step_.names.id(copy.name), copy.bytes, static_cast<OpId>(step_.ops.size() - 1), no_id});
  }
  leaving_.clear();
}

void ProgramLowering::begin_copy(const ProgramOp& op, Stream stream, const SavedCopy& copy, const std::string& suffix) {
  StepOp made = new_op(op, Phase::offload, {.moved = copy.bytes});
  made.stream = stream;
  made.kind = OpKind::custom;
  emit_.begin_op(made, copy.name + suffix);
}

/// A clone of what a node saves, as large as the tensor it sees (not the whole storage of a view).
ProgramLowering::SavedCopy ProgramLowering::copy_of_saved(std::size_t k, std::size_t i) const {
  const Saved& saved = kernels_[k].saved[i];
  const auto index = static_cast<std::size_t>(saved.index);
  const ProgramOp& op = op_at(k);
  if (saved.of == Saved::Of::temp) {
    const Temp& temp = kernels_[k].temps[index];
    return {op.name + "." + temp.name, temp.bytes};
  }
  const Tensor& of = tensor(saved.of == Saved::Of::input ? op.inputs[index] : op.outputs[index]);
  return {of.name, Bytes{*element_count(of.shape) * bytes_per_element(of.dtype)}};
}

void ProgramLowering::hold_variables(const ProgramOp& op, Phase phase) {
  std::vector<StorageId>& scope = phase == Phase::recompute ? locals_ : variables_;
  for (const TensorId t : op.outputs) {
    StorageId& variable = scope[static_cast<std::size_t>(t)];
    drop(variable);
    variable = value(t);
    emit_.hold(variable);
  }
}

void ProgramLowering::release_variables(const Turn& turn) {
  std::vector<StorageId>& scope = turn.phase == Phase::recompute ? locals_ : variables_;
  for (const TensorId t : op_at(static_cast<std::size_t>(turn.op)).releases) {
    const bool held = training_.loop.logits_held && std::ranges::find(program_.logits, t) != program_.logits.end();
    if (!held) drop(scope[static_cast<std::size_t>(t)]);
  }
}

void ProgramLowering::drop(StorageId& variable) {
  if (variable == none) return;
  emit_.release(variable);
  variable = none;
}

}  // namespace tidemark
