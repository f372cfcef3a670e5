// bitsandbytes' 8-bit optimizers (bitsandbytes/optim/optimizer.py, Optimizer1State and Optimizer2State).
#include "tidemark/step/optimizer.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t smallest_8bit = 4096;  // min_8bit_size: below, states stay fp32
constexpr Bytes map_bytes{1024};              // 256 x 4: the dynamic map from bytes to fp32

}  // namespace

/// init_state, then the kernel, which dequantizes block by block in registers: no temporaries. A parameter's states are
/// born right before its first update.
void OptimizerState::emit_8bit(Emitter& emit, const OptimizerParameter& p, State& state, int step) {
  StepOp op;
  op.layer = p.layer;
  op.phase = Phase::optimizer;
  op.step = static_cast<std::int16_t>(step);
  op.dtype = p.dtype;
  const std::size_t moments = is_adam() ? 2 : 1;
  op.other_flops = (moments == 2 ? 12 : 4) * p.elements;
  const std::int64_t state_bytes = p.elements < smallest_8bit ? 4 : 1;
  op.moved =
      Bytes{p.elements * (3 * bytes_per_element(p.dtype) + 2 * static_cast<std::int64_t>(moments) * state_bytes)};
  emit.begin_op(op, "optimizer." + p.name);
  const auto number = [](std::size_t i) { return std::to_string(i + 1); };
  if (state.moments.empty() && state_bytes == 4) {
    for (std::size_t i = 0; i < moments; ++i)
      state.moments.push_back(emit_state(emit, p.name + ".state" + number(i), Bytes{4 * p.elements}, p.layer));
  } else if (state.moments.empty()) {
    for (std::size_t i = maps_.size(); i < moments; ++i)
      maps_.push_back(emit_state(emit, "optimizer.map" + number(i), map_bytes, -1));
    for (std::size_t i = 0; i < moments; ++i)
      state.moments.push_back(emit_state(emit, p.name + ".state" + number(i), Bytes{p.elements}, p.layer));
    const std::int64_t blocks = (p.elements + optimizer_.block_8bit - 1) / optimizer_.block_8bit;
    for (std::size_t i = 0; i < moments; ++i)
      state.moments.push_back(emit_state(emit, p.name + ".absmax" + number(i), Bytes{4 * blocks}, p.layer));
  }
  std::vector<StorageId> touched = {p.storage, p.gradient};
  if (state.master != no_id) touched.push_back(state.master);
  touched.insert(touched.end(), state.moments.begin(), state.moments.end());
  emit.compute(touched);
}

}  // namespace tidemark
