#include "tidemark/step/optimizer.hpp"

#include <map>

namespace tidemark {
namespace {

int moments_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::none:
    case OptimizerKind::sgd:
      return 0;
    case OptimizerKind::momentum:
      return 1;
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      return 2;
  }
  return 0;
}

constexpr std::string_view moment_name(OptimizerKind kind, int moment) {
  if (kind == OptimizerKind::momentum) return ".momentum_buffer";
  return moment == 0 ? ".exp_avg" : ".exp_avg_sq";
}

StepOp optimizer_op(std::int32_t layer, int step, DType dtype) {
  StepOp op;
  op.layer = layer;
  op.phase = Phase::optimizer;
  op.step = static_cast<std::int16_t>(step);
  op.dtype = dtype;
  return op;
}

/// Elementwise cost a parameter and step, as in torch/optim/_functional.py: Adam reads parameter, gradient and two
/// moments and writes three of them, about 12 operations; SGD 2, momentum 4.
std::int64_t flops_per_element(OptimizerKind kind) {
  return moments_of(kind) == 2 ? 12 : moments_of(kind) == 1 ? 4 : 2;
}

Bytes sized(std::int64_t elements, DType dtype) { return {elements * bytes_per_element(dtype)}; }

}  // namespace

void OptimizerState::emit_initial(Emitter& emit, const std::vector<OptimizerParameter>& parameters) {
  states_.resize(parameters.size());
  if (optimizer_.kind == OptimizerKind::none) return;
  const auto initial = [&](const OptimizerParameter& p, std::string_view name, DType dtype) {
    const StorageId id =
        emit.initial(p.name + std::string(name), sized(p.elements, dtype), Category::optimizer_state, p.layer);
    emit.step().storages[id].outlives_step = true;
    return id;
  };
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (dtypes_.master && parameters[i].trained) states_[i].master = initial(parameters[i], ".master", *dtypes_.master);
  if (!habits_.states_first) return;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    for (int m = 0; parameters[i].trained && m < moments_of(optimizer_.kind); ++m)
      states_[i].moments.push_back(
          initial(parameters[i], moment_name(optimizer_.kind, m), moment_dtype(parameters[i].dtype)));
}

OptimizerHabits optimizer_habits(const Training& training) {
  const Profile& profile = training.profile;
  if (profile.kernels == "cpu-1.13")
    return {.device_scalars = true, .profiling_handle = true, .adam_decays = 2, .foreach_sum_is_new = true};
  if (profile.kernels == "cpu-2.6") return {.device_scalars = true};
  return {.foreach_sum_is_new = training.pytorch != "2.6",
          .clipping = profile.loop == "megatron" ? ClippingForm::multi_tensor_norm : ClippingForm::foreach,
          .states_first = profile.loop == "deepspeed" || is_deepspeed(training.shards)};
}

/// A number of the host program in arithmetic with a tensor.
void OptimizerState::emit_scalar(Emitter& emit) {
  if (!habits_.device_scalars) return;
  const StorageId number = emit.alloc("optimizer.number", Bytes{8}, Category::temporary, -1);
  const StorageId cast = emit.alloc("optimizer.number_cast", Bytes{4}, Category::temporary, -1);
  emit.release(cast);
  emit.release(number);
}

void OptimizerState::emit_birth(Emitter& emit, const std::vector<OptimizerParameter>& parameters, int step) {
  if (moments_of(optimizer_.kind) == 0) return;
  emit.begin_op(optimizer_op(-1, step, moment_dtype(dtypes_.parameters)), "optimizer.state");
  std::vector<StorageId> born;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].gradient != no_id) emit_births(emit, parameters[i], states_[i], born);
  emit.compute(born);
}

StorageId OptimizerState::emit_state(Emitter& emit, const std::string& name, Bytes bytes, std::int32_t layer) {
  const StorageId id = emit.alloc(name, bytes, Category::optimizer_state, layer);
  emit.step().storages[id].outlives_step = true;
  return id;
}

void OptimizerState::emit_births(Emitter& emit, const OptimizerParameter& p, State& state,
                                 std::vector<StorageId>& born) {
  if (!state.moments.empty()) return;
  if (is_adam() && habits_.device_scalars) emit_state(emit, p.name + ".step", Bytes{4}, p.layer);
  for (int m = 0; m < moments_of(optimizer_.kind); ++m) {
    const std::string name = p.name + std::string(moment_name(optimizer_.kind, m));
    state.moments.push_back(emit_state(emit, name, sized(p.elements, moment_dtype(p.dtype)), p.layer));
    born.push_back(state.moments.back());
  }
}

