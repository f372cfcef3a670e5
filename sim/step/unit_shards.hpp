/// When is each unit of parameters whole, and what becomes of its gradients?
///
/// FullyShardedDataParallel (FSDP1) and fully_shard (FSDP2) of PyTorch 2.4 to 2.6, seen from one rank: hooks around
/// modules, here around the turns of a Schedule. A unit is gathered on the comm stream when its module is entered, or
/// before; its gradients are reduced on that stream when they have all come. Internal to the lowering of Programs.
#pragma once

#include <optional>
#include <vector>

#include "tidemark/step/emitter.hpp"
#include "tidemark/step/fsdp_units.hpp"
#include "tidemark/step/gradients.hpp"
#include "tidemark/step/optimizer.hpp"
#include "tidemark/step/schedule.hpp"

namespace tidemark {

/// What the hooks see of the lowering: the present step and micro-batch, and the tensors' storages by name.
struct UnitContext {
  const Program& program;
  const Training& training;
  const Schedule& schedule;
  Emitter& emit;
  Gradients& gradients;
  std::vector<StorageId>& values;  // by tensor
  bool reentrant = false;          // a region runs forward without gradients, so its hooks run again in backward
};

class UnitShards {
 public:
  explicit UnitShards(const UnitContext& context);

  bool owns(TensorId t) const { return unit_of_[static_cast<std::size_t>(t)] >= 0; }
  /// The rank's shard of that parameter, live from the start. Call once for each parameter.
  OptimizerParameter emit_initial(TensorId t);
  /// By tensor: does a gradient reach it?
  void expect_gradients(const std::vector<bool>& reached);

  void begin_micro_batch(int step, int micro_batch);
  void before(std::size_t turn);
  void start_backward();
  /// All gradients of this parameter have come; takes over the handle.
  void gradient_came(TensorId t, GradientId gradient);
  void after(std::size_t turn);
  void end_backward();
  /// Of the optimizer: the shard's, no_id when none has come.
  StorageId gradient(TensorId t) const;
  /// FSDP2's gradients go with zero_grad; FSDP1's views do, but the flat one lives until the next forward.
  void zero_gradients();
  /// Shards of gradients that are alive now.
  std::vector<StorageId> living_gradients() const;

  /// FSDP1 waits for a frozen unit's input gradients by hooks that hold its inputs, and so their gradients, to the end
  /// of backward (_register_post_backward_reshard_only_hook; a reentrant region's inputs are leaves).
  bool holds_inputs(std::int32_t layer) const;
  void hold_input(StorageId input, GradientId gradient);

 private:
  enum class Pass : std::uint8_t { none, forward, again, backward } pass_ = Pass::none;
  struct State {
    std::vector<StorageId> shards;  // FSDP1: one; FSDP2: by parameter
    std::vector<StorageId> whole;   // the same, unsharded; empty while it is not
    StorageId gathered = no_id;     // FSDP2: what the all-gather wrote
    StorageId partial = no_id;      // what is left of it under reshard_after_forward: n
    std::optional<std::uint32_t> on_its_way;
    std::vector<GradientId> came;      // FSDP1, by parameter, of this backward
    std::vector<StorageId> unsharded;  // gradients that are not reduced yet: FSDP1 one, FSDP2 by parameter
    std::vector<bool> widened;         // FSDP2: that one is in the reduce dtype already
    StorageId gradient = no_id;        // the shard's
    int awaited = 0, arrived = 0;      // gradients of a backward
    std::size_t last_backward = 0;     // turn, plus 1
  };

  bool flat() const { return context_.training.shards.sharding == Sharding::fsdp1; }
  const Fsdp& settings() const { return context_.training.shards.fsdp; }
  int ranks() const { return context_.training.shards.data; }
  const Unit& unit(std::size_t u) const { return units_[u]; }
  bool is_whole(std::size_t u) const { return !states_[u].whole.empty(); }
  const ProgramOp& op_of(std::size_t turn) const;
  Pass pass_of(std::size_t turn) const;
  std::int32_t block_of(std::size_t turn) const;
  std::vector<std::size_t> adapters_of(std::size_t turn) const;
  bool reduces() const;

  StepOp new_op(std::size_t u, Phase phase, Stream stream) const;
  StepOp collective(std::size_t u, Bytes whole) const;
  Bytes whole_bytes(std::size_t u) const;  // unsharded, with its padding
  DType computed(std::size_t u) const { return unit(u).parameters.front().computed; }
  DType stored(std::size_t u) const { return unit(u).parameters.front().stored; }
  DType reduced_type(std::size_t u) const { return settings().reduce_dtype.value_or(computed(u)); }
  void gather(std::size_t u);
  void make_whole(std::size_t u);
  void copy_out(std::size_t u);
  void reshard(std::size_t u, bool after_forward = false);
  void prefetch(std::ptrdiff_t block, bool starts);
  void leave(std::size_t block, std::size_t turn);
  void flatten_gradients(std::size_t u);
  void post_backward(std::size_t u);
  void widen(std::size_t u);
  void reduce(std::size_t u, StorageId input);

  UnitContext context_;
  std::vector<Unit> units_;
  std::vector<State> states_;
  std::vector<std::int32_t> unit_of_;         // by tensor; -1: whole on every rank
  std::vector<std::size_t> place_;            // by tensor: which of its unit's parameters
  std::vector<std::vector<TensorId>> names_;  // by unit: its parameters under all their names
  std::vector<std::size_t> blocks_;           // units of scope block, in forward order
  std::vector<std::int32_t> block_of_layer_;  // index into blocks_, or -1
  std::optional<std::size_t> root_;
  std::int32_t open_ = -1;                // the block that runs
  StorageId kept_output_ = no_id;         // FSDP2, forward: the last all-gather's, until the next one has come
  StorageId reduce_input_ = no_id;        // FSDP2: the last reduce-scatter's, until the next one starts
  std::optional<std::uint32_t> reduced_;  // FSDP2: when that one has ended
  std::vector<StorageId> held_inputs_;
  std::vector<GradientId> held_gradients_;
  int step_ = 0, micro_batch_ = 0;  // at hand
};

}  // namespace tidemark
