/// When is each parameter whole, and what becomes of its gradient, when ranks divide every parameter?
///
/// DeepSpeed's ZeRO stage 3 (runtime/zero/stage3.py, partitioned_param_coordinator.py, partition_parameters.py), seen
/// from one rank. Hooks before and after each module, here around the turns whose op reads parameters, fetch what it
/// needs and release what is not used again soon. From the second micro-batch on the order is known, and parameters are
/// fetched ahead. Internal to the lowering of Programs.
#pragma once

#include <optional>
#include <vector>

#include "unit_shards.hpp"

namespace tidemark {

class ZeroModules {
 public:
  /// `active`: by op, does its backward run?
  ZeroModules(const UnitContext& context, const std::vector<bool>& active);

  bool owns(TensorId t) const { return place_of_[static_cast<std::size_t>(t)] >= 0; }
  /// The rank's part of that parameter, live from the start. Call once for each storage.
  OptimizerParameter emit_initial(TensorId t);
  /// The buffers of gradients are there from the start too.
  void emit_buffers();

  void begin_micro_batch(int step, int micro_batch);
  void before(std::size_t turn);
  void after(std::size_t turn);
  /// All gradients of this parameter have come; takes over the handle.
  void gradient_came(TensorId t, GradientId gradient);
  void end_backward();

  /// The optimizer's step: no parameter is whole, and gradients are of the rank's part.
  void release_all();
  StorageId gradient() const { return partition_; }
  /// After it: the small ones.
  void gather_persistent();

 private:
  static constexpr std::size_t never = static_cast<std::size_t>(-1);
  struct Parameter {
    TensorId tensor = -1;
    std::vector<TensorId> names;
    std::int64_t elements = 0;
    std::int64_t part = 0;  // of a rank, with padding
    bool stays = false;     // small
    StorageId shard = no_id;
    StorageId whole = no_id;
    std::size_t fetch = never;      // while it is on its way, or in a buffer with others that are
    std::int64_t fetched_for = -1;  // the last visit that a fetch ahead had in mind
  };
  /// A module that runs, forward or backward.
  struct Visit {
    std::vector<std::size_t> parameters;
    std::vector<std::size_t> next;  // of each: the visit that uses it again, or `never`
    std::int64_t before = 0;        // elements of all visits before
  };
  /// Parameters gathered together: one lies where it is received, several are copied out when the first is needed.
  struct Fetch {
    std::vector<std::size_t> parameters;
    StorageId buffer = no_id;
    bool has_come = false;
    std::size_t waiting = 0;
  };

  const ZeroOptimization& settings() const { return context_.training.shards.zero; }
  std::int64_t ranks() const { return context_.training.shards.data; }
  Stream stream() const { return settings().overlap_comm ? Stream::comm : Stream::compute; }
  const Tensor& tensor(std::size_t p) const {
    return context_.program.tensors[static_cast<std::size_t>(parameters_[p].tensor)];
  }
  Bytes sized(std::size_t p, std::int64_t elements) const { return {elements * bytes_per_element(tensor(p).dtype)}; }
  StepOp new_op(std::size_t p, Phase phase) const;
  StepOp collective(std::size_t p, Bytes whole) const;
  void find_visits(const std::vector<bool>& active);
  void gather(const std::vector<std::size_t>& away);
  void copy_out(Fetch& fetch);
  void need(std::size_t p);
  void fetch_ahead(std::size_t visit);
  void release(std::size_t p);
  void reduce();

  UnitContext context_;
  std::vector<Parameter> parameters_;
  std::vector<std::int32_t> place_of_;                      // by tensor
  std::vector<Visit> visits_;                               // of a micro-batch
  std::vector<std::size_t> visit_of_;                       // by turn, or `never`
  std::vector<std::pair<std::size_t, std::size_t>> queue_;  // parameter and visit, of all visits
  std::size_t next_in_queue_ = 0;
  std::vector<Fetch> fetches_;
  std::int64_t live_ = 0;                       // elements that are whole or on their way
  std::optional<std::uint32_t> last_gathered_;  // when that one has come
  bool order_known_ = false;
  DType type_ = DType::float32;  // of the gradients
  StorageId bucket_buffer_ = no_id, partition_ = no_id;
  struct Waiting {
    std::size_t parameter = 0;
    StorageId storage = no_id;  // where the buffer does not hold it
  };
  std::vector<Waiting> bucket_;
  std::int64_t in_bucket_ = 0;       // elements
  int step_ = 0, micro_batch_ = -1;  // at hand
};

}  // namespace tidemark
