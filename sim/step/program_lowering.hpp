/// How does the framework carry a Schedule out: who holds each storage, and when does it let go?
///
/// Holders of a version of a tensor: later turns that read it (one hold), its host variable (one), the autograd nodes
/// that saved it, the checkpointed region whose input it is. Internal to the lowering of Programs.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradient_partition.hpp"
#include "replica_buckets.hpp"
#include "tidemark/step/emitter.hpp"
#include "tidemark/step/gradients.hpp"
#include "tidemark/step/kernel.hpp"
#include "tidemark/step/lower.hpp"
#include "tidemark/step/optimizer.hpp"
#include "tidemark/step/runtime.hpp"
#include "tidemark/step/schedule.hpp"
#include "tidemark/step/state_shards.hpp"
#include "unit_shards.hpp"
#include "zero_modules.hpp"

namespace tidemark {

class ProgramLowering {
 public:
  /// Program, kernels and training must outlive this.
  ProgramLowering(const Program& program, const std::vector<Kernel>& kernels, const Plan& plan,
                  const Training& training, TensorId received);
  /// Before `lower`: the gradients of products' weights come behind the rest of each micro-batch's backward, and out
  /// of the kernels that this was made with.
  void split_weights(std::vector<Kernel>& kernels);
  Step lower();
  const std::vector<StepPart>& parts() const { return parts_; }
  /// By step and micro-batch: from this op on its backward is of weights.
  const std::vector<OpId>& weights_begin() const { return weights_begin_; }

 private:
  static constexpr StorageId none = no_id;

  /// What the autograd node of one op holds until it has run, parallel to Kernel::saved; `none` where the region's
  /// recomputation or a cached op's look-up fills it in.
  struct Node {
    std::vector<StorageId> saved;
    StorageId number = none;         // a wrapped number that hooks did not see
    bool recomputed = false;         // filled by a recomputation through saved-tensor hooks
    std::vector<StorageId> results;  // of the module that begins here, held until this node has run
    std::vector<std::pair<std::size_t, std::size_t>> on_host;  // saved tensors that offload hooks copied, to Step::host
  };

  /// What offload hooks copy: the tensor that a node sees.
  struct SavedCopy {
    std::string name;
    Bytes bytes;
  };
  struct Leaving {
    StorageId id = none;
    SavedCopy copy;
  };

  /// What the plan copied to the host: one for each storage.
  struct HostCopy {
    StorageId device = none;  // while nobody has waited for the copy (Copies::free_at_wait): still held here
    StorageId back = none;    // the storage it last came back to
    std::uint32_t copied = 0;
    std::size_t block = 0;   // Step::host
    std::size_t owners = 0;  // those that have not asked for it back
  };
  /// Who held it: a node's saved slot, the name of a tensor, or a region its input.
  struct Away {
    enum class From : std::uint8_t { node, name, region } from = From::node;
    std::int32_t owner = -1;  // op, tensor, region
    std::size_t slot = 0;     // of the node or the region
    std::size_t copy = 0;
  };
  /// One storage and those who let go of it.
  struct Departure {
    StorageId id = none;
    std::vector<std::pair<std::size_t, Away>> holders;  // by the op whose copy in brings it back
  };

  /// What the framework holds for a checkpointed region.
  struct RegionState {
    StorageId rng = none;      // generator state as forward found it
    StorageId rng_now = none;  // as the recomputation found it
    std::vector<StorageId> inputs;
    std::vector<StorageId> numbers;          // wrapped numbers of the graph that a recomputation throws away
    std::vector<StorageId> cache;            // by op's first output: kept results of a selective region
    std::vector<StorageId> outputs;          // reentrant: the recomputed outputs
    std::vector<GradientId> incoming;        // reentrant: the gradients the region was called with
    std::vector<GradientId> leaf_gradients;  // reentrant: of the detached inputs
    std::vector<std::int32_t> leaf_edges;    // reentrant: gradients each of them still waits for
    std::int32_t saved_left = 0;
  };

