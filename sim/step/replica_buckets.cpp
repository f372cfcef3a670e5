#include "replica_buckets.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "issued_ops.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t first_bucket_bytes = 1 << 20;  // dist._DEFAULT_FIRST_BUCKET_BYTES
constexpr std::int64_t mebibyte = 1 << 20;

}  // namespace

ReplicaBuckets::ReplicaBuckets(const Program& program, const Training& training, Emitter& emit,
                               std::vector<StorageId>& gradients)
    : program_(program),
      training_(training),
      emit_(emit),
      gradients_(gradients),
      place_of_(program.tensors.size(), -1) {
  std::vector<std::int32_t> by_storage(program.storages.size(), -1);
  for (const TensorId t : program.parameters) {
    const Tensor& tensor = program.tensors[static_cast<std::size_t>(t)];
    if (!tensor.requires_grad) continue;
    std::int32_t& place = by_storage[static_cast<std::size_t>(tensor.storage)];
    if (place < 0) {  // a tied one is another name of the same
      place = static_cast<std::int32_t>(parameters_.size());
      parameters_.push_back({.tensor = t, .bytes = {*element_count(tensor.shape) * bytes_per_element(tensor.dtype)}});
    }
    place_of_[static_cast<std::size_t>(t)] = place;
  }
}

/// compute_bucket_assignment_by_size: a bucket of each data type is closed by the parameter that fills it; what stays
/// open comes last.
void ReplicaBuckets::cut(const std::vector<std::size_t>& order, std::int64_t first_cap, std::int64_t cap) {
  struct Open {
    Bucket bucket;
    std::int64_t cap = 0;
  };
  std::map<DType, Open> open;
  buckets_.clear();
  for (const std::size_t p : order) {
    Open& at = open.try_emplace(tensor(p).dtype, Open{.cap = first_cap}).first->second;
    at.bucket.parameters.push_back(p);
    at.bucket.bytes += parameters_[p].bytes;
    if (at.bucket.bytes.count < at.cap) continue;
    buckets_.push_back(std::exchange(at.bucket, {}));
    at.cap = cap;
  }
  for (auto& [dtype, at] : open)
    if (!at.bucket.parameters.empty()) buckets_.push_back(std::move(at.bucket));
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (const std::size_t p : buckets_[b].parameters) parameters_[p].bucket = b;
}

void ReplicaBuckets::emit_initial() {
  std::vector<std::size_t> order(parameters_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  constexpr std::int64_t all = std::numeric_limits<std::int64_t>::max();
  cut(order, all, all);
  std::ranges::reverse(buckets_);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].storage = emit_.initial("ddp.bucket." + std::to_string(b), buckets_[b].bytes, Category::gradient, -1);
    for (const std::size_t p : buckets_[b].parameters) parameters_[p].bucket = b;
  }
}

StepOp ReplicaBuckets::new_op(Phase phase, Stream stream) const {
  return issued_op(step_, phase, stream, micro_batch_);
}

void ReplicaBuckets::begin_micro_batch(int step, int micro_batch) {
  step_ = step;
  micro_batch_ = micro_batch;
  next_ = 0;
  if (!came_.empty() && !rebuilt_) rebuild();
  for (Bucket& bucket : buckets_) bucket.awaited = bucket.parameters.size();
}

/// _rebuild_buckets, in the forward after the first reduced backward: the old ones go first. Gradients that lie in them
/// are gone by then, or keep them alive.
void ReplicaBuckets::rebuild() {
  rebuilt_ = true;
  emit_.begin_op(new_op(Phase::forward, Stream::compute), "ddp.rebuild_buckets");
  for (const Bucket& bucket : buckets_) emit_.release(bucket.storage);
  const std::int64_t cap = settings().bucket_cap_mb * mebibyte;
  cut(came_, settings().bucket_cap_given ? cap : first_bucket_bytes, cap);
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    buckets_[b].storage = emit_.alloc("ddp.bucket." + std::to_string(b), buckets_[b].bytes, Category::gradient, -1);
  emit_.compute({});
}

/// mark_variable_ready_dense: copied into the bucket, unless it lies there.
void ReplicaBuckets::gradient_ready(TensorId t) {
  if (!reduces()) return;
  const auto p = static_cast<std::size_t>(place_of_[static_cast<std::size_t>(t)]);
  Bucket& bucket = buckets_[parameters_[p].bucket];
  if (!rebuilt_) came_.push_back(p);
  StorageId& own = gradient(p);
  if (own != bucket.storage) {
    StepOp op = new_op(Phase::backward, Stream::compute);
    op.layer = tensor(p).layer;
    op.moved = Bytes{2 * parameters_[p].bytes.count};
    emit_.begin_op(op, tensor(p).name + ".grad.to_bucket");
    emit_.compute({own, bucket.storage});
    if (settings().gradient_as_bucket_view) {
      emit_.release(std::exchange(own, bucket.storage));
      emit_.hold(own);
    }
  }
  --bucket.awaited;
  reduce_full_ones();
}

void ReplicaBuckets::reduce_full_ones() {
  bool reduced = false;
  for (; next_ < buckets_.size() && buckets_[next_].awaited == 0; ++next_) {
    const Bucket& bucket = buckets_[next_];
    StepOp op = new_op(Phase::communication, Stream::comm);
    op.kind = OpKind::collective;
    op.moved = Bytes{2 * passed_in_ring(bucket.bytes.count, training_.shards.data)};
    emit_.begin_op(op, "ddp.bucket." + std::to_string(next_) + ".all_reduce");
    emit_.compute({bucket.storage});
    reduced_ = emit_.record(Stream::comm);
    reduced = true;
  }
  if (!reduced) return;
  emit_.begin_op(new_op(Phase::backward, Stream::compute), "ddp.next");  // what autograd does is computation's again
  emit_.compute({});
}

/// finalize_backward: computation waits, and gradients of their own take their values back.
void ReplicaBuckets::end_backward() {
  if (!reduced_) return;
  emit_.wait(*std::exchange(reduced_, std::nullopt), Stream::compute);
  if (settings().gradient_as_bucket_view) return;
  StepOp op = new_op(Phase::backward, Stream::compute);
  std::vector<StorageId> touched;
  for (const Bucket& bucket : buckets_) {
    op.moved += Bytes{2 * bucket.bytes.count};
    touched.push_back(bucket.storage);
    for (const std::size_t p : bucket.parameters)
      if (gradient(p) != no_id) touched.push_back(gradient(p));
  }
  emit_.begin_op(op, "ddp.finalize");
  emit_.compute(touched);
}

std::vector<StorageId> ReplicaBuckets::buckets() const {
  std::vector<StorageId> out;
  for (const Bucket& bucket : buckets_) out.push_back(bucket.storage);
  return out;
}

}  // namespace tidemark
