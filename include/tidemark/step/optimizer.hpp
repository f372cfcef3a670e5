/// What does the optimizer phase allocate?
#pragma once

#include <string>
#include <vector>

#include "tidemark/program/training.hpp"
#include "tidemark/step/emitter.hpp"

namespace tidemark {

/// One parameter as the optimizer sees it.
struct OptimizerParameter {
  std::string name;
  std::int64_t elements = 0;
  std::int32_t layer = -1;
  DType dtype = DType::float32;
  StorageId storage = no_id;
  StorageId gradient = no_id;  // no_id: no gradient, so it is skipped
};

/// Momentum, Adam and AdamW keep state from their first step on; it lives to the end.
class OptimizerState {
 public:
  OptimizerState(const Optimizer& optimizer, const DTypes& dtypes) : optimizer_(optimizer), dtypes_(dtypes) {}

  /// A master copy of the parameters exists before step 0.
  void emit_initial(Emitter& emit, const std::vector<OptimizerParameter>& parameters);
  /// One optimizer step; state is born in the first one (M7).
  void emit_step(Emitter& emit, const std::vector<OptimizerParameter>& parameters, int step);

 private:
  struct State {
    StorageId master = no_id;
    std::vector<StorageId> moments;
  };
  void emit_birth(Emitter& emit, const std::vector<OptimizerParameter>& parameters, int step);
  void emit_single(Emitter& emit, const OptimizerParameter& parameter, const State& state, StorageId& previous,
                   int step);
  void emit_group(Emitter& emit, const std::vector<const OptimizerParameter*>& group,
                  const std::vector<const State*>& states, std::vector<StorageId>& previous, int step);
  Optimizer optimizer_;
  DTypes dtypes_;
  std::vector<State> states_;  // by parameter
};

}  // namespace tidemark