  /// The part of a product's backward that makes its weight's gradient.
  struct WeightProduct {
    GradientRule rule;
    Cost cost;
    bool apart = false;
  };
  /// What it needs until it runs: the incoming gradient and the product's other input.
  struct LateProduct {
    std::size_t op = 0;
    GradientId incoming = no_gradient;
    std::vector<StorageId> saved;
  };

  // ---- setting up (lower_program.cpp)
  void warn_of_missing_rules();
  void emit_static();
  void add_parameter(TensorId t, StorageId id);

  // ---- one micro-batch (lower_program.cpp)
  StorageId emit_token_count();
  bool reports_losses() const { return training_.profile.loop == "megatron" && program_.loss_gradient < 0; }
  void emit_report();
  void emit_return();
  void emit_micro_batch();
  void begin_part(StepPart::What what, std::int32_t layer);
  void emit_turn(const Turn& turn);
  void let_go(std::size_t turn_index);
  void end_backward();

  // ---- main gradients, the optimizer's phase and what replicas exchange around it (lower_optimizer.cpp)
  void emit_main_gradients();
  void divide_states();
  void emit_optimizer();
  void emit_sub_groups();
  StorageId emit_wide_gradients(std::int64_t owned, Bytes flat);
  void exchange_with_replicas(std::string_view how, std::string_view what, std::int64_t bytes, std::int64_t ranks);
  std::vector<StorageId> partial_gradients();
  void add_partial_gradients();
  void step_in_backward(TensorId t);
  void emit_zero_grad();

  // ---- forward and recompute (lower_forward.cpp)
  void emit_run(const Turn& turn);
  void open_next(std::size_t k, const std::vector<Move>& script, std::size_t from, Phase phase);
  void emit_save_only(const Turn& turn);
  void refill(const Turn& turn);
  void keep_results(const Turn& turn, const std::vector<StorageId>& temps);
  void emit_take(const Turn& turn);
  void bind_aliases(const ProgramOp& op);
  void make_output(std::size_t k, std::size_t index);
  void save_number(const Turn& turn, const std::vector<StorageId>& temps);
  bool hides_numbers(const Turn& turn) const {
    return turn.region >= 0 && checkpointing_.kind == Checkpointing::Kind::nonreentrant && runtime_.unpacks_to_locals;
  }
  void move_temp(const Move& move, const Kernel& kernel, const ProgramOp& op, std::vector<StorageId>& temps);
  std::vector<StorageId> touched_by_run(const ProgramOp& op, const std::vector<StorageId>& temps, Phase phase);
  void save_inputs(std::size_t k, bool caches);
  void save_results(const Turn& turn, const std::vector<StorageId>& temps);
  void save_one(std::size_t k, std::size_t i, StorageId id);
  SavedCopy copy_of_saved(std::size_t k, std::size_t i) const;
  void send_to_host(const ProgramOp& op);
  void begin_copy(const ProgramOp& op, Stream stream, const SavedCopy& copy, const std::string& suffix);
  std::vector<StorageId> unpack_offloaded(std::size_t k);
  std::vector<StorageId> fetch_from_host(std::size_t k);
  StorageId unpacked_copy(std::size_t k, std::size_t i);
  void hold_variables(const ProgramOp& op, Phase phase);
  void release_variables(const Turn& turn);
  void drop(StorageId& variable);

