#include <algorithm>
#include <utility>

#include "tidemark/base/errors.hpp"
#include "unit_shards.hpp"

namespace tidemark {

void UnitShards::expect_gradients(const std::vector<bool>& reached) {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    State& state = states_[u];
    state.came.assign(unit(u).parameters.size(), no_gradient);
    state.unsharded.assign(flat() ? 1 : unit(u).parameters.size(), no_id);
    state.widened.assign(state.unsharded.size(), false);
    for (const UnitParameter& p : unit(u).parameters)
      if (reached[static_cast<std::size_t>(p.tensor)]) ++state.awaited;
  }
}

/// no_sync(): only the last micro-batch of a step reduces.
bool UnitShards::reduces() const {
  return !settings().no_sync || micro_batch_ + 1 == context_.training.batch.accumulate;
}

/// FSDP1's parameters are parts of the flat one, whose split's backward waits for all of them. FSDP2's are leaves.
void UnitShards::gradient_came(TensorId t, GradientId gradient) {
  const auto u = static_cast<std::size_t>(unit_of_[static_cast<std::size_t>(t)]);
  const std::size_t place = place_[static_cast<std::size_t>(t)];
  State& state = states_[u];
  if (flat()) {
    state.came[place] = gradient;
    if (++state.arrived == state.awaited) flatten_gradients(u);
    return;
  }
  StorageId& slot = state.unsharded[place];
  if (slot != no_id) {  // added in place: .grad, or the accumulated one when the unit has run backward
    context_.gradients.release(gradient);
    return;
  }
  slot = context_.gradients.settle(
      gradient, context_.program.tensors[static_cast<std::size_t>(unit(u).parameters[place].tensor)]);
}

/// SplitWithSizesBackward concatenates, parameters that got none as zeros; then the hook of the flat parameter's
/// AccumulateGrad: reshard, reduce (_post_backward_hook).
void UnitShards::flatten_gradients(std::size_t u) {
  Emitter& emit = context_.emit;
  State& state = states_[u];
  state.arrived = 0;
  emit.begin_op(new_op(u, Phase::backward, Stream::compute), unit(u).name + ".flat_param.split");
  const StorageId flat =
      emit.alloc(unit(u).name + ".flat_param.grad", whole_bytes(u), Category::gradient, unit(u).layer);
  std::vector<StorageId> touched = {flat};
  for (const GradientId id : state.came)
    if (id != no_gradient) touched.push_back(context_.gradients.storage(id));
  emit.compute(touched);
  for (GradientId& id : state.came)
    if (id != no_gradient) context_.gradients.release(std::exchange(id, no_gradient));
  StorageId& sum = state.unsharded.front();
  if (sum != no_id)
    emit.release(flat);  // added in place
  else
    sum = flat;
  reshard(u);
  if (reduces()) {
    const StorageId input = std::exchange(sum, no_id);
    reduce(u, input);
  }
}

/// FSDPParamGroup.post_backward: the unit's gradients are packed, padded, into one tensor of the reduce dtype.
void UnitShards::post_backward(std::size_t u) {
  State& state = states_[u];
  if (std::ranges::all_of(state.unsharded, [](StorageId id) { return id == no_id; })) return;
  Emitter& emit = context_.emit;
  if (!reduces()) return widen(u);
  reshard(u);
  if (reduce_input_ != no_id) {
    emit.wait(*reduced_, Stream::compute);
    emit.release(std::exchange(reduce_input_, no_id));
  }
  Bytes bytes;
  for (std::size_t i = 0; i < state.unsharded.size(); ++i)
    if (state.unsharded[i] != no_id)
      bytes += Bytes{unit(u).parameters[i].padded_elements * bytes_per_element(reduced_type(u))};
  StepOp op = new_op(u, Phase::communication, Stream::compute);
  op.moved = Bytes{2 * bytes.count};
  emit.begin_op(op, unit(u).name + ".copy_in");
  const StorageId input = emit.alloc(unit(u).name + ".reduce_scatter_input", bytes, Category::gradient, unit(u).layer);
  std::vector<StorageId> touched = state.unsharded;
  std::erase(touched, no_id);
  touched.push_back(input);
  emit.compute(touched);
  for (StorageId& id : state.unsharded)
    if (id != no_id) emit.release(std::exchange(id, no_id));
  state.widened.assign(state.widened.size(), false);
  reduce(u, input);
}

