#include <algorithm>
#include <optional>

#include "program_lowering.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/program/strides.hpp"

namespace tidemark {
namespace {

/// Which input of the product is its weight, where it has one.
std::optional<std::int32_t> weight_of(OpKind kind) {
  if (kind == OpKind::linear || kind == OpKind::matmul) return 1;
  if (kind == OpKind::addmm) return 2;
  return std::nullopt;
}

Cost minus(Cost all, const Cost& part) {
  all.matmul_flops -= part.matmul_flops;
  all.moved = std::max(all.moved - part.moved, Bytes{});
  return all;
}

}  // namespace

/// Megatron-LM's zero-bubble branch (WeightGradStore) and torch.distributed.pipelining put off the product that makes a
/// weight's gradient; biases, norms and tables have theirs in the activations' pass. That product is as large as
/// forward's and touches the same three matrices.
void ProgramLowering::split_weights(std::vector<Kernel>& kernels) {
  if (reentrant())
    throw InputError("a schedule that runs the backward of weights apart needs checkpointing that is not reentrant");
  weight_products_.resize(kernels.size());
  for (std::size_t k = 0; k < kernels.size(); ++k) {
    Kernel& kernel = kernels[k];
    const std::optional<std::int32_t> weight = weight_of(op_at(k).kind);
    if (!weight || kernel.gradients.size() < 2) continue;
    const TensorId t = op_at(k).inputs[static_cast<std::size_t>(*weight)];
    const auto rule = std::ranges::find(kernel.gradients, *weight, &GradientRule::input);
    if (rule == kernel.gradients.end() || tensor(t).category != Category::parameter) continue;
    weight_products_[k] = {
        .rule = *rule, .cost = {kernel.forward_cost.matmul_flops, 0, kernel.forward_cost.moved}, .apart = true};
    kernel.gradients.erase(rule);
    std::erase(kernel.backward, Move{Move::What::alloc, {Slot::Of::grad, *weight}});
    kernel.backward_cost = minus(kernel.backward_cost, weight_products_[k].cost);
  }
}

void ProgramLowering::keep_for_weights(std::size_t k, const std::vector<GradientId>& incoming) {
  if (weight_products_.empty() || !weight_products_[k].apart) return;
  LateProduct late{.op = k, .incoming = incoming.front(), .saved = {}};
  gradients_.hold(late.incoming);
  for (std::size_t i = 0; i < kernels_[k].saved.size(); ++i) {
    const StorageId id = nodes_[k].saved[i];
    const bool is_weight = kernels_[k].saved[i] == Saved{Saved::Of::input, weight_products_[k].rule.input};
    if (is_weight || id == none) continue;
    emit_.hold(id);
    late.saved.push_back(id);
  }
  late_.push_back(std::move(late));
}

/// The products that were put off, in the order of backward; each lets go of what it needed.
void ProgramLowering::emit_weights() {
  weights_begin_.push_back(static_cast<OpId>(step_.ops.size()));
  for (const LateProduct& late : late_) {
    const ProgramOp& op = op_at(late.op);
    const WeightProduct& product = weight_products_[late.op];
    const TensorId weight = op.inputs[static_cast<std::size_t>(product.rule.input)];
    emit_.begin_op(new_op(op, Phase::backward, product.cost), op.name + ".weight_gradient");
    const StorageId made = make_gradient(op, product.rule);
    const GradientCopy copies = kernels_[late.op].gradient_copy;
    StorageId copy = none;
    if ((copies == GradientCopy::per_product && !is_matrix(late.incoming)) ||
        (copies == GradientCopy::whole && !is_row_major(late.incoming)))
      copy = copied(op, late.incoming);
    std::vector<StorageId> touched = late.saved;
    touched.push_back(gradients_.storage(late.incoming));
    touched.push_back(made);
    emit_.compute(touched);
    if (copy != none) emit_.release(copy);
    const Tensor& of = tensor(weight);
    const GradientId gradient = gradients_.make(made, of.shape, contiguous_strides(of.shape), false);
    gradients_.release(late.incoming);
    for (const StorageId id : late.saved) emit_.release(id);
    std::vector<GradientId> dying;
    leaf_edges_[static_cast<std::size_t>(of.storage)] = 1;
    deliver_leaf(weight, gradient, dying);
    for (const GradientId id : dying) gradients_.release(id);
    accumulate_ready_leaves();
  }
  late_.clear();
}

}  // namespace tidemark