/// Adam's single-tensor form: sqrt, then quotient, sqrt dies; the previous parameter's quotient dies only at
/// rebinding (measured on PyTorch 1.13 and 2.6).
void OptimizerState::emit_single(Emitter& emit, const OptimizerParameter& p, const State& state, StorageId& previous,
                                 int step) {
  StepOp op = optimizer_op(p.layer, step, p.dtype);
  op.other_flops = flops_per_element(optimizer_.kind) * p.elements;
  const DType work = dtypes_.master.value_or(p.dtype);
  op.moved = Bytes{p.elements * (2 * bytes_per_element(p.dtype) + bytes_per_element(work)) +
                   2 * static_cast<std::int64_t>(state.moments.size()) * p.elements *
                       bytes_per_element(moment_dtype(p.dtype))};
  emit.begin_op(op, "optimizer." + p.name);
  std::vector<StorageId> touched = {p.storage, p.gradient};
  if (state.master != no_id) touched.push_back(state.master);
  touched.insert(touched.end(), state.moments.begin(), state.moments.end());
  if (!is_adam() || optimizer_.fused) {
    // momentum_buffer.mul_(momentum) does not run in the step that made the buffer
    if (optimizer_.kind == OptimizerKind::momentum && !born_now_) emit_scalar(emit);
    if (optimizer_.fused) emit_scalar(emit);
    emit.compute(touched);
    return;
  }
  emit_scalar(emit);                                               // step += 1
  if (optimizer_.kind == OptimizerKind::adamw) emit_scalar(emit);  // weight decay
  for (int i = 0; i < habits_.adam_decays; ++i) emit_scalar(emit);
  const StorageId root =
      emit.alloc(p.name + ".sqrt", sized(p.elements, moment_dtype(p.dtype)), Category::temporary, p.layer);
  StorageId number = no_id, cast = no_id;
  if (habits_.device_scalars) {
    number = emit.alloc("optimizer.number", Bytes{8}, Category::temporary, -1);
    cast = emit.alloc("optimizer.number_cast", Bytes{4}, Category::temporary, -1);
  }
  const StorageId quotient =
      emit.alloc(p.name + ".denominator", sized(p.elements, moment_dtype(p.dtype)), Category::temporary, p.layer);
  touched.push_back(root);
  touched.push_back(quotient);
  emit.compute(touched);
  if (habits_.device_scalars) {
    emit.release(cast);
    emit.release(number);
  }
  emit.release(root);
  emit_scalar(emit);  // + epsilon
  if (previous != no_id) emit.release(previous);
  previous = quotient;
}

/// Multi-tensor (foreach) form, PyTorch's default on CUDA: `exp_avg_sq_sqrt = _foreach_sqrt(exp_avg_sqs)` makes one
/// temporary a parameter for the whole (device, dtype) group; the previous group's list dies at rebinding.
/// Source: torch/optim/adam.py, _multi_tensor_adam, 2.6; single copy confirmed by published A100 peaks. Up to 2.0 that
/// of adam.py and adamw.py reads `denom = _foreach_add(exp_avg_sq_sqrt, eps)`, a second list.
void OptimizerState::emit_group(Emitter& emit, const std::vector<const OptimizerParameter*>& group,
                                const std::vector<const State*>& states, std::vector<StorageId>& previous, int step) {
  StepOp op = optimizer_op(-1, step, group.front()->dtype);
  std::vector<StorageId> touched;
  std::vector<StorageId> roots;
  const bool temporaries = !optimizer_.fused && moments_of(optimizer_.kind) == 2;
  for (std::size_t i = 0; i < group.size(); ++i) {
    const OptimizerParameter& p = *group[i];
    op.other_flops += flops_per_element(optimizer_.kind) * p.elements;
    const auto moments = static_cast<std::int64_t>(states[i]->moments.size());
    op.moved +=
        Bytes{p.elements * (3 * bytes_per_element(p.dtype) + 2 * moments * bytes_per_element(moment_dtype(p.dtype)))};
    touched.push_back(p.storage);
    touched.push_back(p.gradient);
    if (states[i]->master != no_id) touched.push_back(states[i]->master);
    touched.insert(touched.end(), states[i]->moments.begin(), states[i]->moments.end());
  }
  emit.begin_op(op, "optimizer." + std::string(to_string(group.front()->dtype)));
  const auto scalars = [&](int passes) {
    for (int pass = 0; pass < passes; ++pass)
      for (std::size_t i = 0; i < group.size(); ++i) emit_scalar(emit);
  };
  const auto list = [&](std::string_view name, bool adds_number) {
    std::vector<StorageId> made;
    for (const OptimizerParameter* p : group) {
      const bool wraps = adds_number && habits_.device_scalars;
      const StorageId number = wraps ? emit.alloc("optimizer.number", Bytes{8}, Category::temporary, -1) : no_id;
      const StorageId cast = wraps ? emit.alloc("optimizer.number_cast", Bytes{4}, Category::temporary, -1) : no_id;
      made.push_back(emit.alloc(p->name + std::string(name), sized(p->elements, moment_dtype(p->dtype)),
                                Category::temporary, p->layer));
      if (!wraps) continue;
      emit.release(cast);
      emit.release(number);
    }
    return made;
  };
  if (temporaries) {
    if (habits_.foreach_sum_is_new) {
      scalars(1);  // steps += 1
    } else if (habits_.device_scalars) {
      emit.release(emit.alloc("optimizer.one", Bytes{4}, Category::temporary, -1));
    }
    if (optimizer_.kind == OptimizerKind::adamw) scalars(1);  // weight decay
    scalars(habits_.adam_decays);
    roots = list(".sqrt", false);
    scalars(habits_.foreach_sum_is_new ? 1 : 2);  // / bias correction, and + epsilon where that is in place
    if (habits_.foreach_sum_is_new) {
      const std::vector<StorageId> denominators = list(".denominator", true);
      roots.insert(roots.end(), denominators.begin(), denominators.end());
    }
  }
  touched.insert(touched.end(), roots.begin(), roots.end());
  emit.compute(touched);
  release_list(emit, previous);
  previous = roots;
}