  // ---- backward (lower_backward.cpp)
  void start_backward();
  void emit_backward(const Turn& turn);
  std::vector<GradientId> take_incoming(const ProgramOp& op);
  bool is_matrix(GradientId id) const;
  bool is_row_major(GradientId id) const;
  std::vector<StorageId> zeros_for_missing(std::size_t k, const std::vector<GradientId>& incoming);
  StorageId copied(const ProgramOp& op, GradientId id);
  void release_incoming(const std::vector<GradientId>& incoming);
  void load_cached_inputs(std::size_t k);
  StorageId make_gradient(const ProgramOp& op, const GradientRule& rule);
  std::vector<StorageId> touched_by_backward(std::size_t k, const std::vector<GradientId>& incoming,
                                             const std::vector<StorageId>& fresh,
                                             const std::vector<StorageId>& temps) const;
  std::vector<GradientId> hand_over(std::size_t k, const std::vector<GradientId>& incoming,
                                    const std::vector<StorageId>& fresh);
  GradientId pass_through(const ProgramOp& op, const GradientRule& rule, GradientId incoming);
  void release_locals(std::size_t k, std::int32_t region);
  void release_saved(std::size_t k, std::int32_t region);
  void deliver(TensorId t, GradientId gradient, std::int32_t region, std::vector<GradientId>& late);
  void deliver_detached(std::int32_t input, GradientId gradient, std::vector<GradientId>& late);
  void deliver_leaf(TensorId t, GradientId gradient, std::vector<GradientId>& late);
  void accumulate_ready_leaves();
  bool written_in_place(TensorId t) const;

  // ---- products' weights, apart (lower_weights.cpp)
  void keep_for_weights(std::size_t k, const std::vector<GradientId>& incoming);
  void emit_weights();

  // ---- checkpointed regions (lower_regions.cpp)
  bool carried_out() const {
    return checkpointing_.kind == Checkpointing::Kind::reentrant ||
           checkpointing_.kind == Checkpointing::Kind::nonreentrant;
  }
  /// The generator's state is a tensor of the device where that is a CPU; CUDA's is kept on the host.
  bool copies_rng() const { return checkpointing_.preserve_rng && host_is_device_; }
  bool reentrant() const { return checkpointing_.kind == Checkpointing::Kind::reentrant; }
  void enter_region(const Turn& turn, const Turn* previous);
  void leave_region(const Turn& turn, const Turn* next);
  void begin_forward_region(std::int32_t r);
  void begin_recompute(std::int32_t r);
  void end_recompute(std::int32_t r);
  void end_reentrant_backward(std::int32_t r);
  void find_active_ops();
  std::vector<std::int32_t> leaf_edges(std::int32_t region) const;
  void drop_locals(OpIndex k);
  void drop_results(std::int32_t r);
  void count_released(std::int32_t region, std::size_t saved);
  void release_frame(std::int32_t r);
  void unwind(std::int32_t r);

  // ---- the plan's copies (lower_copies.cpp)
  void emit_copies_before(std::size_t turn_index);
  void copy_out(const CopyTurn& copy);
  void copy_in(const CopyTurn& copy);
  void copy_wait(const CopyTurn& copy);
  std::vector<Departure> departures(const CopyTurn& copy);
  void bring_back(HostCopy& copy, const ProgramOp& op);
  StorageId& slot_of(const Away& away);
  void check_is_here(std::size_t k, bool backward) const;
  void end_copies();

  // ---- small things
  const Tensor& tensor(TensorId t) const { return program_.tensors[static_cast<std::size_t>(t)]; }
  const ProgramOp& op_at(std::size_t k) const { return program_.ops[k]; }
  StorageId& value(TensorId t) { return values_[static_cast<std::size_t>(t)]; }
  /// A parameter or batch input itself; a view of one is not.
  bool is_static(TensorId t) const { return is_leaf_[static_cast<std::size_t>(t)]; }
  /// Of a unit that is gathered where it runs: nobody's hold keeps it.
  bool is_sharded(TensorId t) const { return (units_ && units_->owns(t)) || (modules_ && modules_->owns(t)); }
  StorageId& leaf_storage(TensorId t) { return leaf_storages_[static_cast<std::size_t>(tensor(t).storage)]; }
  void mark_activation(StorageId id);
  StepOp new_op(const ProgramOp& op, Phase phase, const Cost& cost) const;
  RegionState& region_state(std::int32_t r) { return region_states_[static_cast<std::size_t>(r)]; }
  const Region& region(std::int32_t r) const { return schedule_.regions[static_cast<std::size_t>(r)]; }

