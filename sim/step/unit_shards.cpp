#include "unit_shards.hpp"

#include <algorithm>
#include <utility>

#include "issued_ops.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark {

UnitShards::UnitShards(const UnitContext& context)
    : context_(context),
      units_(fsdp_units(context.program, context.training)),
      states_(units_.size()),
      unit_of_(context.program.tensors.size(), -1),
      place_(context.program.tensors.size(), 0),
      names_(units_.size()),
      block_of_layer_(context.program.layers.size(), -1) {
  std::vector<std::int32_t> by_storage(context.program.storages.size(), -1);
  std::vector<std::size_t> places(context.program.storages.size(), 0);
  for (std::size_t u = 0; u < units_.size(); ++u) {
    for (std::size_t i = 0; i < unit(u).parameters.size(); ++i) {
      const TensorId t = unit(u).parameters[i].tensor;
      const auto storage = static_cast<std::size_t>(context.program.tensors[static_cast<std::size_t>(t)].storage);
      by_storage[storage] = static_cast<std::int32_t>(u);
      places[storage] = i;
    }
    if (unit(u).scope == Unit::Scope::root) root_ = u;
    if (unit(u).scope != Unit::Scope::block) continue;
    block_of_layer_[static_cast<std::size_t>(unit(u).layer)] = static_cast<std::int32_t>(blocks_.size());
    blocks_.push_back(u);
  }
  for (const TensorId t : context.program.parameters) {  // tied ones are several names of one storage
    const auto storage = static_cast<std::size_t>(context.program.tensors[static_cast<std::size_t>(t)].storage);
    unit_of_[static_cast<std::size_t>(t)] = by_storage[storage];
    place_[static_cast<std::size_t>(t)] = places[storage];
    if (by_storage[storage] >= 0) names_[static_cast<std::size_t>(by_storage[storage])].push_back(t);
  }
  for (std::size_t i = 0; i < context.schedule.turns.size(); ++i) {
    if (pass_of(i) != Pass::backward || context.schedule.turns[i].what != Turn::What::backward) continue;
    if (const std::int32_t b = block_of(i); b >= 0) states_[blocks_[static_cast<std::size_t>(b)]].last_backward = i + 1;
  }
}

OptimizerParameter UnitShards::emit_initial(TensorId t) {
  const auto u = static_cast<std::size_t>(unit_of_[static_cast<std::size_t>(t)]);
  const std::size_t place = place_[static_cast<std::size_t>(t)];
  const UnitParameter& p = unit(u).parameters[place];
  std::vector<StorageId>& shards = states_[u].shards;
  const auto emit = [&](const std::string& name, std::int64_t elements) {
    const Bytes bytes{elements / ranks() * bytes_per_element(p.stored)};
    const StorageId id = context_.emit.initial(name, bytes, Category::parameter, unit(u).layer);
    context_.emit.step().storages[id].outlives_step = true;
    return id;
  };
  const Tensor& tensor = context_.program.tensors[static_cast<std::size_t>(t)];
  if (!flat())
    shards.push_back(emit(tensor.name + ".shard", p.padded_elements));
  else if (shards.empty())
    shards.push_back(emit(unit(u).name + ".flat_param.shard", unit(u).padded_elements));
  const Sharding sharding = context_.training.shards.sharding;
  return {.name = tensor.name,
          .elements = elements_on_rank(unit(u), place, sharding, ranks(), 0),
          .layer = tensor.layer,
          .dtype = p.stored,
          .storage = shards.back()};
}

const ProgramOp& UnitShards::op_of(std::size_t turn) const {
  return context_.program.ops[static_cast<std::size_t>(context_.schedule.turns[turn].op)];
}

/// Where regions run forward without gradients, the module's hooks see the recomputation as another forward; else
/// backward's hooks have gathered the unit before it.
UnitShards::Pass UnitShards::pass_of(std::size_t turn) const {
  const Turn& at = context_.schedule.turns[turn];
  if (at.what == Turn::What::backward) return Pass::backward;
  if (at.phase != Phase::recompute) return Pass::forward;
  return context_.reentrant ? Pass::again : Pass::backward;
}

std::int32_t UnitShards::block_of(std::size_t turn) const {
  const std::int32_t layer = op_of(turn).layer;
  return layer < 0 ? -1 : block_of_layer_[static_cast<std::size_t>(layer)];
}

