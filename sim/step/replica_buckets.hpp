/// When are gradients of replicas reduced, and what do the buckets take?
///
/// PyTorch's DistributedDataParallel (torch/csrc/distributed/c10d/reducer.cpp). The first step has one bucket for each
/// data type; from the second on they are cut in the order in which gradients came. A bucket is reduced on the comm
/// stream when it and those before it are full. Internal to the lowering of Programs.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "tidemark/program/program.hpp"
#include "tidemark/program/training.hpp"
#include "tidemark/step/emitter.hpp"

namespace tidemark {

class ReplicaBuckets {
 public:
  /// `gradients`: by program storage, a leaf's .grad.
  ReplicaBuckets(const Program& program, const Training& training, Emitter& emit, std::vector<StorageId>& gradients);

  bool owns(TensorId t) const { return place_of_[static_cast<std::size_t>(t)] >= 0; }
  /// Buckets are there from construction.
  void emit_initial();
  void begin_micro_batch(int step, int micro_batch);
  /// .grad has all of this backward.
  void gradient_ready(TensorId t);
  void end_backward();
  /// Of the last step: they outlive it.
  std::vector<StorageId> buckets() const;

 private:
  struct Parameter {
    TensorId tensor = -1;
    Bytes bytes;
    std::size_t bucket = 0;
  };
  struct Bucket {
    std::vector<std::size_t> parameters;
    Bytes bytes;
    StorageId storage = no_id;
    std::size_t awaited = 0;
  };

  const Ddp& settings() const { return training_.shards.ddp; }
  const Tensor& tensor(std::size_t p) const {
    return program_.tensors[static_cast<std::size_t>(parameters_[p].tensor)];
  }
  StorageId& gradient(std::size_t p) { return gradients_[static_cast<std::size_t>(tensor(p).storage)]; }
  bool reduces() const { return !settings().no_sync || micro_batch_ + 1 == training_.batch.accumulate; }
  StepOp new_op(Phase phase, Stream stream) const;
  void cut(const std::vector<std::size_t>& order, std::int64_t first_cap, std::int64_t cap);
  void rebuild();
  void reduce_full_ones();

  const Program& program_;
  const Training& training_;
  Emitter& emit_;
  std::vector<StorageId>& gradients_;
  std::vector<std::int32_t> place_of_;  // by tensor; -1: no trained parameter
  std::vector<Parameter> parameters_;
  std::vector<Bucket> buckets_;    // in the order in which they are reduced
  std::vector<std::size_t> came_;  // in the first reduced backward
  bool rebuilt_ = false;
  std::size_t next_ = 0;                  // bucket to reduce
  std::optional<std::uint32_t> reduced_;  // when the last one has ended
  int step_ = 0, micro_batch_ = 0;        // at hand
};

}  // namespace tidemark
