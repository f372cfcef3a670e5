/// Transformer Engine 1.x and Megatron Core's fused kernels; the rest as PyTorch on CUDA.
#include "draft.hpp"

namespace tidemark::kernels {
namespace {

constexpr std::int64_t fp32 = 4;
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

/// FlashAttention and FusedAttention (transformer_engine/pytorch/attention): q, k, v, the output, one fp32 statistic a
/// row and head, and the generator's state as one tensor of two numbers.
Kernel attention(const OpView& op) {
  return op.op.attributes.ranks > 1 ? ring_attention(op) : fused_attention(op, true);
}

/// _VocabParallelCrossEntropy (megatron/core/tensor_parallel/cross_entropy.py), line by line: a row's maximum, the
/// target mask, the masked targets, the target's logit, the sum of exponentials, its logarithm, the loss. The
/// exponentials are written over the fp32 logits and kept, with the target mask and the masked targets; backward turns
/// them into the gradient in place. All ranks' vocabulary parts have tensors of these sizes.
Kernel cross_entropy(const OpView& op) {
  const std::int64_t n = elements(op.input(0));
  const std::int64_t tokens = rows(op.input(0));
  const std::int64_t reals = product(op, fp32, tokens), numbers = product(op, int64, tokens);
  Draft k(op);
  // calculate_logits_max
  const std::int32_t logits_max = k.temp("logits_max", reals);
  k.free_temp(k.temp("logits_max_indices", numbers));
  k.exchange("all_reduce", reals);
  // calculate_predicted_logits
  const std::int32_t below = k.temp("target_below", tokens);
  const std::int32_t above = k.temp("target_above", tokens);
  const std::int32_t target_mask = k.temp("target_mask", tokens);
  k.free_temp(above).free_temp(below);
  const std::int32_t target_clone = k.temp("target_clone", numbers);
  const std::int32_t masked_target = k.temp("masked_target", numbers);
  k.free_temp(target_clone);
  const std::int32_t arange = k.temp("arange", numbers);
  const std::int32_t gathered = k.temp("gathered_logits", reals);
  const std::int32_t predicted_logits = k.temp("predicted_logits", reals);
  k.free_temp(gathered);
  const std::int32_t sum_exp_logits = k.temp("sum_exp_logits", reals);
  k.free_temp(arange);
  k.exchange("all_reduce", reals).exchange("all_reduce", reals);
  // calculate_cross_entropy_loss
  const std::int32_t log_sum = k.temp("log_sum_exp", reals);
  k.outputs().run().free_temp(log_sum);
  k.free_temp(sum_exp_logits).free_temp(predicted_logits).free_temp(logits_max);
  k.save_input(0).save_temp(target_mask).save_temp(masked_target);
  // prepare_gradient_calculation_operands, calculate_gradients
  k.backward();
  const std::int32_t backward_arange = k.temp("arange", numbers);
  const std::int32_t float_mask = k.temp("target_mask_float", reals);
  const std::int32_t softmax_update = k.temp("softmax_update", reals);
  k.free_temp(float_mask);
  const std::int32_t picked = k.temp("picked_softmax", reals);
  k.run().free_temp(picked).free_temp(softmax_update).free_temp(backward_arange);
  k.over_saved(0, 0);
  return k.other_flops(product(op, 5, n), product(op, 2, n)).finish();
}

}  // namespace

RuleTable transformer_engine_rules() {
  RuleTable rules = cuda_rules();
  rule(rules, OpKind::softmax) = softmax;
  rule(rules, OpKind::attention) = attention;
  rule(rules, OpKind::cross_entropy) = cross_entropy;
  return rules;
}

}  // namespace tidemark::kernels
