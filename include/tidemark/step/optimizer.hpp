/// What does the optimizer phase allocate?
#pragma once

#include <string>
#include <vector>

#include "tidemark/program/training.hpp"
#include "tidemark/step/clipping.hpp"
#include "tidemark/step/emitter.hpp"

namespace tidemark {

/// What PyTorch's optimizers do besides, where tensors live on the CPU (measured on 1.13.1 and 2.6.0).
struct OptimizerHabits {
  bool device_scalars = false;      // numbers become 8-byte tensors with a 4-byte cast; Adam's step is a 4-byte tensor
  bool profiling_handle = false;    // 1.13: 4 and 288 bytes come and go in every step
  int adam_decays = 1;              // moments decayed by a scalar product: both in 1.13; 2.x interpolates the first
  bool foreach_sum_is_new = false;  // multi-tensor Adam adds epsilon into a second list, up to 2.0
  ClippingForm clipping = ClippingForm::per_tensor;
  bool states_first = false;  // made before the first step (DeepSpeed: stage_1_and_2.py, initialize_optimizer_states)
  friend bool operator==(const OptimizerHabits&, const OptimizerHabits&) = default;
};
OptimizerHabits optimizer_habits(const Training& training);

/// Momentum, Adam and AdamW keep state from their first step on; it lives to the end.
class OptimizerState {
 public:
  OptimizerState(const Optimizer& optimizer, const DTypes& dtypes, const OptimizerHabits& habits)
      : optimizer_(optimizer), dtypes_(dtypes), habits_(habits) {}

  /// A master copy of the parameters exists before step 0.
  void emit_initial(Emitter& emit, const std::vector<OptimizerParameter>& parameters);
  /// One optimizer step; state is born in the first one (M7).
  void emit_step(Emitter& emit, const std::vector<OptimizerParameter>& parameters, int step);
  /// The step of one parameter alone, by an optimizer of its own.
  void emit_step_of(Emitter& emit, const std::vector<OptimizerParameter>& parameters, std::size_t i, int step);

 private:
  struct State {
    StorageId master = no_id;
    std::vector<StorageId> moments;
  };
  void emit_birth(Emitter& emit, const std::vector<OptimizerParameter>& parameters, int step);
  void emit_births(Emitter& emit, const OptimizerParameter& parameter, State& state, std::vector<StorageId>& born);
  StorageId emit_state(Emitter& emit, const std::string& name, Bytes bytes, std::int32_t layer);
  void emit_8bit(Emitter& emit, const OptimizerParameter& parameter, State& state, int step);
  void emit_single(Emitter& emit, const OptimizerParameter& parameter, const State& state, StorageId& previous,
                   int step);
  void emit_group(Emitter& emit, const std::vector<const OptimizerParameter*>& group,
                  const std::vector<const State*>& states, std::vector<StorageId>& previous, int step);
  void emit_scalar(Emitter& emit);
  static void release_list(Emitter& emit, std::vector<StorageId>& list);
  /// Optimizer state of a parameter of this type.
  DType moment_dtype(DType parameter) const { return dtypes_.moments.value_or(dtypes_.master.value_or(parameter)); }
  bool is_adam() const { return optimizer_.kind == OptimizerKind::adam || optimizer_.kind == OptimizerKind::adamw; }
  Optimizer optimizer_;
  DTypes dtypes_;
  OptimizerHabits habits_;
  std::vector<State> states_;    // by parameter
  bool born_now_ = false;        // this step made the state
  std::vector<StorageId> maps_;  // 8-bit: the values that bytes stand for, one table a moment
};

}  // namespace tidemark
