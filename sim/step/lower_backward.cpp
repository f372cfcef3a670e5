#include <algorithm>
#include <utility>

#include "program_lowering.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/program/strides.hpp"

namespace tidemark {

void ProgramLowering::start_backward() {
  leaf_edges_ = leaf_edges(-1);
  const Tensor& loss = tensor(program_.loss);
  if (program_.loss_gradient >= 0) {  // out.backward(g): the caller's tensor
    const StorageId given = value(program_.loss_gradient);
    emit_.hold(given);
    buffers_[static_cast<std::size_t>(program_.loss)] =
        gradients_.make(given, loss.shape, contiguous_strides(loss.shape), false);
    return;
  }
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
  check_is_here(k, true);
  std::vector<GradientId> incoming = take_incoming(op);
  if (incoming.empty() || kernel.gradients.empty()) {
    release_incoming(incoming);
    release_saved(k, turn.region);
    return;
  }
  keep_for_weights(k, incoming);
  const std::vector<StorageId> fetched = fetch_from_host(k);
  if (!kernel.backward.empty()) open_next(k, kernel.backward, 0, Phase::backward);
  load_cached_inputs(k);
  std::vector<StorageId> unpacked = unpack_offloaded(k);
  unpacked.insert(unpacked.end(), fetched.begin(), fetched.end());
  std::vector<StorageId> fresh(op.inputs.size(), none);
  std::vector<StorageId> temps(kernel.temps.size(), none);
  const bool copies = kernel.gradient_copy == GradientCopy::per_product && !is_matrix(incoming.front());
  bool copies_whole = kernel.gradient_copy == GradientCopy::whole && !is_row_major(incoming.front());
  std::vector<StorageId> inside = zeros_for_missing(k, incoming);
  bool has_run = false;
  for (std::size_t line = 0; line < kernel.backward.size(); ++line) {
    const Move& move = kernel.backward[line];
    const auto index = static_cast<std::size_t>(move.slot.index);
    if (copies_whole && (move.what == Move::What::run || move.slot.of == Slot::Of::temp)) {
      inside.push_back(copied(op, incoming.front()));
      copies_whole = false;
    }
    if (move.works()) {
      has_run = has_run || move.what == Move::What::run;
      std::vector<StorageId> touched = touched_by_backward(k, incoming, fresh, temps);
      touched.insert(touched.end(), unpacked.begin(), unpacked.end());
      emit_.compute(touched);
      open_next(k, kernel.backward, line + 1, Phase::backward);
    } else if (move.slot.of == Slot::Of::temp) {
      move_temp(move, kernel, op, temps);
    } else if (move.what == Move::What::alloc) {
      const auto rule = std::ranges::find(kernel.gradients, move.slot.index, &GradientRule::input);
      if (has_run) release_locals(k, turn.region);  // the engine's own reduction comes after the node's return
      check(rule != kernel.gradients.end(), "a kernel allocates a gradient that it does not declare: " + op.name);
      fresh[index] = make_gradient(op, *rule);
      const bool product = tensor(op.inputs[index]).shape.size() > 1;
      if (copies && product) emit_.release(copied(op, incoming.front()));
    }
  }
  for (const StorageId temp : temps)
    if (temp != none) emit_.release(temp);
  for (const StorageId id : inside) emit_.release(id);
  std::vector<GradientId> handed = hand_over(k, incoming, fresh);
  release_locals(k, turn.region);
  std::for_each(unpacked.rbegin(), unpacked.rend(), [&](StorageId id) { emit_.release(id); });
  release_incoming(incoming);
  release_saved(k, turn.region);
  std::vector<GradientId> late;
  for (std::size_t g = 0; g < kernel.gradients.size(); ++g)
    deliver(op.inputs[static_cast<std::size_t>(kernel.gradients[g].input)], handed[g], turn.region, late);
  for (const GradientId id : late) gradients_.release(id);
  accumulate_ready_leaves();
}

StorageId ProgramLowering::copied(const ProgramOp& op, GradientId id) {
  const Tensor& output = tensor(op.outputs.front());
  check(id != no_gradient, "a gradient that is to be copied has not come: " + op.name);
  const Bytes bytes{*element_count(output.shape) * bytes_per_element(output.dtype)};
  return emit_.alloc(output.name + ".grad_copy", bytes, Category::temporary, op.layer);
}

/// What stands in for the gradients that have not come.
std::vector<StorageId> ProgramLowering::zeros_for_missing(std::size_t k, const std::vector<GradientId>& incoming) {
  std::vector<StorageId> zeros;
  const ProgramOp& op = op_at(k);
  if (kernels_[k].zeros.empty()) return zeros;
  for (std::size_t i = 0; i < incoming.size(); ++i)
    if (incoming[i] == no_gradient)
      zeros.push_back(
          emit_.alloc(tensor(op.outputs[i]).name + ".zeros", kernels_[k].zeros[i], Category::temporary, op.layer));
  return zeros;
}

bool ProgramLowering::is_row_major(GradientId id) const {
  const Shape& shape = gradients_.shape(id);
  return same_layout(shape, gradients_.strides(id), contiguous_strides(shape));
}

/// Can BLAS read it as a matrix: one of the last two strides is 1, the other spans it?
bool ProgramLowering::is_matrix(GradientId id) const {
  const Shape& shape = gradients_.shape(id);
  const Shape& strides = gradients_.strides(id);
  const std::size_t n = shape.size();
  if (n < 2) return true;
  const auto row_major = [&](std::size_t row, std::size_t column) {
    return strides[column] == 1 && strides[row] >= std::max<std::int64_t>(1, shape[column]);
  };
  return row_major(n - 2, n - 1) || row_major(n - 1, n - 2);
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
    save_one(k, i, id);
  }
}