/// to_accumulated_grad_if_needed: unsharded gradients wait in the reduce dtype.
void UnitShards::widen(std::size_t u) {
  State& state = states_[u];
  Emitter& emit = context_.emit;
  const auto waits = [&](std::size_t i) {
    return state.unsharded[i] != no_id && !state.widened[i] && unit(u).parameters[i].computed != reduced_type(u);
  };
  for (std::size_t i = 0; i < state.unsharded.size(); ++i) {
    if (!waits(i)) continue;
    const UnitParameter& p = unit(u).parameters[i];
    const Tensor& tensor = context_.program.tensors[static_cast<std::size_t>(p.tensor)];
    emit.begin_op(new_op(u, Phase::communication, Stream::compute), tensor.name + ".grad.cast");
    const StorageId wide =
        emit.alloc(tensor.name + ".accumulated_grad", Bytes{p.elements * bytes_per_element(reduced_type(u))},
                   Category::gradient, unit(u).layer);
    emit.compute({state.unsharded[i], wide});
    emit.release(std::exchange(state.unsharded[i], wide));
    state.widened[i] = true;
  }
}

/// The reduce-scatter, and the shard's gradient. FSDP1's input is the flat gradient, cast first where types differ.
void UnitShards::reduce(std::size_t u, StorageId input) {
  Emitter& emit = context_.emit;
  State& state = states_[u];
  const DType type = reduced_type(u);
  const Bytes whole{flat() ? unit(u).padded_elements * bytes_per_element(type)
                           : emit.step().storages[input].bytes.count};
  const Bytes part{whole.count / ranks()};
  const std::string& name = unit(u).name;
  emit.begin_op(collective(u, whole), name + ".reduce_scatter");
  std::vector<StorageId> touched = {input};
  const auto make = [&](const std::string& suffix, Bytes bytes) {
    touched.push_back(emit.alloc(name + suffix, bytes, Category::gradient, unit(u).layer));
    return touched.back();
  };
  const bool widens = flat() && type != computed(u);
  const StorageId wide = widens ? make(".flat_param.grad_cast", whole) : no_id;
  StorageId output = make(".grad.shard", part);
  const bool casts = type != stored(u);
  const StorageId narrow = casts ? output : no_id;
  if (casts)
    output = make(".grad.shard_cast", Bytes{part.count / bytes_per_element(type) * bytes_per_element(stored(u))});
  emit.compute(touched);
  reduced_ = emit.record(Stream::comm);
  if (narrow != no_id) emit.release(narrow, Stream::comm);
  if (wide != no_id) emit.release(wide, Stream::comm);
  if (flat())
    emit.release(input, Stream::comm);
  else
    reduce_input_ = input;
  if (state.gradient != no_id)
    emit.release(output, Stream::comm);  // added in place
  else
    state.gradient = output;
}

bool UnitShards::holds_inputs(std::int32_t layer) const {
  if (!flat() || !context_.reentrant || layer < 0) return false;
  const std::int32_t block = block_of_layer_[static_cast<std::size_t>(layer)];
  return block >= 0 && !unit(blocks_[static_cast<std::size_t>(block)]).trained;
}

void UnitShards::hold_input(StorageId input, GradientId gradient) {
  context_.emit.hold(input);
  held_inputs_.push_back(input);
  if (gradient == no_gradient) return;
  context_.gradients.hold(gradient);
  held_gradients_.push_back(gradient);
}

/// The root's final callback: what is left is reduced and resharded, and the streams meet.
void UnitShards::end_backward() {
  Emitter& emit = context_.emit;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    if (!flat()) post_backward(u);
    reshard(u);
  }
  if (reduced_) emit.wait(*std::exchange(reduced_, std::nullopt), Stream::compute);
  if (reduce_input_ != no_id) emit.release(std::exchange(reduce_input_, no_id));
  for (const StorageId id : held_inputs_) emit.release(id);
  for (const GradientId id : held_gradients_) context_.gradients.release(id);
  held_inputs_.clear();
  held_gradients_.clear();
}

StorageId UnitShards::gradient(TensorId t) const {
  return states_[static_cast<std::size_t>(unit_of_[static_cast<std::size_t>(t)])].gradient;
}

void UnitShards::zero_gradients() {
  if (flat()) return;
  for (State& state : states_)
    if (state.gradient != no_id) context_.emit.release(std::exchange(state.gradient, no_id));
}

std::vector<StorageId> UnitShards::living_gradients() const {
  std::vector<StorageId> out;
  for (const State& state : states_)
    if (state.gradient != no_id) out.push_back(state.gradient);
  return out;
}

}  // namespace tidemark
