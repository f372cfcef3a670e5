// What a step ends with: exchanges of gradients with other ranks, the optimizer, zero_grad.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "program_lowering.hpp"

namespace tidemark {

/// All replicas at once, at the end of a step: a ring passes all but a rank's own part, an all-reduce twice.
void ProgramLowering::exchange_with_replicas(std::string_view how, std::string_view what, std::int64_t bytes) {
  const std::int64_t ranks = state_ranks(training_.shards);
  const std::int64_t once = bytes - bytes / ranks;
  StepOp op;
  op.phase = Phase::communication;
  op.step = static_cast<std::int16_t>(step_number_);
  op.kind = OpKind::collective;
  op.moved = Bytes{how == "all_reduce" ? 2 * once : once};
  emit_.begin_op(op, std::string(what) + "." + std::string(how));
  emit_.compute({});
}

/// Of parameters that every tensor-parallel rank has whole, but whose gradients it has of its own tokens, or heads,
/// alone: under sequence parallelism vectors that no rank has a part of (norms, biases behind row products), and norms
/// of queries and keys always. megatron/core/distributed/finalize_model_grads.py, _allreduce_layernorm_grads.
std::vector<StorageId> ProgramLowering::partial_gradients() {
  std::set<std::string> divided;  // biases of column products, whoever adds them
  for (const ProgramOp& op : program_.ops)
    if (op.kind == OpKind::linear && op.attributes.implementation.starts_with("column")) {
      const std::string& weight = tensor(op.inputs[1]).name;
      divided.insert(weight.substr(0, weight.rfind('.')) + ".bias");
    }
  std::vector<StorageId> out;
  for (const TensorId t : parameter_tensors_) {
    const std::string& name = tensor(t).name;
    const bool of_heads = name.find(".q_norm") != std::string::npos || name.find(".k_norm") != std::string::npos;
    const bool of_tokens = training_.shards.sequence && tensor(t).shape.size() == 1 && !divided.contains(name);
    if ((of_heads || of_tokens) && leaf_storage(t) != none) out.push_back(leaf_storage(t));
  }
  return out;
}

/// Copied side by side, added up over the ranks, copied back; a single one needs no copy.
void ProgramLowering::add_partial_gradients() {
  const std::int64_t ranks = training_.shards.tensor;
  if (ranks == 1) return;
  std::vector<StorageId> touched = partial_gradients();
  if (touched.empty()) return;
  Bytes bytes;
  for (const StorageId id : touched) bytes += step_.storages[id].bytes;
  StepOp op;
  op.phase = Phase::communication;
  op.step = static_cast<std::int16_t>(step_number_);
  op.kind = OpKind::collective;
  op.moved = Bytes{2 * (bytes.count - bytes.count / ranks)};
  emit_.begin_op(op, "norm_gradients.all_reduce");
  StorageId flat = none;
  if (touched.size() > 1) touched.push_back(flat = emit_.alloc("norm_gradients.flat", bytes, Category::temporary, -1));
  emit_.compute(touched);
  if (flat != none) emit_.release(flat);
}

/// Gradients are added up over the replicas, in place; where states are divided, each rank gets its own part's sum, and
/// all gather the parameters when they have been updated. DeepSpeed makes an fp32 copy of the part's gradients for the
/// update (stage_1_and_2.py, step).
void ProgramLowering::emit_optimizer() {
  if (training_.optimizer.in_backward) return;
  std::int64_t of_gradients = 0, of_parameters = 0, owned = 0, owned_gradients = 0;
  for (std::size_t i = 0; i < optimizer_parameters_.size(); ++i) {
    OptimizerParameter& p = optimizer_parameters_[i];
    const TensorId t = parameter_tensors_[i];
    p.gradient = is_sharded(t) ? units_->gradient(t) : leaf_storage(t);
    if (is_sharded(t) || p.gradient == none) continue;
    const std::int64_t elements = *element_count(tensor(t).shape);
    const std::int64_t item = step_.storages[p.gradient].bytes.count / std::max<std::int64_t>(elements, 1);
    of_gradients += elements * item;
    of_parameters += elements * bytes_per_element(p.dtype);
    owned += p.elements;
    owned_gradients += p.elements * item;
  }
  const Shards& shards = training_.shards;
  const bool updates = training_.optimizer.kind != OptimizerKind::none;
  const bool replicas = updates && !units_ && state_ranks(shards) > 1;  // units have exchanged theirs in backward
  const bool divided = !flat_.empty();
  if (replicas) exchange_with_replicas(divided ? "reduce_scatter" : "all_reduce", "gradients", of_gradients);
  if (updates) add_partial_gradients();
  StorageId wide = none;
  if (updates && shards.sharding == Sharding::zero1) {
    StepOp op;
    op.phase = Phase::optimizer;
    op.step = static_cast<std::int16_t>(step_number_);
    emit_.begin_op(op, "optimizer.gradients");
    const StorageId flat = emit_.alloc("gradients.flat", Bytes{owned_gradients}, Category::temporary, -1);
    wide = emit_.alloc("gradients.float", Bytes{4 * owned}, Category::temporary, -1);
    emit_.compute({flat, wide});
    emit_.release(flat);
  }
  optimizer_.emit_step(emit_, optimizer_parameters_, step_number_);
  if (wide != none) emit_.release(wide);
  if (replicas && divided) exchange_with_replicas("all_gather", "parameters", of_parameters);
}

/// torch's register_post_accumulate_grad_hook (torchtune, optimizer_in_bwd): update, then zero_grad, of one weight.
void ProgramLowering::step_in_backward(TensorId t) {
  const auto i = parameter_numbers_[static_cast<std::size_t>(tensor(t).storage)];
  optimizer_parameters_[i].gradient = leaf_storage(t);
  optimizer_.emit_step_of(emit_, optimizer_parameters_, i, step_number_);
  emit_.release(std::exchange(leaf_storage(t), none));
}

/// Gradients die in parameter order under `zero_grad: none`, else they are zeroed where they are.
void ProgramLowering::emit_zero_grad() {
  StepOp op;
  op.phase = Phase::optimizer;
  op.step = static_cast<std::int16_t>(step_number_);
  emit_.begin_op(op, "zero_grad");
  emit_.compute({});
  if (!training_.optimizer.zero_grad_to_none || training_.dtypes.main_gradients) return;
  const auto release = [&](TensorId t) {
    StorageId& id = leaf_storage(t);
    if (id != none) emit_.release(id);
    id = none;
  };
  for (const TensorId t : parameter_tensors_) release(t);
  for (const TensorId t : program_.inputs) release(t);
  if (units_) units_->zero_gradients();
  born_gradients_.clear();
}

}  // namespace tidemark