/// Offload hooks bring a copy back for each tensor the node asks for; the copies die with the node's locals.
std::vector<StorageId> ProgramLowering::unpack_offloaded(std::size_t k) {
  std::vector<StorageId> copies;
  if (!schedule_.offloaded[k]) return copies;
  for (std::size_t i = 0; i < nodes_[k].saved.size(); ++i) {
    const StorageId id = nodes_[k].saved[i];
    if (id != none && step_.storages[id].category != Category::parameter) copies.push_back(unpacked_copy(k, i));
  }
  return copies;
}

/// The same where the first copy is on the host.
std::vector<StorageId> ProgramLowering::fetch_from_host(std::size_t k) {
  std::vector<StorageId> copies;
  for (const auto& [i, block] : std::exchange(nodes_[k].on_host, {})) {
    begin_copy(op_at(k), Stream::copy_in, copy_of_saved(k, i), ".to_device");
    copies.push_back(unpacked_copy(k, i));
    emit_.copy_and_wait({copies.back()});
    step_.host[block].back = static_cast<OpId>(step_.ops.size() - 1);
  }
  return copies;
}

StorageId ProgramLowering::unpacked_copy(std::size_t k, std::size_t i) {
  const SavedCopy copy = copy_of_saved(k, i);
  return emit_.alloc(copy.name + ".unpacked", copy.bytes, Category::activation, op_at(k).layer);
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
  for (const Saved& saved : kernels_[k].saved) {
    if (saved.of != Saved::Of::input) continue;
    const TensorId t = op_at(k).inputs[static_cast<std::size_t>(saved.index)];
    if (is_sharded(t)) touched.push_back(values_[static_cast<std::size_t>(t)]);
  }
  for (const GradientId id : incoming)
    if (id != no_gradient) touched.push_back(gradients_.storage(id));
  touched.insert(touched.end(), fresh.begin(), fresh.end());
  touched.insert(touched.end(), temps.begin(), temps.end());
  std::erase(touched, none);
  return touched;
}

