#include <algorithm>

#include "program_lowering.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/program/strides.hpp"

namespace tidemark {

void ProgramLowering::start_backward() {
  const Tensor& loss = tensor(program_.loss);
  StepOp op;
  op.layer = loss.layer;
  op.phase = Phase::backward;
  op.dtype = loss.dtype;
  op.step = static_cast<std::int16_t>(step_number_);
  op.micro_batch = micro_batch_;
  emit_.begin_op(op, "loss.gradient");
  const Bytes bytes{*element_count(loss.shape) * bytes_per_element(loss.dtype)};
  const StorageId storage = emit_.alloc(loss.name + ".grad", bytes, Category::gradient, loss.layer);
  emit_.compute({storage});
  const GradientId seed = gradients_.make(storage, loss.shape, contiguous_strides(loss.shape), false);
  buffers_[static_cast<std::size_t>(program_.loss)] = seed;
  if (!runtime_.seed_held) return;
  gradients_.hold(seed);
  seed_ = seed;
}

/// One node (E3): its kernels, then recomputed locals, the incoming gradients, the saved tensors; then the gradients
/// are handed on in order.
void ProgramLowering::emit_backward(const Turn& turn) {
  const auto k = static_cast<std::size_t>(turn.op);
  const ProgramOp& op = op_at(k);
  const Kernel& kernel = kernels_[k];
  std::vector<GradientId> incoming = take_incoming(op);
  if (incoming.empty() || kernel.gradients.empty()) {
    release_incoming(incoming);
    release_saved(k, turn.region);
    return;
  }
  if (!kernel.backward.empty()) emit_.begin_op(new_op(op, Phase::backward, kernel.backward_cost), op.name);
  load_cached_inputs(k);
  std::vector<StorageId> fresh(op.inputs.size(), none);
  std::vector<StorageId> temps(kernel.temps.size(), none);
  for (const Move& move : kernel.backward) {
    const auto index = static_cast<std::size_t>(move.slot.index);
    if (move.what == Move::What::run) {
      emit_.compute(touched_by_backward(k, incoming, fresh, temps));
    } else if (move.slot.of == Slot::Of::temp) {
      move_temp(move, kernel, op, temps);
    } else if (move.what == Move::What::alloc) {
      const auto rule = std::ranges::find(kernel.gradients, move.slot.index, &GradientRule::input);
      check(rule != kernel.gradients.end(), "a kernel allocates a gradient that it does not declare: " + op.name);
      fresh[index] = make_gradient(op, *rule);
    }
  }
  for (const StorageId temp : temps)
    if (temp != none) emit_.release(temp);
  std::vector<GradientId> handed = hand_over(k, incoming, fresh);
  if (nodes_[k].recomputed && runtime_.unpacks_to_locals) release_saved(k, turn.region);
  release_incoming(incoming);
  release_saved(k, turn.region);
  std::vector<GradientId> late;
  for (std::size_t g = 0; g < kernel.gradients.size(); ++g)
    deliver(op.inputs[static_cast<std::size_t>(kernel.gradients[g].input)], handed[g], turn.region, late);
  for (const GradientId id : late) gradients_.release(id);
}

/// The gradients that have arrived at the op's outputs; empty when none has.
std::vector<GradientId> ProgramLowering::take_incoming(const ProgramOp& op) {
  std::vector<GradientId> incoming;
  bool any = false;
  for (const TensorId t : op.outputs) {
    GradientId& slot = buffers_[static_cast<std::size_t>(t)];
    any = any || slot != no_gradient;
    incoming.push_back(slot);
    slot = no_gradient;
  }
  if (!any) incoming.clear();
  return incoming;
}

void ProgramLowering::release_incoming(const std::vector<GradientId>& incoming) {
  for (const GradientId id : incoming)
    if (id != no_gradient) gradients_.release(id);
}

void ProgramLowering::load_cached_inputs(std::size_t k) {
  if (!schedule_.cached[k] || carried_out()) return;
  Node& node = nodes_[k];
  for (std::size_t i = 0; i < kernels_[k].saved.size(); ++i) {
    const Saved& saved = kernels_[k].saved[i];
    if (saved.of != Saved::Of::input || node.saved[i] != none) continue;
    const StorageId id = value(op_at(k).inputs[static_cast<std::size_t>(saved.index)]);
    check(id != none, "a cached op's saved input is gone before its backward: " + op_at(k).name);
    save_one(node, i, id);
  }
}

/// A parameter's gradient that is added where the main gradient lies, without a tensor of its own.
bool ProgramLowering::written_in_place(TensorId t) const {
  return training_.dtypes.main_gradients && tensor(t).category == Category::parameter &&
         leaf_storages_[static_cast<std::size_t>(tensor(t).storage)] != none;
}

StorageId ProgramLowering::make_gradient(const ProgramOp& op, const GradientRule& rule) {
  const TensorId t = op.inputs[static_cast<std::size_t>(rule.input)];
  if (written_in_place(t)) {
    emit_.hold(leaf_storage(t));
    return leaf_storage(t);
  }
  return emit_.alloc(tensor(t).name + ".grad", rule.bytes, Category::temporary, op.layer);
}

std::vector<StorageId> ProgramLowering::touched_by_backward(std::size_t k, const std::vector<GradientId>& incoming,
                                                            const std::vector<StorageId>& fresh,
                                                            const std::vector<StorageId>& temps) const {
  std::vector<StorageId> touched = nodes_[k].saved;
  for (const GradientId id : incoming)
    if (id != no_gradient) touched.push_back(gradients_.storage(id));
  touched.insert(touched.end(), fresh.begin(), fresh.end());
  touched.insert(touched.end(), temps.begin(), temps.end());
  std::erase(touched, none);
  return touched;
}

std::vector<GradientId> ProgramLowering::hand_over(std::size_t k, const std::vector<GradientId>& incoming,
                                                   const std::vector<StorageId>& fresh) {
  const ProgramOp& op = op_at(k);
  std::vector<GradientId> handed;
  for (const GradientRule& rule : kernels_[k].gradients) {
    if (rule.passes_through) {
      handed.push_back(pass_through(op, rule, incoming[static_cast<std::size_t>(rule.from_output)]));
      continue;
    }
    StorageId id = fresh[static_cast<std::size_t>(rule.input)];
    if (rule.over_saved >= 0) {
      id = nodes_[k].saved[static_cast<std::size_t>(rule.over_saved)];
      emit_.hold(id);
    }
    if (id == none) {
      handed.push_back(no_gradient);
      continue;
    }
    const Tensor& input = tensor(op.inputs[static_cast<std::size_t>(rule.input)]);
    const bool like_input = rule.layout == GradientRule::Layout::like_input && is_dense(input.shape, input.strides);
    handed.push_back(
        gradients_.make(id, input.shape, like_input ? input.strides : contiguous_strides(input.shape), false));
  }
  return handed;
}

/// The incoming gradient goes on: itself, seen otherwise, or copied where its dimensions do not merge (E10).
GradientId ProgramLowering::pass_through(const ProgramOp& op, const GradientRule& rule, GradientId incoming) {
  if (incoming == no_gradient) return no_gradient;
  const Tensor& input = tensor(op.inputs[static_cast<std::size_t>(rule.input)]);
  gradients_.hold(incoming);
  switch (rule.layout) {
    case GradientRule::Layout::contiguous:
    case GradientRule::Layout::like_input:
      return incoming;
    case GradientRule::Layout::expand:
      return gradients_.viewed(incoming, input.shape, Shape(input.shape.size(), 0));
    case GradientRule::Layout::transpose: {
      Shape shape = gradients_.shape(incoming), strides = gradients_.strides(incoming);
      std::swap(shape.at(static_cast<std::size_t>(op.attributes.dims.at(0))),
                shape.at(static_cast<std::size_t>(op.attributes.dims.at(1))));
      std::swap(strides.at(static_cast<std::size_t>(op.attributes.dims.at(0))),
                strides.at(static_cast<std::size_t>(op.attributes.dims.at(1))));
      return gradients_.viewed(incoming, std::move(shape), std::move(strides));
    }
    case GradientRule::Layout::reshape:
      break;
  }
  if (auto strides = view_strides(gradients_.shape(incoming), gradients_.strides(incoming), input.shape))
    return gradients_.viewed(incoming, input.shape, *strides);
  const Bytes bytes{*element_count(input.shape) * bytes_per_element(input.dtype)};
  const StorageId copy = emit_.alloc(input.name + ".grad", bytes, Category::temporary, op.layer);
  gradients_.release(incoming);
  return gradients_.make(copy, input.shape, contiguous_strides(input.shape), false);
}

void ProgramLowering::release_saved(std::size_t k, std::int32_t region) {
  Node& node = nodes_[k];
  for (const StorageId id : node.saved)
    if (id != none) emit_.release(id);
  node.saved.clear();
  if (node.recomputed && runtime_.unpacks_to_locals) {
    node.recomputed = false;  // the slots are empty now; the frame goes when the node lets its slots go
    return;
  }
  count_released(region, kernels_[k].saved.size());
}

/// Hands a gradient to the leaf, the detached input of a reentrant region, or the node that made the tensor (E5, E6).
void ProgramLowering::deliver(TensorId t, GradientId gradient, std::int32_t region_number,
                              std::vector<GradientId>& late) {
  if (gradient == no_gradient) return;
  if (is_static(t)) {
    deliver_leaf(t, gradient, late);
    return;
  }
  if (open_region_ >= 0 && region_number == open_region_) {
    const std::vector<TensorId>& inputs = region(open_region_).inputs;
    if (const auto found = std::ranges::find(inputs, t); found != inputs.end()) {
      GradientId& leaf = region_state(open_region_).leaf_gradients[static_cast<std::size_t>(found - inputs.begin())];
      if (leaf == no_gradient)
        leaf = gradients_.steal_or_clone(gradient, tensor(t), late);
      else
        late.push_back(gradient);
      return;
    }
  }
  GradientId& buffer = buffers_[static_cast<std::size_t>(t)];
  buffer = gradients_.sum(buffer, gradient, tensor(t), late);
}

void ProgramLowering::deliver_leaf(TensorId t, GradientId gradient, std::vector<GradientId>& late) {
  StorageId& slot = leaf_storage(t);
  if (!tensor(t).requires_grad || slot != none) {  // added in place, or already written there
    gradients_.release(gradient);
    return;
  }
  const GradientId kept = gradients_.steal_or_clone(gradient, tensor(t), late);
  slot = gradients_.storage(kept);
  emit_.hold(slot);
  gradients_.release(kept);
  step_.storages[slot].category = Category::gradient;
  born_gradients_.push_back(slot);
}

}  // namespace tidemark
