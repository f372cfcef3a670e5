/// Where do gradients go, and how long do they live, when each data-parallel rank keeps a part of them?
///
/// DeepSpeed's ZeRO stage 2 (runtime/zero/stage_1_and_2.py, DeepSpeedZeroOptimizer with partition_gradients), seen from
/// the first rank. A gradient is copied into a buffer of reduce_bucket_size elements when it has come; a bucket that
/// would overflow is reduced first. What falls into the rank's part is copied out of it, the rest is dropped. Internal
/// to the lowering of Programs.
#pragma once

#include <optional>
#include <vector>

#include "tidemark/program/program.hpp"
#include "tidemark/program/training.hpp"
#include "tidemark/step/emitter.hpp"
#include "tidemark/step/gradients.hpp"

namespace tidemark {

class GradientPartition {
 public:
  GradientPartition(const Program& program, const Training& training, Emitter& emit, Gradients& gradients);

  bool owns(TensorId t) const { return place_of_[static_cast<std::size_t>(t)] >= 0; }
  /// The buffers are made anew for each backward.
  void begin_backward(int step, int micro_batch);
  /// All gradients of this parameter have come; takes over the handle.
  void gradient_came(TensorId t, GradientId gradient);
  /// What is left is reduced, and the buffers go.
  void end_backward();
  /// One storage of the rank's part, no_id when nothing has come.
  StorageId gradient() const { return kept_.empty() ? no_id : kept_.front(); }
  /// When the optimizer has its fp32 copy.
  void release_gradients();

 private:
  struct Place {
    TensorId tensor = -1;
    std::int64_t elements = 0;
    std::int64_t first = 0, last = 0;  // ranks that keep a part of it
  };
  /// A gradient that waits in the bucket; `storage` where the buffer does not hold it.
  struct Waiting {
    std::size_t place = 0;
    StorageId storage = no_id;
  };

  const ZeroOptimization& settings() const { return training_.shards.zero; }
  Stream stream() const { return settings().overlap_comm ? Stream::comm : Stream::compute; }
  DType accumulated() const { return settings().grad_accum_dtype.value_or(type_); }
  StepOp new_op(Phase phase, Stream stream) const;
  void reduce();
  void keep(const Waiting& gradient, std::vector<StorageId>& touched, std::vector<StorageId>& dropped);
  void accumulate();

  const Program& program_;
  const Training& training_;
  Emitter& emit_;
  Gradients& gradients_;
  DType type_ = DType::float32;         // of the gradients, and so of the buffers
  std::vector<std::int32_t> place_of_;  // by tensor; -1: no trained parameter
  std::vector<Place> places_;
  std::int64_t kept_elements_ = 0;  // of whole parameters that begin in the rank's part
  std::int64_t part_ = 0;           // elements of the rank's part, with padding
  std::vector<StorageId> buffers_;  // of this backward: one, or two in turns under overlap_comm
  std::size_t turn_ = 0;            // the one that fills
  std::vector<Waiting> bucket_;
  std::int64_t in_bucket_ = 0;                 // elements
  std::vector<StorageId> dropping_;            // reduced, but kept until the next reduction
  std::vector<StorageId> fresh_;               // the rank's part of this backward
  std::vector<StorageId> kept_;                // of all so far in the step
  std::optional<std::uint32_t> last_reduced_;  // when that one has ended
  int step_ = 0, micro_batch_ = 0;             // at hand
};

}  // namespace tidemark