namespace {

/// Strides of the gradient of what was transposed or permuted, seen as it was before.
Shape strides_before(const ProgramOp& op, const Shape& strides) {
  const auto rank = static_cast<std::int64_t>(strides.size());
  const auto dim = [&](std::size_t i) {
    const std::int64_t d = op.attributes.dims.at(i);
    return static_cast<std::size_t>(d < 0 ? d + rank : d);
  };
  Shape out = strides;
  if (op.attributes.implementation == "permute")
    for (std::size_t i = 0; i < out.size(); ++i) out[dim(i)] = strides[i];
  else
    std::swap(out.at(dim(0)), out.at(dim(1)));
  return out;
}

/// Of a sum's gradient seen in the shape of what was summed; the summed dimensions were dropped or are 1.
Shape expanded_strides(const ProgramOp& op, const Shape& shape, const Shape& strides) {
  Shape out(shape.size(), 0);
  if (op.attributes.dims.empty()) return out;
  const auto rank = static_cast<std::int64_t>(shape.size());
  const bool kept = strides.size() == shape.size();
  std::size_t next = 0;
  for (std::int64_t d = 0; d < rank; ++d) {
    const bool summed =
        std::ranges::any_of(op.attributes.dims, [&](std::int64_t s) { return s == d || s + rank == d; });
    if (!summed) out[static_cast<std::size_t>(d)] = strides.at(next);
    if (!summed || kept) ++next;
  }
  return out;
}

std::ptrdiff_t first_dimension(const ProgramOp& op, std::size_t rank) {
  const std::int64_t d = op.attributes.dims.empty() ? 0 : op.attributes.dims.front();
  return static_cast<std::ptrdiff_t>(d < 0 ? d + static_cast<std::int64_t>(rank) : d);
}

/// `incoming`: the strides of a gradient of the input's shape; else empty.
Shape fresh_strides(GradientRule::Layout layout, const Tensor& input, const Shape& incoming) {
  const bool follows = layout == GradientRule::Layout::like_gradient && incoming.size() == input.shape.size();
  if (follows && is_dense(input.shape, incoming)) return incoming;
  if (layout == GradientRule::Layout::like_input && is_dense(input.shape, input.strides)) return input.strides;
  if (layout != GradientRule::Layout::token_major) return contiguous_strides(input.shape);
  const std::int64_t heads = input.shape.at(1), rows = input.shape.at(2), d = input.shape.at(3);
  return {heads * rows * d, d, heads * d, 1};
}

}  // namespace

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
    const GradientId from = incoming[static_cast<std::size_t>(rule.from_output)];
    const bool same = from != no_gradient && gradients_.shape(from) == input.shape;
    const Shape strides = fresh_strides(rule.layout, input, same ? gradients_.strides(from) : Shape{});
    handed.push_back(gradients_.make(id, input.shape, strides, false));
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
    case GradientRule::Layout::like_gradient:
    case GradientRule::Layout::token_major:
      return incoming;
    case GradientRule::Layout::expand:
      return gradients_.viewed(incoming, input.shape, expanded_strides(op, input.shape, gradients_.strides(incoming)));
    case GradientRule::Layout::part: {
      Shape strides = gradients_.strides(incoming);
      if (strides.size() > input.shape.size()) strides.erase(strides.begin() + first_dimension(op, strides.size()));
      return gradients_.viewed(incoming, input.shape, std::move(strides));
    }
    case GradientRule::Layout::transpose:
      return gradients_.viewed(incoming, input.shape, strides_before(op, gradients_.strides(incoming)));
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

/// What a recomputation handed to the node's own locals dies with them, the last declared first (2.x).
void ProgramLowering::release_locals(std::size_t k, std::int32_t region) {
  Node& node = nodes_[k];
  if (!node.recomputed || !runtime_.unpacks_to_locals) return;
  std::ranges::reverse(node.saved);
  release_saved(k, region);
}

void ProgramLowering::release_saved(std::size_t k, std::int32_t region) {
  Node& node = nodes_[k];
  for (const StorageId id : node.saved)
    if (id != none) emit_.release(id);
  node.saved.clear();
  if (!node.recomputed && node.number != none) emit_.release(std::exchange(node.number, none));
  if (node.recomputed && runtime_.unpacks_to_locals) {
    node.recomputed = false;  // the slots are empty now; the frame goes when the node lets its slots go
    return;
  }
  count_released(region, kernels_[k].saved.size());
}

/// Hands a gradient to the leaf, the detached input of a reentrant region, or the node that made the tensor (E6).
void ProgramLowering::deliver(TensorId t, GradientId gradient, std::int32_t region_number,
                              std::vector<GradientId>& late) {
  if (gradient == no_gradient) return;
  if (is_static(t)) return deliver_leaf(t, gradient, late);
  if (open_region_ >= 0 && region_number == open_region_) {
    const std::vector<TensorId>& inputs = region(open_region_).inputs;
    if (const auto found = std::ranges::find(inputs, t); found != inputs.end())
      return deliver_detached(static_cast<std::int32_t>(found - inputs.begin()), gradient, late);
  }
  GradientId& buffer = buffers_[static_cast<std::size_t>(t)];
  buffer = gradients_.sum(buffer, gradient, tensor(t), late);
}

/// The detached input is a leaf of the inner graph: its gradients meet in a buffer, then it keeps or clones the sum.
void ProgramLowering::deliver_detached(std::int32_t input, GradientId gradient, std::vector<GradientId>& late) {
  RegionState& state = region_state(open_region_);
  const auto i = static_cast<std::size_t>(input);
  const TensorId t = region(open_region_).inputs[i];
  state.leaf_gradients[i] = gradients_.sum(state.leaf_gradients[i], gradient, tensor(t), late);
  if (--state.leaf_edges[i] == 0) ready_leaves_.push_back({t, input});
}

