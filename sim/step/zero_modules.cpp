#include "zero_modules.hpp"

#include <algorithm>
#include <utility>

#include "issued_ops.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark {

ZeroModules::ZeroModules(const UnitContext& context, const std::vector<bool>& active)
    : context_(context), place_of_(context.program.tensors.size(), -1) {
  std::vector<std::int32_t> by_storage(context.program.storages.size(), -1);
  for (const TensorId t : context.program.parameters) {
    const Tensor& tensor = context.program.tensors[static_cast<std::size_t>(t)];
    std::int32_t& place = by_storage[static_cast<std::size_t>(tensor.storage)];
    if (place < 0) {  // a tied one is another name of the same
      place = static_cast<std::int32_t>(parameters_.size());
      const std::int64_t elements = *element_count(tensor.shape);
      parameters_.push_back({.tensor = t,
                             .elements = elements,
                             .part = round_up(elements, ranks()) / ranks(),
                             .stays = elements <= settings().stage3_param_persistence_threshold});
      if (tensor.requires_grad) type_ = tensor.dtype;
    }
    parameters_[static_cast<std::size_t>(place)].names.push_back(t);
    place_of_[static_cast<std::size_t>(t)] = place;
  }
  find_visits(active);
}

/// The trace of modules that the coordinator records in the first pass.
void ZeroModules::find_visits(const std::vector<bool>& active) {
  const std::vector<Turn>& turns = context_.schedule.turns;
  visit_of_.assign(turns.size(), never);
  std::int64_t before = 0;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const auto op = static_cast<std::size_t>(turns[i].op);
    const bool backward = turns[i].what == Turn::What::backward;
    if (turns[i].what != Turn::What::run && !(backward && active[op])) continue;
    Visit visit{.before = before};
    for (const TensorId t : context_.program.ops[op].inputs)
      if (owns(t)) visit.parameters.push_back(static_cast<std::size_t>(place_of_[static_cast<std::size_t>(t)]));
    std::ranges::sort(visit.parameters);
    visit.parameters.erase(std::unique(visit.parameters.begin(), visit.parameters.end()), visit.parameters.end());
    if (visit.parameters.empty()) continue;
    for (const std::size_t p : visit.parameters) {
      before += parameters_[p].elements;
      queue_.emplace_back(p, visits_.size());
    }
    visit_of_[i] = visits_.size();
    visits_.push_back(std::move(visit));
  }
  std::vector<std::size_t> next(parameters_.size(), never);
  for (std::size_t v = visits_.size(); v-- > 0;)
    for (const std::size_t p : visits_[v].parameters) visits_[v].next.push_back(std::exchange(next[p], v));
}

OptimizerParameter ZeroModules::emit_initial(TensorId t) {
  const auto p = static_cast<std::size_t>(place_of_[static_cast<std::size_t>(t)]);
  Parameter& of = parameters_[p];
  of.shard = context_.emit.initial(tensor(p).name + ".shard", sized(p, of.part), Category::parameter, tensor(p).layer);
  context_.emit.step().storages[of.shard].outlives_step = true;
  return {.name = tensor(p).name,
          .elements = of.part,
          .layer = tensor(p).layer,
          .dtype = tensor(p).dtype,
          .storage = of.shard,
          .trained = tensor(p).requires_grad};
}

/// _setup_for_real_optimizer.
void ZeroModules::emit_buffers() {
  std::int64_t part = 0;
  for (std::size_t p = 0; p < parameters_.size(); ++p)
    if (tensor(p).requires_grad) part += parameters_[p].part;
  const auto initial = [&](const char* name, std::int64_t elements, DType dtype) {
    const StorageId id =
        context_.emit.initial(name, Bytes{elements * bytes_per_element(dtype)}, Category::gradient, -1);
    context_.emit.step().storages[id].outlives_step = true;
    return id;
  };
  if (settings().contiguous_gradients)
    bucket_buffer_ = initial("gradients.bucket", settings().reduce_bucket_size, type_);
  partition_ = initial("gradients.partition", part, settings().grad_accum_dtype.value_or(type_));
}

StepOp ZeroModules::new_op(std::size_t p, Phase phase) const {
  StepOp op = issued_op(step_, phase, stream(), std::max(micro_batch_, 0));
  op.layer = tensor(p).layer;
  op.dtype = tensor(p).dtype;
  return op;
}

/// A ring: each rank receives the others' parts.
StepOp ZeroModules::collective(std::size_t p, Bytes whole) const {
  StepOp op = new_op(p, Phase::communication);
  op.kind = OpKind::collective;
  op.moved = Bytes{whole.count / ranks() * (ranks() - 1)};
  return op;
}

void ZeroModules::begin_micro_batch(int step, int micro_batch) {
  order_known_ = micro_batch_ >= 0;
  step_ = step;
  micro_batch_ = micro_batch;
  next_in_queue_ = 0;
  fetches_.clear();
  for (Parameter& p : parameters_) p.fetched_for = -1;
}

