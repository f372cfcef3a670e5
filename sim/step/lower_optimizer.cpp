// What does a step end with: exchanges with the replicas, the optimizer, zero_grad?
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

#include "issued_ops.hpp"
#include "program_lowering.hpp"

namespace tidemark {

/// Main-gradient buffers exist before step 0; backward adds into them and allocates no gradient of its own (M7).
void ProgramLowering::emit_main_gradients() {
  if (!training_.dtypes.main_gradients) return;
  for (std::size_t i = 0; i < optimizer_parameters_.size(); ++i) {
    if (!tensor(parameter_tensors_[i]).requires_grad) continue;
    const OptimizerParameter& p = optimizer_parameters_[i];
    const std::int64_t elements = *element_count(tensor(parameter_tensors_[i]).shape);
    const Bytes bytes{elements * bytes_per_element(*training_.dtypes.main_gradients)};
    const StorageId id = emit_.initial(p.name + ".main_grad", bytes, Category::gradient, p.layer);
    step_.storages[id].outlives_step = true;
    leaf_storage(parameter_tensors_[i]) = id;
  }
}

/// Replicas that divide states see the trained parameters of each data type as one. Megatron-LM's buffers of parameters
/// and main gradients hold the padding too; DeepSpeed's is of the parameters.
void ProgramLowering::divide_states() {
  const Shards& shards = training_.shards;
  if (!shards.distributed_optimizer && shards.sharding != Sharding::zero1 && shards.sharding != Sharding::zero2) return;
  std::map<std::pair<bool, DType>, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < optimizer_parameters_.size(); ++i)
    if (const OptimizerParameter& p = optimizer_parameters_[i]; tensor(parameter_tensors_[i]).requires_grad)
      groups[{is_shared_out(p.name, shards), p.dtype}].push_back(i);
  const auto pad = [&](const char* name, std::int64_t bytes, Category category) {
    step_.storages[emit_.initial(name, Bytes{bytes}, category, -1)].outlives_step = true;
  };
  for (const auto& [of, group] : groups) {
    const auto& [shared_out, dtype] = of;
    std::vector<std::int64_t> sizes;
    for (const std::size_t i : group) sizes.push_back(optimizer_parameters_[i].elements);
    flat_.push_back(flat_parameters(sizes, shards, shared_out ? expert_data_ranks(shards) : state_ranks(shards)));
    for (std::size_t n = 0; n < group.size(); ++n) optimizer_parameters_[group[n]].elements = flat_.back().owned[n];
    pad("parameters.padding", flat_.back().padding * bytes_per_element(dtype), Category::parameter);
    if (shards.distributed_optimizer && training_.dtypes.main_gradients)
      pad("main_gradients.padding", flat_.back().padding * bytes_per_element(*training_.dtypes.main_gradients),
          Category::gradient);
  }
}

/// All replicas at once, at the end of a step: a ring passes all but a rank's own part, an all-reduce twice.
void ProgramLowering::exchange_with_replicas(std::string_view how, std::string_view what, std::int64_t bytes,
                                             std::int64_t ranks) {
  if (ranks == 1) return;
  const std::int64_t once = passed_in_ring(bytes, ranks);
  emit_.begin_op(collective_op(step_number_, Bytes{how == "all_reduce" ? 2 * once : once}),
                 std::string(what) + "." + std::string(how));
  emit_.compute({});
}