/// A Python list lets its elements go from the last one on.
void OptimizerState::release_list(Emitter& emit, std::vector<StorageId>& list) {
  for (; !list.empty(); list.pop_back()) emit.release(list.back());
}

void OptimizerState::emit_step(Emitter& emit, const std::vector<OptimizerParameter>& parameters, int step) {
  if (optimizer_.kind == OptimizerKind::none) return;
  if (habits_.profiling_handle) {
    emit.begin_op(optimizer_op(-1, step, moment_dtype(dtypes_.parameters)), "optimizer.profile");
    const StorageId handle = emit.alloc("optimizer.handle", Bytes{4}, Category::temporary, -1);
    const StorageId record = emit.alloc("optimizer.record", Bytes{288}, Category::temporary, -1);
    emit.compute({});
    emit.release(record);
    emit.release(handle);
  }
  if (optimizer_.clips) emit_clipping(emit, parameters, habits_.clipping, dtypes_.main_gradients, step);
  if (optimizer_.block_8bit > 0) {
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (parameters[i].gradient != no_id) emit_8bit(emit, parameters[i], states_[i], step);
    return;
  }
  born_now_ = states_.empty() || states_.front().moments.empty();
  emit_birth(emit, parameters, step);
  if (!optimizer_.multi_tensor) {
    StorageId previous = no_id;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (parameters[i].gradient != no_id) emit_single(emit, parameters[i], states_[i], previous, step);
    if (previous != no_id) emit.release(previous);
    return;
  }
  std::map<DType, std::pair<std::vector<const OptimizerParameter*>, std::vector<const State*>>> groups;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].gradient == no_id) continue;
    groups[parameters[i].dtype].first.push_back(&parameters[i]);
    groups[parameters[i].dtype].second.push_back(&states_[i]);
  }
  std::vector<StorageId> previous;
  for (const auto& [dtype, group] : groups) emit_group(emit, group.first, group.second, previous, step);
  release_list(emit, previous);
}

void OptimizerState::emit_step_of(Emitter& emit, const std::vector<OptimizerParameter>& parameters, std::size_t i,
                                  int step) {
  const OptimizerParameter& p = parameters[i];
  State& state = states_[i];
  if (optimizer_.block_8bit > 0) return emit_8bit(emit, p, state, step);
  born_now_ = state.moments.empty();
  if (born_now_ && moments_of(optimizer_.kind) > 0) {
    std::vector<StorageId> born;
    emit.begin_op(optimizer_op(p.layer, step, moment_dtype(p.dtype)), "optimizer.state");
    emit_births(emit, p, state, born);
    emit.compute(born);
  }
  std::vector<StorageId> list;
  if (optimizer_.multi_tensor) return emit_group(emit, {&p}, {&state}, list, step), release_list(emit, list);
  StorageId denominator = no_id;
  emit_single(emit, p, state, denominator, step);
  if (denominator != no_id) emit.release(denominator);
}

}  // namespace tidemark