/// AccumulateGrad waits until every gradient of this backward has come.
void ProgramLowering::deliver_leaf(TensorId t, GradientId gradient, std::vector<GradientId>& late) {
  if (!tensor(t).requires_grad || written_in_place(t)) {
    gradients_.release(gradient);
    return;
  }
  const auto slot = static_cast<std::size_t>(tensor(t).storage);
  leaf_buffers_[slot] = gradients_.sum(leaf_buffers_[slot], gradient, tensor(t), late);
  if (--leaf_edges_[slot] == 0) ready_leaves_.push_back({t});
}

/// AccumulateGrad (E5): without a gradient yet it keeps or clones the new one; else it adds in place.
void ProgramLowering::accumulate_ready_leaves() {
  for (const auto& [t, detached] : ready_leaves_) {
    if (detached >= 0) {
      GradientId& kept = region_state(open_region_).leaf_gradients[static_cast<std::size_t>(detached)];
      std::vector<GradientId> late;
      kept = gradients_.steal_or_clone(kept, tensor(t), late);
      for (const GradientId id : late) gradients_.release(id);
      continue;
    }
    GradientId& buffer = leaf_buffers_[static_cast<std::size_t>(tensor(t).storage)];
    if (is_sharded(t)) {
      if (units_)
        units_->gradient_came(t, std::exchange(buffer, no_gradient));
      else
        modules_->gradient_came(t, std::exchange(buffer, no_gradient));
      continue;
    }
    if (partition_ && partition_->owns(t)) {
      partition_->gradient_came(t, std::exchange(buffer, no_gradient));
      continue;
    }
    StorageId& slot = leaf_storage(t);
    const bool in_bucket = buckets_ && buckets_->owns(t);
    if (slot != none) {
      gradients_.release(buffer);
    } else {
      slot = gradients_.settle(buffer, tensor(t));
      if (t == received_)
        step_.storages[slot].name = step_.names.id(tensor(t).name + ".grad.sent");
      else if (training_.optimizer.in_backward && tensor(t).category == Category::parameter)
        step_in_backward(t);
      else if (!in_bucket)
        born_gradients_.push_back(slot);
    }
    buffer = no_gradient;
    if (in_bucket) buckets_->gradient_ready(t);
  }
  ready_leaves_.clear();
}

/// Ops on a way from the loss to something that needs a gradient; the others' nodes never run.
void ProgramLowering::find_active_ops() {
  std::vector<bool>& reached = reached_;
  reached.assign(program_.tensors.size(), false);
  reached[static_cast<std::size_t>(program_.loss)] = true;
  active_.assign(program_.ops.size(), false);
  for (std::size_t k = program_.ops.size(); k-- > 0;) {
    const bool used =
        std::ranges::any_of(op_at(k).outputs, [&](TensorId t) { return reached[static_cast<std::size_t>(t)]; });
    if (!used || kernels_[k].gradients.empty()) continue;
    active_[k] = true;
    for (const GradientRule& rule : kernels_[k].gradients)
      reached[static_cast<std::size_t>(op_at(k).inputs[static_cast<std::size_t>(rule.input)])] = true;
  }
}

/// By program storage: how many gradients reach each leaf from the graph of a reentrant region, or from the outer one
/// (region -1: ops of no reentrant region).
std::vector<std::int32_t> ProgramLowering::leaf_edges(std::int32_t region_number) const {
  std::vector<std::int32_t> edges(program_.storages.size(), 0);
  std::vector<std::int32_t> region_of(program_.ops.size(), -1);
  if (reentrant())
    for (std::size_t r = 0; r < schedule_.regions.size(); ++r)
      for (const OpIndex k : schedule_.regions[r].ops)
        region_of[static_cast<std::size_t>(k)] = static_cast<std::int32_t>(r);
  for (std::size_t k = 0; k < program_.ops.size(); ++k) {
    if (!active_[k] || region_of[k] != region_number) continue;
    for (const GradientRule& rule : kernels_[k].gradients) {
      const TensorId t = op_at(k).inputs[static_cast<std::size_t>(rule.input)];
      if (is_static(t)) ++edges[static_cast<std::size_t>(tensor(t).storage)];
    }
  }
  return edges;
}

}  // namespace tidemark
