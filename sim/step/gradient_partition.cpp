#include "gradient_partition.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "issued_ops.hpp"
#include "tidemark/step/state_shards.hpp"

namespace tidemark {

GradientPartition::GradientPartition(const Program& program, const Training& training, Emitter& emit,
                                     Gradients& gradients)
    : program_(program),
      training_(training),
      emit_(emit),
      gradients_(gradients),
      place_of_(program.tensors.size(), -1) {
  std::vector<std::int32_t> by_storage(program.storages.size(), -1);
  std::map<DType, std::vector<std::size_t>> groups;
  for (const TensorId t : program.parameters) {
    const Tensor& tensor = program.tensors[static_cast<std::size_t>(t)];
    if (!tensor.requires_grad) continue;
    std::int32_t& place = by_storage[static_cast<std::size_t>(tensor.storage)];
    if (place < 0) {  // a tied one is another name of the same
      place = static_cast<std::int32_t>(places_.size());
      groups[tensor.dtype].push_back(places_.size());
      places_.push_back({t, *element_count(tensor.shape)});
      if (places_.size() == 1) type_ = tensor.dtype;
    }
    place_of_[static_cast<std::size_t>(t)] = place;
  }
  for (const auto& [dtype, group] : groups) {
    std::vector<std::int64_t> sizes;
    for (const std::size_t i : group) sizes.push_back(places_[i].elements);
    const std::int64_t part =
        flat_parameters(sizes, training.shards, state_ranks(training.shards)).elements / state_ranks(training.shards);
    part_ += part;
    std::int64_t start = 0;
    for (const std::size_t i : group) {
      Place& place = places_[i];
      place.first = start / part;
      place.last = std::max(start + place.elements - 1, start) / part;
      start += place.elements;
      if (place.first == 0) kept_elements_ += place.elements;
    }
  }
}

StepOp GradientPartition::new_op(Phase phase, Stream stream) const {
  StepOp op = issued_op(step_, phase, stream, micro_batch_);
  op.dtype = type_;
  return op;
}

/// setup_buckets: torch.empty of the whole size, however few gradients there are. The second one comes with
/// overlap_comm, used or not.
void GradientPartition::begin_backward(int step, int micro_batch) {
  step_ = step;
  micro_batch_ = micro_batch;
  turn_ = 0;
  const std::size_t count = (settings().contiguous_gradients ? 1 : 0) + (settings().overlap_comm ? 1 : 0);
  if (count == 0) return;
  emit_.begin_op(new_op(Phase::backward, Stream::compute), "gradients.setup_buckets");
  const Bytes bytes{settings().reduce_bucket_size * bytes_per_element(type_)};
  for (std::size_t i = 0; i < count; ++i)
    buffers_.push_back(emit_.alloc("gradients.bucket", bytes, Category::temporary, -1));
  emit_.compute({});
}

/// reduce_independent_p_g_buckets_and_remove_grads. A gradient larger than a bucket stays where it is, and waits alone.
void GradientPartition::gradient_came(TensorId t, GradientId gradient) {
  const auto place = static_cast<std::size_t>(place_of_[static_cast<std::size_t>(t)]);
  const Tensor& leaf = program_.tensors[static_cast<std::size_t>(t)];
  const std::int64_t elements = places_[place].elements;
  const StorageId id = gradients_.settle(gradient, leaf);
  if (in_bucket_ + elements > settings().reduce_bucket_size) reduce();
  in_bucket_ += elements;
  if (!settings().contiguous_gradients || elements > settings().reduce_bucket_size) {
    bucket_.push_back({place, id});
    if (settings().overlap_comm) {  // what autograd does next is computation's again
      emit_.begin_op(new_op(Phase::backward, Stream::compute), leaf.name + ".grad.waits");
      emit_.compute({id});
    }
    return;
  }
  StepOp op = new_op(Phase::backward, Stream::compute);
  op.layer = leaf.layer;
  op.moved = Bytes{2 * elements * bytes_per_element(type_)};
  emit_.begin_op(op, leaf.name + ".grad.to_bucket");
  emit_.compute({id, buffers_[turn_]});
  emit_.release(id);
  bucket_.push_back({place, no_id});
}

/// allreduce_bucket flattens slices, one for each rank that gets a part of the bucket (or, without a buffer, one a
/// gradient): several are copied side by side, a single one is not.
void GradientPartition::reduce() {
  if (bucket_.empty()) return;
  if (last_reduced_) emit_.wait(*last_reduced_, Stream::compute);
  const bool lies_apart = bucket_.front().storage != no_id;
  std::int64_t first = places_[bucket_.front().place].first, last = first;
  for (const Waiting& one : bucket_) {
    first = std::min(first, places_[one.place].first);
    last = std::max(last, places_[one.place].last);
  }
  const bool flattens = settings().contiguous_gradients ? last > first : bucket_.size() > 1;
  const Bytes bytes{in_bucket_ * bytes_per_element(type_)};
  StepOp op = new_op(Phase::communication, stream());
  op.kind = OpKind::collective;
  const std::int64_t ranks = state_ranks(training_.shards);
  op.moved = Bytes{2 * passed_in_ring(bytes.count, ranks)};
  emit_.begin_op(op, "gradients.all_reduce");
  std::vector<StorageId> touched, dropped;
  const StorageId flat = flattens ? emit_.alloc("gradients.flattened", bytes, Category::temporary, -1) : no_id;
  if (flattens) touched.push_back(flat);
  if (!lies_apart) touched.push_back(buffers_[turn_]);
  for (const Waiting& one : bucket_) keep(one, touched, dropped);
  emit_.compute(touched);
  if (flattens) emit_.release(flat, stream());
  for (const StorageId id : std::exchange(dropping_, {})) emit_.release(id);
  if (settings().overlap_comm) {
    last_reduced_ = emit_.record(Stream::comm);
    if (!settings().contiguous_gradients) std::swap(dropping_, dropped);
    if (buffers_.size() > 1) turn_ = 1 - turn_;
  }
  for (const StorageId id : dropped) emit_.release(id, stream());
  bucket_.clear();
  in_bucket_ = 0;
}

/// copy_grads_in_partition: into one tensor of all parameters that begin in the rank's part, whole. Without a buffer
/// they stay as they are.
void GradientPartition::keep(const Waiting& gradient, std::vector<StorageId>& touched,
                             std::vector<StorageId>& dropped) {
  if (gradient.storage != no_id) touched.push_back(gradient.storage);
  if (places_[gradient.place].first == 0 && !settings().contiguous_gradients) {
    fresh_.push_back(gradient.storage);
    return;
  }
  if (gradient.storage != no_id) dropped.push_back(gradient.storage);
  if (places_[gradient.place].first > 0) return;
  if (fresh_.empty())
    fresh_.push_back(
        emit_.alloc("gradients.partition", Bytes{kept_elements_ * bytes_per_element(type_)}, Category::gradient, -1));
  touched.push_back(fresh_.front());
}

/// independent_gradient_partition_epilogue.
void GradientPartition::end_backward() {
  reduce();
  if (last_reduced_) emit_.wait(*std::exchange(last_reduced_, std::nullopt), Stream::compute);
  for (const StorageId id : std::exchange(dropping_, {})) emit_.release(id);
  accumulate();
  for (const StorageId id : std::exchange(buffers_, {})) emit_.release(id);
}

/// The first backward's part is what later ones are added to, in another type where that is asked for.
void GradientPartition::accumulate() {
  if (fresh_.empty()) return;
  const bool casts = accumulated() != type_;
  if (kept_.empty() && !casts) {
    kept_ = std::exchange(fresh_, {});
    return;
  }
  emit_.begin_op(new_op(Phase::backward, Stream::compute), "gradients.accumulate");
  if (kept_.empty())
    kept_ = {
        emit_.alloc("gradients.accumulated", Bytes{part_ * bytes_per_element(accumulated())}, Category::gradient, -1)};
  std::vector<StorageId> touched = fresh_;
  touched.insert(touched.end(), kept_.begin(), kept_.end());
  emit_.compute(touched);
  for (const StorageId id : std::exchange(fresh_, {})) emit_.release(id);
}

void GradientPartition::release_gradients() {
  for (const StorageId id : std::exchange(kept_, {})) emit_.release(id);
}

}  // namespace tidemark