/// Gradients are added up over the replicas, in place; where states are divided, each rank gets its own part's sum, and
/// all gather the parameters when they have been updated. DeepSpeed makes an fp32 copy of the part's gradients for the
/// update (stage_1_and_2.py, step).
void ProgramLowering::emit_optimizer() {
  if (training_.optimizer.in_backward) return;
  if (modules_) return emit_sub_groups();
  const Shards& shards = training_.shards;
  struct Sum {
    std::int64_t of_gradients = 0, of_parameters = 0;
  };
  std::array<Sum, 2> sums;  // of what every rank has, and of experts that ranks have shared out
  std::int64_t owned = 0, owned_gradients = 0;
  for (std::size_t i = 0; i < optimizer_parameters_.size(); ++i) {
    OptimizerParameter& p = optimizer_parameters_[i];
    const TensorId t = parameter_tensors_[i];
    p.gradient = is_sharded(t) ? units_->gradient(t) : leaf_storage(t);
    const bool partitioned = partition_ && partition_->owns(t);
    if (partitioned) p.gradient = partition_->gradient();
    if (is_sharded(t) || p.gradient == none) continue;
    const std::int64_t elements = *element_count(tensor(t).shape);
    const std::int64_t item = partitioned
                                  ? bytes_per_element(shards.zero.grad_accum_dtype.value_or(p.dtype))
                                  : step_.storages[p.gradient].bytes.count / std::max<std::int64_t>(elements, 1);
    Sum& sum = sums[is_shared_out(p.name, shards) ? 1 : 0];
    sum.of_gradients += elements * item;
    sum.of_parameters += elements * bytes_per_element(p.dtype);
    owned += p.elements;
    owned_gradients += p.elements * item;
  }
  const bool updates = training_.optimizer.kind != OptimizerKind::none;
  const bool replicas = updates && !units_;  // units have exchanged theirs in backward
  const bool divided = !flat_.empty();
  const auto exchange = [&](std::string_view how, const std::string& what, std::int64_t Sum::*bytes) {
    exchange_with_replicas(how, what, sums[0].*bytes, state_ranks(shards));
    if (shards.expert > 1) exchange_with_replicas(how, "experts." + what, sums[1].*bytes, expert_data_ranks(shards));
  };
  if (replicas && !partition_ && !buckets_)
    exchange(divided ? "reduce_scatter" : "all_reduce", "gradients", &Sum::of_gradients);
  if (updates) add_partial_gradients();
  const bool copies = shards.sharding == Sharding::zero1 || partition_;
  const StorageId wide = updates && copies ? emit_wide_gradients(owned, Bytes{owned_gradients}) : none;
  if (partition_) {
    partition_->release_gradients();
    for (OptimizerParameter& p : optimizer_parameters_)
      if (p.trained) p.gradient = wide;
  }
  optimizer_.emit_step(emit_, optimizer_parameters_, step_number_);
  if (wide != none) emit_.release(wide);
  if (replicas && divided) exchange("all_gather", "parameters", &Sum::of_parameters);
}

/// DeepSpeed's stage 3 updates a rank's part group by group, each with an fp32 copy of its gradients (stage3.py, step).
void ProgramLowering::emit_sub_groups() {
  modules_->release_all();
  if (training_.optimizer.kind == OptimizerKind::none) return;
  const DType type = training_.shards.zero.grad_accum_dtype.value_or(training_.dtypes.parameters);
  for (std::size_t begin = 0, end = 0; begin < optimizer_parameters_.size(); begin = end) {
    std::int64_t owned = 0;
    for (; end < optimizer_parameters_.size() && owned < training_.shards.zero.sub_group_size; ++end)
      if (optimizer_parameters_[end].trained) owned += optimizer_parameters_[end].elements;
    if (owned == 0) break;
    const StorageId wide = emit_wide_gradients(owned, Bytes{owned * bytes_per_element(type)});
    for (std::size_t i = begin; i < end; ++i)
      if (optimizer_parameters_[i].trained) optimizer_parameters_[i].gradient = wide;
    optimizer_.emit_step(emit_, optimizer_parameters_, step_number_);
    for (std::size_t i = begin; i < end; ++i) optimizer_parameters_[i].gradient = none;
    emit_.release(wide);
  }
  modules_->gather_persistent();
}

/// The part's gradients side by side as they come, then in fp32; the first copy goes. In fp32 there is one.
StorageId ProgramLowering::emit_wide_gradients(std::int64_t owned, Bytes flat) {
  emit_.begin_op(issued_op(step_number_, Phase::optimizer), "optimizer.gradients");
  const Bytes whole{4 * owned};
  const StorageId narrow = flat == whole ? none : emit_.alloc("gradients.flat", flat, Category::temporary, -1);
  const StorageId wide = emit_.alloc("gradients.float", whole, Category::temporary, -1);
  std::vector<StorageId> touched = {wide};
  if (narrow != none) touched.push_back(narrow);
  emit_.compute(touched);
  if (narrow != none) emit_.release(narrow);
  return wide;
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
  emit_.begin_op(issued_op(step_number_, Phase::optimizer), "zero_grad");
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