  struct ReadyLeaf {
    TensorId tensor = -1;
    std::int32_t detached = -1;  // of the open region's inputs; -1: a leaf of the whole graph
  };

  const Program& program_;
  const Training& training_;
  TensorId received_;  // a pipeline chunk's input; -1 without one
  Runtime runtime_;
  const std::vector<Kernel>& kernels_;  // by op
  Schedule schedule_;
  Checkpointing checkpointing_;
  Copies copies_;
  bool hold_boundaries_ = false;
  bool host_is_device_ = false;  // a CPU's profile: what offload hooks copy stays in the memory that is counted
  Step step_;
  std::vector<StepPart> parts_;
  Emitter emit_;
  Gradients gradients_;
  OptimizerState optimizer_;
  std::optional<UnitShards> units_;             // where sharding is fsdp1 or fsdp2
  std::optional<GradientPartition> partition_;  // where it is zero2
  std::optional<ZeroModules> modules_;          // where it is zero3
  std::optional<ReplicaBuckets> buckets_;       // replicas under DistributedDataParallel

  std::vector<StorageId> values_;          // by tensor: the current version, held for later turns
  std::vector<StorageId> variables_;       // by tensor: what its host variable holds
  std::vector<StorageId> locals_;          // the same in the function that is recomputed
  std::vector<std::size_t> release_rank_;  // by tensor: when its variable lets go, among all
  std::vector<GradientId> buffers_;        // by tensor: the input buffer of the node that made it
  std::vector<StorageId> leaf_storages_;   // by program storage: .grad or the main gradient
  std::vector<GradientId> leaf_buffers_;   // by program storage: what AccumulateGrad's input buffer holds
  std::vector<std::int32_t> leaf_edges_;   // by program storage: gradients it still waits for
  std::vector<std::int32_t> outer_edges_;  // the outer graph's, while a reentrant region runs backward
  std::vector<ReadyLeaf> ready_leaves_;    // all gradients have come; they run before any other node
  std::vector<bool> is_leaf_;              // by tensor
  std::vector<bool> reached_;              // by tensor: a gradient comes to it
  std::vector<bool> active_;               // by op: its node is on a way from the loss
  std::vector<StorageId> born_gradients_;  // those that zero_grad frees, in order of birth
  std::vector<StorageId> held_boundaries_;
  std::vector<std::vector<StorageId>>
      reports_;                   // by micro-batch: what the loop keeps of its loss until the step returns
  std::vector<Leaving> leaving_;  // saved by the op that runs, on their way to the host
  std::size_t next_copy_ = 0;     // of the schedule's
  std::vector<HostCopy> host_copies_;
  std::map<StorageId, std::size_t> copy_of_;  // by the storage it was made of
  std::vector<std::vector<Away>> away_;       // by op
  std::vector<OptimizerParameter> optimizer_parameters_;
  std::vector<TensorId> parameter_tensors_;
  std::vector<FlatParameters> flat_;            // of each data type of parameters, where replicas divide their states
  std::vector<std::size_t> parameter_numbers_;  // by program storage: its place among those
  std::vector<Node> nodes_;                     // by op
  std::vector<RegionState> region_states_;
  std::vector<WeightProduct> weight_products_;  // by op, where the schedule runs them apart; else empty
  std::vector<LateProduct> late_;               // of this micro-batch, in the order of backward
  std::vector<OpId> weights_begin_;
  GradientId seed_ = no_gradient;
  std::int32_t open_region_ = -1;  // the reentrant region whose backward runs
  int step_number_ = 0;
  int micro_batch_ = 0;
};

}  // namespace tidemark
