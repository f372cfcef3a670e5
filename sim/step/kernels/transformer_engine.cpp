/// Transformer Engine 1.x and Megatron Core's fused kernels; the rest as PyTorch on CUDA.
#include "draft.hpp"

namespace tidemark::kernels {
namespace {

constexpr std::int64_t int64 = 8;

/// FusedScaleMaskSoftmax (megatron/core/fusions/fused_softmax.py): scale, mask and softmax in one kernel, which keeps
/// its result; backward writes over the incoming gradient.
Kernel softmax(const OpView& op) {
  const std::int64_t n = elements(op.output(0));
  Draft k(op);
  k.outputs().run().save_output();
  k.backward().run().pass(0);
  return k.other_flops(product(op, 6, n), product(op, 5, n)).finish();
}

/// _VocabParallelCrossEntropy (megatron/core/tensor_parallel/cross_entropy.py): the exponentials are written over the
/// fp32 logits and kept, with the target mask and the masked targets; backward turns them into the gradient in place.
Kernel cross_entropy(const OpView& op) {
  const std::int64_t n = elements(op.input(0));
  const std::int64_t tokens = rows(op.input(0));
  Draft k(op);
  k.outputs();
  const std::int32_t target_mask = k.temp("target_mask", tokens);
  const std::int32_t masked_target = k.temp("masked_target", product(op, int64, tokens));
  k.run().save_input(0).save_temp(target_mask).save_temp(masked_target);
  k.backward().run().over_saved(0, 0);
  return k.other_flops(product(op, 5, n), product(op, 2, n)).finish();
}

}  // namespace

RuleTable transformer_engine_rules() {
  RuleTable rules = cuda_rules();
  rule(rules, OpKind::softmax) = softmax;
  rule(rules, OpKind::cross_entropy) = cross_entropy;
  return rules;
}

}  // namespace tidemark::kernels