std::vector<std::size_t> UnitShards::adapters_of(std::size_t turn) const {
  std::vector<std::size_t> out;
  for (const TensorId t : op_of(turn).inputs) {
    const std::int32_t u = unit_of_[static_cast<std::size_t>(t)];
    if (u >= 0 && unit(static_cast<std::size_t>(u)).scope == Unit::Scope::op)
      out.push_back(static_cast<std::size_t>(u));
  }
  return out;
}

Bytes UnitShards::whole_bytes(std::size_t u) const {
  if (flat()) return Bytes{unit(u).padded_elements * bytes_per_element(unit(u).parameters.front().computed)};
  Bytes total;
  for (const UnitParameter& p : unit(u).parameters) total += Bytes{p.padded_elements * bytes_per_element(p.computed)};
  return total;
}

StepOp UnitShards::new_op(std::size_t u, Phase phase, Stream stream) const {
  StepOp op = issued_op(step_, phase, stream, micro_batch_);
  op.layer = unit(u).layer;
  return op;
}

/// A ring: each rank receives the others' parts.
StepOp UnitShards::collective(std::size_t u, Bytes whole) const {
  StepOp op = new_op(u, Phase::communication, Stream::comm);
  op.moved = Bytes{whole.count / ranks() * (ranks() - 1)};
  op.kind = OpKind::collective;
  return op;
}

/// Issues the all-gather. FSDP1 casts the shard, then gathers into the flat parameter; FSDP2 casts into a buffer of the
/// shards and gathers into one of all, from which parameters are copied when it has come.
void UnitShards::gather(std::size_t u) {
  State& state = states_[u];
  if (is_whole(u) || state.on_its_way) return;
  Emitter& emit = context_.emit;
  const Bytes whole = whole_bytes(u);
  emit.begin_op(collective(u, whole), unit(u).name + ".all_gather");
  const bool casts =
      std::ranges::any_of(unit(u).parameters, [](const UnitParameter& p) { return p.stored != p.computed; });
  std::vector<StorageId> touched = state.shards;
  StorageId narrow = no_id;
  const auto narrowed = [&] {
    if (!casts) return;
    narrow = emit.alloc(unit(u).name + ".shard_cast", Bytes{whole.count / ranks()}, Category::temporary, unit(u).layer);
    touched.push_back(narrow);
  };
  const char* name = flat() ? ".flat_param" : ".all_gather_output";
  if (flat()) narrowed();
  const Category category = flat() ? Category::parameter : Category::temporary;
  const StorageId output = emit.alloc(unit(u).name + name, whole, category, unit(u).layer);
  if (!flat()) narrowed();
  touched.push_back(output);
  emit.compute(touched);
  state.on_its_way = emit.record(Stream::comm);
  if (narrow != no_id) emit.release(narrow, Stream::comm);
  state.gathered = output;
}

/// The compute stream waits for the unit.
void UnitShards::make_whole(std::size_t u) {
  if (is_whole(u)) return;
  gather(u);
  State& state = states_[u];
  context_.emit.wait(*state.on_its_way, Stream::compute);
  state.on_its_way.reset();
  if (flat())
    state.whole = {std::exchange(state.gathered, no_id)};
  else
    copy_out(u);
  if (state.partial != no_id) context_.emit.release(std::exchange(state.partial, no_id));
  for (const TensorId t : names_[u])
    context_.values[static_cast<std::size_t>(t)] = state.whole[flat() ? 0 : place_[static_cast<std::size_t>(t)]];
}

/// foreach_all_gather_copy_out. In forward the buffer lives until the next unit's gather has come, so that gathers can
/// overlap with compute without record_stream (FSDPParamGroup.wait_for_unshard).
void UnitShards::copy_out(std::size_t u) {
  Emitter& emit = context_.emit;
  State& state = states_[u];
  if (kept_output_ != no_id) emit.release(std::exchange(kept_output_, no_id));
  StepOp op = new_op(u, Phase::communication, Stream::compute);
  op.moved = Bytes{2 * whole_bytes(u).count};
  emit.begin_op(op, unit(u).name + ".copy_out");
  std::vector<StorageId> touched = {state.gathered};
  for (const UnitParameter& p : unit(u).parameters) {
    const Tensor& tensor = context_.program.tensors[static_cast<std::size_t>(p.tensor)];
    const Bytes bytes{p.padded_elements * bytes_per_element(p.computed)};
    state.whole.push_back(emit.alloc(tensor.name + ".unsharded", bytes, Category::parameter, unit(u).layer));
  }
  touched.insert(touched.end(), state.whole.begin(), state.whole.end());
  emit.compute(touched);
  const StorageId output = std::exchange(state.gathered, no_id);
  if (pass_ == Pass::backward)
    emit.release(output);
  else
    kept_output_ = output;
}