/// all_gather_coalesced: into one buffer, where several are fetched.
void ZeroModules::gather(const std::vector<std::size_t>& away) {
  if (away.empty()) return;
  Bytes whole;
  std::vector<StorageId> touched;
  for (const std::size_t p : away) {
    whole += sized(p, parameters_[p].part * ranks());
    touched.push_back(parameters_[p].shard);
    live_ += parameters_[p].elements;
    parameters_[p].fetch = fetches_.size();
  }
  const std::size_t first = away.front();
  Emitter& emit = context_.emit;
  emit.begin_op(collective(first, whole), tensor(first).name + ".all_gather");
  Fetch fetch{.parameters = away, .waiting = away.size()};
  if (away.size() == 1) {
    parameters_[first].whole =
        emit.alloc(tensor(first).name + ".whole", whole, Category::parameter, tensor(first).layer);
    touched.push_back(parameters_[first].whole);
  } else {
    fetch.buffer = emit.alloc("all_gather.buffer", whole, Category::temporary, tensor(first).layer);
    touched.push_back(fetch.buffer);
  }
  emit.compute(touched);
  if (settings().overlap_comm) last_gathered_ = emit.record(Stream::comm);
  fetches_.push_back(std::move(fetch));
}

/// AllGatherCoalescedHandle.wait: each parameter is put together from the ranks' parts.
void ZeroModules::copy_out(Fetch& fetch) {
  fetch.has_come = true;
  if (fetch.buffer == no_id) return;
  Emitter& emit = context_.emit;
  StepOp op = new_op(fetch.parameters.front(), Phase::communication);
  op.moved = Bytes{2 * emit.step().storages[fetch.buffer].bytes.count};
  emit.begin_op(op, tensor(fetch.parameters.front()).name + ".copy_out");
  std::vector<StorageId> touched = {fetch.buffer};
  for (const std::size_t p : fetch.parameters) {
    Parameter& of = parameters_[p];
    of.whole = emit.alloc(tensor(p).name + ".whole", sized(p, of.elements), Category::parameter, tensor(p).layer);
    touched.push_back(of.whole);
  }
  emit.compute(touched);
  if (settings().overlap_comm) last_gathered_ = emit.record(Stream::comm);
}

/// The module waits for the parameter. The buffer it came in goes when all that came with it have been asked for.
void ZeroModules::need(std::size_t p) {
  Parameter& of = parameters_[p];
  if (of.fetch == never) return;
  Fetch& fetch = fetches_[std::exchange(of.fetch, never)];
  if (!fetch.has_come) copy_out(fetch);
  if (--fetch.waiting == 0 && fetch.buffer != no_id)
    context_.emit.release(std::exchange(fetch.buffer, no_id), stream());
  for (const TensorId t : of.names) context_.values[static_cast<std::size_t>(t)] = of.whole;
}

/// fetch_sub_module. The stream of gathers is waited for as a whole, with what was fetched ahead.
void ZeroModules::before(std::size_t turn) {
  const std::size_t v = visit_of_[turn];
  if (v == never) return;
  std::vector<std::size_t> away;
  for (const std::size_t p : visits_[v].parameters)
    if (parameters_[p].whole == no_id && parameters_[p].fetch == never) away.push_back(p);
  gather(away);
  for (const std::size_t p : visits_[v].parameters) need(p);
  if (last_gathered_) context_.emit.wait(*std::exchange(last_gathered_, std::nullopt), Stream::compute);
  if (order_known_) fetch_ahead(v);
}

void ZeroModules::fetch_ahead(std::size_t visit) {
  const auto now = static_cast<std::int64_t>(visit);
  for (const std::size_t p : visits_[visit].parameters) {
    if (parameters_[p].fetched_for >= now) continue;  // out of the queue already
    check(queue_[next_in_queue_].first == p, "the order of modules has changed");
    parameters_[p].fetched_for = now;
    ++next_in_queue_;
  }
  const std::int64_t most =
      std::min(settings().stage3_max_live_parameters - live_, settings().stage3_prefetch_bucket_size);
  std::vector<std::size_t> ahead;
  std::int64_t elements = 0;
  for (; next_in_queue_ < queue_.size() && elements < most; ++next_in_queue_) {
    const auto [p, used_at] = queue_[next_in_queue_];
    Parameter& of = parameters_[p];
    const bool away = of.whole == no_id && of.fetch == never;
    of.fetched_for = std::max(of.fetched_for, static_cast<std::int64_t>(used_at));
    if (!away || std::ranges::find(ahead, p) != ahead.end()) continue;
    ahead.push_back(p);
    elements += of.elements;
  }
  std::ranges::sort(ahead);
  gather(ahead);
}

