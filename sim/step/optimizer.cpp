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
  if (!dtypes_.master || optimizer_.kind == OptimizerKind::none) return;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const OptimizerParameter& p = parameters[i];
    states_[i].master =
        emit.initial(p.name + ".master", sized(p.elements, *dtypes_.master), Category::optimizer_state, p.layer);
    emit.step().storages[states_[i].master].outlives_step = true;
  }
}

void OptimizerState::emit_birth(Emitter& emit, const std::vector<OptimizerParameter>& parameters, int step) {
  const int moments = moments_of(optimizer_.kind);
  if (moments == 0) return;
  emit.begin_op(optimizer_op(-1, step, dtypes_.moments), "optimizer.state");
  std::vector<StorageId> born;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].gradient == no_id || !states_[i].moments.empty()) continue;
    for (int m = 0; m < moments; ++m) {
      const StorageId id =
          emit.alloc(parameters[i].name + std::string(moment_name(optimizer_.kind, m)),
                     sized(parameters[i].elements, dtypes_.moments), Category::optimizer_state, parameters[i].layer);
      emit.step().storages[id].outlives_step = true;
      states_[i].moments.push_back(id);
      born.push_back(id);
    }
  }
  emit.compute(born);
}

/// Adam's single-tensor form: sqrt, then quotient, sqrt dies; the previous parameter's quotient dies only at
/// rebinding (measured on PyTorch 1.13 and 2.6).
void OptimizerState::emit_single(Emitter& emit, const OptimizerParameter& p, const State& state, StorageId& previous,
                                 int step) {
  StepOp op = optimizer_op(p.layer, step, p.dtype);
  op.other_flops = flops_per_element(optimizer_.kind) * p.elements;
  const DType work = dtypes_.master.value_or(p.dtype);
  op.moved =
      Bytes{p.elements * (2 * bytes_per_element(p.dtype) + bytes_per_element(work)) +
            2 * static_cast<std::int64_t>(state.moments.size()) * p.elements * bytes_per_element(dtypes_.moments)};
  emit.begin_op(op, "optimizer." + p.name);
  std::vector<StorageId> touched = {p.storage, p.gradient};
  if (state.master != no_id) touched.push_back(state.master);
  touched.insert(touched.end(), state.moments.begin(), state.moments.end());
  const bool temporaries = !optimizer_.fused && moments_of(optimizer_.kind) == 2;
  if (!temporaries) {
    emit.compute(touched);
    return;
  }
  const StorageId root = emit.alloc(p.name + ".sqrt", sized(p.elements, dtypes_.moments), Category::temporary, p.layer);
  const StorageId quotient =
      emit.alloc(p.name + ".denominator", sized(p.elements, dtypes_.moments), Category::temporary, p.layer);
  touched.push_back(root);
  touched.push_back(quotient);
  emit.compute(touched);
  emit.release(root);
  if (previous != no_id) emit.release(previous);
  previous = quotient;
}

/// Multi-tensor (foreach) form, PyTorch's default on CUDA: `exp_avg_sq_sqrt = _foreach_sqrt(exp_avg_sqs)` makes one
/// temporary a parameter for the whole (device, dtype) group; the previous group's list dies at rebinding.
/// Source: torch/optim/adam.py, _multi_tensor_adam, 2.6; single copy confirmed by published A100 peaks.
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
    op.moved += Bytes{p.elements * (3 * bytes_per_element(p.dtype) + 2 * moments * bytes_per_element(dtypes_.moments))};
    touched.push_back(p.storage);
    touched.push_back(p.gradient);
    if (states[i]->master != no_id) touched.push_back(states[i]->master);
    touched.insert(touched.end(), states[i]->moments.begin(), states[i]->moments.end());
  }
  emit.begin_op(op, "optimizer." + std::string(to_string(group.front()->dtype)));
  if (temporaries)
    for (const OptimizerParameter* p : group)
      roots.push_back(
          emit.alloc(p->name + ".sqrt", sized(p->elements, dtypes_.moments), Category::temporary, p->layer));
  touched.insert(touched.end(), roots.begin(), roots.end());
  emit.compute(touched);
  for (const StorageId id : previous) emit.release(id);
  previous = roots;
}

void OptimizerState::emit_step(Emitter& emit, const std::vector<OptimizerParameter>& parameters, int step) {
  if (optimizer_.kind == OptimizerKind::none) return;
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
  for (const StorageId id : previous) emit.release(id);
}

}  // namespace tidemark