/// Storages are resized to nothing, whoever holds the tensors.
void UnitShards::reshard(std::size_t u, bool after_forward) {
  if (!is_whole(u)) return;
  Emitter& emit = context_.emit;
  State& state = states_[u];
  const int among = after_forward ? settings().reshard_after_forward : 0;
  if (among == 1) return;
  if (among > 1) {
    emit.begin_op(new_op(u, Phase::communication, Stream::compute), unit(u).name + ".reshard");
    const Bytes part{whole_bytes(u).count / among};
    state.partial = emit.alloc(unit(u).name + ".partial", part, Category::parameter, unit(u).layer);
    std::vector<StorageId> touched = state.whole;
    touched.push_back(state.partial);
    emit.compute(touched);
  }
  for (const StorageId id : state.whole) {
    check(emit.holds(id) == 1, "a view of a sharded parameter outlives its unit");
    emit.release(id);
  }
  state.whole.clear();
  for (const TensorId t : names_[u]) context_.values[static_cast<std::size_t>(t)] = no_id;
}

/// Gathers of the blocks that come next. Without a limiter the host issues those of the whole pass at its start.
void UnitShards::prefetch(std::ptrdiff_t block, bool starts) {
  const bool forward = pass_ == Pass::forward;
  if (!forward && context_.reentrant) return;  // forward had no gradients, so backward's order is not known
  std::ptrdiff_t depth = forward ? settings().forward_prefetch : settings().backward_prefetch;
  if (!settings().limit_all_gathers) depth = starts ? static_cast<std::ptrdiff_t>(blocks_.size()) : 0;
  for (std::ptrdiff_t i = 1; i <= depth; ++i) {
    const std::ptrdiff_t next = forward ? block + i : block - i;
    if (next < 0 || next >= static_cast<std::ptrdiff_t>(blocks_.size())) return;
    gather(blocks_[static_cast<std::size_t>(next)]);
  }
}

void UnitShards::begin_micro_batch(int step, int micro_batch) {
  step_ = step;
  micro_batch_ = micro_batch;
  pass_ = Pass::none;
  open_ = -1;
  if (micro_batch > 0 || !flat() || !context_.training.optimizer.zero_grad_to_none) return;
  for (State& state : states_)  // _reset_flat_param_grad_info_if_needed
    if (state.gradient != no_id) context_.emit.release(std::exchange(state.gradient, no_id));
}

void UnitShards::before(std::size_t turn) {
  if (op_of(turn).inputs.empty()) return;  // the loop's own: a batch
  if (pass_ == Pass::none) {
    pass_ = Pass::forward;
    if (root_) make_whole(*root_);
  }
  const std::int32_t block = block_of(turn);
  const Pass pass = pass_of(turn);
  if (block >= 0 && (block != open_ || pass != pass_)) {
    const bool starts = pass == Pass::forward && block == 0;
    pass_ = pass;
    open_ = block;
    make_whole(blocks_[static_cast<std::size_t>(block)]);
    if (pass != Pass::again) prefetch(block, starts);
  }
  for (const std::size_t u : adapters_of(turn)) make_whole(u);
}

/// The root's own hook, when the loss's gradient is made.
void UnitShards::start_backward() {
  pass_ = Pass::backward;
  open_ = -1;
  if (kept_output_ != no_id) context_.emit.release(std::exchange(kept_output_, no_id));
  prefetch(static_cast<std::ptrdiff_t>(blocks_.size()), true);
}

void UnitShards::after(std::size_t turn) {
  for (const std::size_t u : adapters_of(turn)) {
    if (!flat() && context_.schedule.turns[turn].what == Turn::What::backward) post_backward(u);
    reshard(u, pass_of(turn) == Pass::forward);
  }
  const std::int32_t block = block_of(turn);
  if (block < 0 || open_ != block) return;
  const bool last = turn + 1 == context_.schedule.turns.size();
  if (!last && block_of(turn + 1) == block && pass_of(turn + 1) == pass_of(turn)) return;
  leave(static_cast<std::size_t>(block), turn);
}

void UnitShards::leave(std::size_t block, std::size_t turn) {
  const std::size_t u = blocks_[block];
  open_ = -1;
  if (pass_ == Pass::forward) {
    const bool stays = block + 1 == blocks_.size() && !settings().reshard_last_block;
    if (!stays) reshard(u, true);
    return;
  }
  if (pass_ == Pass::backward && !flat() && states_[u].last_backward == turn + 1) post_backward(u);
  reshard(u);
}

}  // namespace tidemark