/// release_sub_module and __params_to_release.
void ZeroModules::after(std::size_t turn) {
  const std::size_t v = visit_of_[turn];
  if (v == never) return;
  const Visit& visit = visits_[v];
  const std::int64_t here = v + 1 < visits_.size() ? visits_[v + 1].before : 0;
  for (std::size_t i = 0; i < visit.parameters.size(); ++i) {
    const Parameter& of = parameters_[visit.parameters[i]];
    const std::size_t next = visit.next[i];
    const bool soon = next != never && visits_[next].before - here < settings().stage3_max_reuse_distance;
    const bool meant = of.fetched_for > static_cast<std::int64_t>(v + 1);
    if (order_known_ && (of.stays || soon || meant)) continue;
    release(visit.parameters[i]);
  }
}

void ZeroModules::release(std::size_t p) {
  Parameter& of = parameters_[p];
  if (of.whole == no_id) return;
  check(context_.emit.holds(of.whole) == 1, "a view of a sharded parameter outlives its module");
  context_.emit.release(std::exchange(of.whole, no_id));
  live_ -= of.elements;
  for (const TensorId t : of.names) context_.values[static_cast<std::size_t>(t)] = no_id;
}

/// reduce_independent_p_g_buckets_and_remove_grads, then the copy into the buffer on the stream of reductions. One that
/// the buffer cannot hold stays where it is.
void ZeroModules::gradient_came(TensorId t, GradientId gradient) {
  const auto p = static_cast<std::size_t>(place_of_[static_cast<std::size_t>(t)]);
  const std::int64_t elements = parameters_[p].elements;
  Emitter& emit = context_.emit;
  const StorageId id = context_.gradients.settle(gradient, tensor(p));
  if (in_bucket_ + elements > settings().reduce_bucket_size) reduce();
  in_bucket_ += elements;
  const bool fits = bucket_buffer_ != no_id && elements <= settings().reduce_bucket_size;
  bucket_.push_back({p, fits ? no_id : id});
  if (fits) {
    StepOp op = new_op(p, Phase::backward);
    op.moved = Bytes{2 * sized(p, elements).count};
    emit.begin_op(op, tensor(p).name + ".grad.to_bucket");
    emit.compute({id, bucket_buffer_});
    emit.release(id, stream());
  }
  if (!settings().overlap_comm) return;
  StepOp next = new_op(p, Phase::backward);  // what autograd does next is computation's again
  next.stream = Stream::compute;
  emit.begin_op(next, tensor(p).name + ".grad.came");
  emit.compute({});
}

/// reduce_scatter_coalesced puts the ranks' parts side by side, which needs a copy unless there is one gradient that
/// divides; partition_grads adds the rank's part to what it keeps.
void ZeroModules::reduce() {
  if (bucket_.empty()) return;
  Emitter& emit = context_.emit;
  const std::size_t first = bucket_.front().parameter;
  Bytes whole;
  for (const Waiting& one : bucket_) whole += sized(one.parameter, parameters_[one.parameter].part * ranks());
  const bool copies = bucket_.size() > 1 || parameters_[first].elements % ranks() != 0;
  emit.begin_op(collective(first, whole), "gradients.reduce_scatter");
  std::vector<StorageId> touched = {partition_};
  const StorageId flat = copies ? emit.alloc("gradients.flattened", whole, Category::temporary, -1) : no_id;
  if (copies) touched.push_back(flat);
  if (bucket_buffer_ != no_id) touched.push_back(bucket_buffer_);
  for (const Waiting& one : bucket_)
    if (one.storage != no_id) touched.push_back(one.storage);
  emit.compute(touched);
  if (copies) emit.release(flat, stream());
  for (const Waiting& one : bucket_)
    if (one.storage != no_id) emit.release(one.storage, stream());
  bucket_.clear();
  in_bucket_ = 0;
}

void ZeroModules::end_backward() {
  reduce();
  if (settings().overlap_comm && !context_.emit.step().ops.empty())
    context_.emit.wait(context_.emit.record(Stream::comm), Stream::compute);
}

void ZeroModules::release_all() {
  for (std::size_t p = 0; p < parameters_.size(); ++p) release(p);
}

/// _post_step.
void ZeroModules::gather_persistent() {
  Bytes whole;
  std::vector<std::size_t> small;
  for (std::size_t p = 0; p < parameters_.size(); ++p)
    if (parameters_[p].stays) small.push_back(p);
  if (small.empty()) return;
  for (const std::size_t p : small) whole += sized(p, parameters_[p].part * ranks());
  Emitter& emit = context_.emit;
  StepOp op = collective(small.front(), whole);
  op.layer = -1;
  op.stream = Stream::compute;
  emit.begin_op(op, "parameters.persistent.all_gather");
  std::vector<StorageId> touched;
  for (const std::size_t p : small) {
    Parameter& of = parameters_[p];
    of.whole = emit.alloc(tensor(p).name + ".whole", sized(p, of.part * ranks()), Category::parameter, tensor(p).layer);
    emit.step().storages[of.whole].outlives_step = true;
    live_ += of.elements;
    touched.insert(touched.end(), {of.shard, of.whole});
    for (const TensorId t : of.names) context_.values[static_cast<std::size_t>(t)] = of.whole;
  }
  emit.compute(touched);
}

}  // namespace tidemark
