/// PyTorch 2.6 on CUDA. Read in its sources (derivatives.yaml, ATen/native), not measured; what a row does not change
/// is as little as the ideal rule. Wrapped numbers stay on the host, and bias sums make no staging buffers here.
#include "draft.hpp"
#include "tidemark/program/strides.hpp"

namespace tidemark::kernels {
namespace {

constexpr std::int64_t fp32 = 4;
constexpr std::int64_t int64 = 8;

/// AddmmBackward0: dX, then dW, then the bias sum, which the engine makes.
Kernel with_bias(const OpView& op, std::size_t x, std::size_t w, std::size_t bias, bool transposed) {
  const Tensor& weight = op.input(w);
  const std::int64_t flops =
      matmul_flops(op, rows(op.input(x)), weight.shape.at(transposed ? 0 : 1), weight.shape.at(transposed ? 1 : 0));
  const std::int64_t products = (op.needs_gradient(x) ? 1 : 0) + (op.needs_gradient(w) ? 1 : 0);
  Draft k(op);
  k.outputs().run().save_input_for(x, w).save_input_for(w, x);
  k.backward().gradient(x).gradient(w).run().gradient(bias);
  return k.matmul_flops(flops, product(op, products, flops))
      .other_flops(elements(op.output(0)), elements(op.output(0)))
      .finish();
}

Kernel addmm(const OpView& op) { return with_bias(op, 1, 2, 0, false); }

/// A 4-bit weight, 16-bit for a call (bitsandbytes, dequantize_4bit; auto_gptq, QuantLinear). With double quantization
/// its scales are made fp32 first, and die when the weight is there. -1: it is no 4-bit weight.
std::int32_t dequantize(const OpView& op, Draft& k) {
  const std::string& kind = op.op.attributes.implementation;
  if (kind == "lora_none") return -1;
  const std::int32_t scales = kind.ends_with("nf4_double") ? k.temp("scales", elements(op.input(1)) / 64 * fp32) : -1;
  const std::int32_t wide = k.temp("dequantized", bytes(op.input(1)));
  if (scales >= 0) k.free_temp(scales);
  return wide;
}

/// Unsloth's matmul_lora and LoRA_W.backward (kernels/fast_lora.py): x W, then x A and its product with B, added in
/// place; A and B are cast to x's type for the call. Backward: dA, dB, then dX, the adapter's part of it added in
/// place.
Kernel fused_lora(const OpView& op) {
  const Tensor& x = op.input(0);
  const Tensor& a = op.input(2);
  const std::int64_t m = rows(x), rank = a.shape.at(0), in = a.shape.at(1), out = op.input(3).shape.at(0);
  const std::int64_t item = bytes_per_element(x.dtype);
  const std::int64_t base = matmul_flops(op, m, in, out);
  const std::int64_t adapter = matmul_flops(op, m, rank, in) + matmul_flops(op, m, rank, out);
  Draft k(op);
  const std::int32_t forward = dequantize(op, k);
  k.outputs();
  if (forward >= 0) k.free_temp(forward);
  const std::int32_t dropped = op.op.attributes.probability > 0 ? k.temp("dropped", bytes(x)) : -1;
  const std::int32_t narrow = k.temp("x_a", product(op, product(op, m, rank), item));
  const std::int32_t delta = k.temp("delta", product(op, product(op, m, out), item));
  k.run().free_temp(delta).free_temp(narrow).save_input(0).save_input(1).save_input(2).save_input(3);
  if (dropped >= 0) k.save_temp(dropped);
  k.backward();
  const std::int32_t back = k.temp("dy_b", product(op, product(op, m, rank), item));
  k.gradient(2).gradient(3);
  const std::int32_t backward = dequantize(op, k);
  k.gradient(0);
  if (backward >= 0) k.free_temp(backward);
  const std::int32_t part = op.needs_gradient(0) ? k.temp("dx_of_adapter", bytes(x)) : -1;
  k.run();
  if (part >= 0) k.free_temp(part);
  k.free_temp(back);
  return k.matmul_flops(base + adapter, base + 2 * adapter).finish();
}

/// x W with W in 4 bits.
Kernel quantized_linear(const OpView& op) {
  const Tensor& weight = op.input(1);
  const std::int64_t flops = matmul_flops(op, rows(op.input(0)), weight.shape.at(0), weight.shape.at(1));
  Draft k(op);
  const std::int32_t forward = dequantize(op, k);
  k.outputs().run().free_temp(forward).save_input_for(1, 0);
  k.backward();
  const std::int32_t backward = dequantize(op, k);
  k.gradient(0).run().free_temp(backward);
  if (op.inputs() > 2) k.gradient(2);
  return k.matmul_flops(flops, flops).other_flops(elements(weight), elements(weight)).finish();
}

/// F.linear is addmm with a bias, mm without one: MmBackward0 makes mat2's gradient first and releases it first.
Kernel linear(const OpView& op) {
  const std::string& kind = op.op.attributes.implementation;
  if (op.op.attributes.ranks > 1) return split_linear(op);
  if (kind.starts_with("lora_")) return fused_lora(op);
  if (!kind.empty()) return quantized_linear(op);
  if (op.inputs() > 2) return with_bias(op, 0, 1, 2, true);
  const Tensor& weight = op.input(1);
  const std::int64_t flops = matmul_flops(op, rows(op.input(0)), weight.shape.at(0), weight.shape.at(1));
  const std::int64_t products = (op.needs_gradient(0) ? 1 : 0) + (op.needs_gradient(1) ? 1 : 0);
  Draft k(op);
  k.outputs().run().save_input_for(1, 0).save_input_for(0, 1);
  k.backward().gradient(1).gradient(0).run();
  return k.matmul_flops(flops, product(op, products, flops)).finish();
}

/// at::matmul folds all batch dimensions into one: a view where they merge, else a copy, which is then what is saved.
bool folds(const Tensor& tensor) {
  if (tensor.shape.size() <= 3) return true;
  Shape folded = {1, tensor.shape[tensor.shape.size() - 2], tensor.shape.back()};
  for (std::size_t d = 0; d + 2 < tensor.shape.size(); ++d) folded[0] *= tensor.shape[d];
  return view_strides(tensor.shape, tensor.strides, folded).has_value();
}

/// BmmBackward0: mat2's gradient, then self's.
Kernel bmm(const OpView& op) {
  const std::int64_t flops = matmul_flops(op, rows(op.output(0)), last_extent(op.output(0)), last_extent(op.input(0)));
  const std::int64_t products = (op.needs_gradient(0) ? 1 : 0) + (op.needs_gradient(1) ? 1 : 0);
  Draft k(op);
  std::int32_t copies[2] = {-1, -1};
  for (std::size_t i = 0; i < 2; ++i)
    if (!folds(op.input(i))) copies[i] = k.temp(i == 0 ? "left_copy" : "right_copy", bytes(op.input(i)));
  k.outputs().run();
  for (const std::size_t i : {std::size_t{1}, std::size_t{0}}) {
    if (!op.needs_gradient(1 - i)) continue;
    if (copies[i] >= 0)
      k.save_temp(copies[i]);
    else
      k.save_input(i);
  }
  k.backward().gradient(1).gradient(0).run();
  return k.matmul_flops(flops, product(op, products, flops)).finish();
}

/// embedding_dense_backward_cuda (EmbeddingBackwardKernel.cu): above 3072 ids they are sorted with their places first.
/// How many partial rows follow depends on the ids, and is left out.
Kernel embedding(const OpView& op) {
  if (op.op.attributes.ranks > 1) return split_embedding(op);
  const std::int64_t ids = elements(op.input(0));
  Draft k(op);
  k.outputs().run().save_input(0);
  k.backward().gradient(1);
  if (ids > 3072) {
    const std::int32_t sorted = k.temp("sorted_ids", product(op, int64, ids));
    const std::int32_t places = k.temp("original_places", product(op, int64, ids));
    k.run().free_temp(places).free_temp(sorted);
  } else {
    k.run();
  }
  return k.other_flops(0, elements(op.output(0))).finish();
}

std::int64_t round_up(const OpView& op, std::int64_t value, std::int64_t multiple) {
  return product(op, (value + multiple - 1) / multiple, multiple);
}

/// flash_attention/flash_api.cpp, mha_fwd and mha_bwd. Forward keeps q, k, v, the output, one fp32 logsumexp a row and
/// the generator's seed and offset. Backward adds up dq in fp32 (rows rounded to 128, head_dim to 32), keeps fp32
/// row sums, and for grouped heads makes dk and dv for all query heads before it sums them over each group.
Kernel flash_attention(const OpView& op, bool one_rng_tensor) {
  const Tensor& q = op.input(0);
  const Tensor& keys = op.input(1);
  const std::int64_t batch = q.shape.at(0), heads = q.shape.at(1), head_dim = q.shape.at(3);
  const AttentionFlops flops = attention_flops(op);
  const std::int64_t padded_rows = product(op, product(op, batch, heads), round_up(op, q.shape.at(2), 128));
  Draft k(op);
  k.outputs();
  const std::int32_t logsumexp = k.temp("logsumexp", product(op, fp32, rows(q)));
  if (one_rng_tensor) {
    const std::int32_t state = k.temp("rng_state", 2 * int64);
    k.run().save_input(0).save_input(1).save_input(2).save_output().save_temp(logsumexp).save_temp(state);
  } else {
    const std::int32_t seed = k.temp("philox_seed", int64);
    const std::int32_t offset = k.temp("philox_offset", int64);
    k.run().save_input(1).save_output().save_temp(logsumexp).save_temp(offset).save_temp(seed).save_input(0);
    k.save_input(2);
  }
  k.backward().gradient(0, Layout::like_input).gradient(1, Layout::like_input).gradient(2, Layout::like_input);
  const std::int32_t sums = k.temp("softmax_d", product(op, fp32, padded_rows));
  const std::int32_t dq = k.temp("dq_accum", product(op, fp32, product(op, padded_rows, round_up(op, head_dim, 32))));
  if (keys.shape.at(1) == heads) {
    k.run();
  } else {
    const std::int64_t expanded = product(op, bytes(keys) / keys.shape.at(1), heads);
    const std::int32_t dk_expanded = k.temp("dk_expanded", expanded);
    const std::int32_t dv_expanded = k.temp("dv_expanded", expanded);
    k.run().free_temp(dv_expanded).free_temp(dk_expanded);
  }
  k.free_temp(dq).free_temp(sums);
  return k.matmul_flops(flops.forward, flops.backward).finish();
}

/// Flash kernels know 16-bit types only. fp32 goes to the memory-efficient kernel (attention_backward.cu), which pads
/// the logsumexp to 32 rows and adds up in the gradients themselves.
Kernel efficient_attention(const OpView& op) {
  const Tensor& q = op.input(0);
  const AttentionFlops flops = attention_flops(op);
  const std::int64_t batch_heads = q.shape.at(0) * q.shape.at(1);
  Draft k(op);
  k.outputs();
  const std::int32_t logsumexp =
      k.temp("logsumexp", product(op, fp32, product(op, batch_heads, round_up(op, q.shape.at(2), 32))));
  const std::int32_t seed = k.temp("philox_seed", int64);
  const std::int32_t offset = k.temp("philox_offset", int64);
  k.run().save_input(1).save_temp(logsumexp).save_output().save_temp(offset).save_temp(seed).save_input(0).save_input(
      2);
  k.backward().gradient(0, Layout::like_input).gradient(1, Layout::like_input).gradient(2, Layout::like_input);
  const std::int32_t delta = k.temp("delta", product(op, fp32, rows(q)));
  k.run().free_temp(delta);
  return k.matmul_flops(flops.forward, flops.backward).finish();
}

}  // namespace

Kernel fused_attention(const OpView& op, bool one_rng_tensor) {
  return op.input(0).dtype == DType::float32 ? efficient_attention(op) : flash_attention(op, one_rng_tensor);
}

namespace {

Kernel attention(const OpView& op) { return fused_attention(op, false); }

/// NllLossBackward0 keeps the log-probabilities, the targets and the 4-byte weight sum.
Kernel nll_loss(const OpView& op) {
  Draft k(op);
  k.outputs();
  const std::int32_t weight = k.temp("total_weight", bytes_per_element(op.input(0).dtype));
  k.run().save_input(0).save_input(1).save_temp(weight);
  k.backward().gradient(0).run();
  return k.other_flops(rows(op.input(0)), rows(op.input(0))).finish();
}

/// Unsloth's Fast_CrossEntropyLoss: a loss and an fp32 logsumexp a row; backward writes over the logits.
Kernel fused_cross_entropy(const OpView& op) {
  const std::int64_t n = elements(op.input(0));
  Draft k(op);
  const std::int32_t losses = k.temp("losses", product(op, fp32, rows(op.input(0))));
  const std::int32_t logsumexp = k.temp("logsumexp", product(op, fp32, rows(op.input(0))));
  k.outputs().run().free_temp(losses).save_input(0).save_temp(logsumexp).save_input(1);
  k.backward().run().over_saved(0, 0);
  return k.other_flops(product(op, 5, n), product(op, 3, n)).finish();
}

/// F.cross_entropy as one op: log-softmax (kept, by both of its nodes), then nll; backward has the saved tensor, the
/// gradient of nll and the gradient of log-softmax at once.
Kernel chained_cross_entropy(const OpView& op, bool keeps_logits) {
  if (!op.op.attributes.implementation.empty()) return fused_cross_entropy(op);
  const std::int64_t n = elements(op.input(0));
  Draft k(op);
  const std::int32_t log_softmax = k.temp("log_softmax", bytes(op.input(0)));
  k.outputs();
  const std::int32_t weight = k.temp("total_weight", bytes_per_element(op.input(0).dtype));
  k.run().save_temp(log_softmax);
  if (keeps_logits) k.save_input(0);
  k.save_input(1).save_temp(weight);
  k.backward();
  const std::int32_t nll_gradient = k.temp("nll_gradient", bytes(op.input(0)));
  k.gradient(0).run().free_temp(nll_gradient);
  return k.other_flops(product(op, 6, n), product(op, 4, n)).finish();
}

Kernel cross_entropy(const OpView& op) { return chained_cross_entropy(op, false); }

/// derivatives.yaml up to 1.10: `_softmax_backward_data(grad, result, dim, self)`, which needs but the type of `self`;
/// from 1.11 on that is what it takes.
Kernel softmax_keeping_both(const OpView& op) {
  const std::int64_t n = elements(op.output(0));
  Draft k(op);
  k.outputs().run().save_output().save_input(0).backward().gradient(0).run();
  return k.other_flops(product(op, 6, n), product(op, 4, n)).finish();
}

/// mse_loss reduces into the buffer of all differences, which the scalar keeps (Loss.cpp).
Kernel mse_loss(const OpView& op) {
  const std::int64_t n = elements(op.input(0));
  Draft k(op);
  k.outputs().output_bytes(bytes(op.input(0)));
  const std::int32_t differences = k.temp("differences", bytes(op.input(0)));
  k.run().free_temp(differences).save_input(0).save_input(1);
  k.backward().gradient(0).gradient(1).run();
  return k.other_flops(product(op, 3, n), product(op, 2, n)).finish();
}

std::int64_t power_of_two_from(std::int64_t value) {
  std::int64_t power = 1;
  while (power < value) power *= 2;
  return power;
}

/// Liger's fused linear cross-entropy (fused_linear_cross_entropy.py): forward makes the gradients already, one chunk
/// of logits at a time; a chunk has rows / ceil(vocab / hidden), rounded up to a power of two. Backward hands them on.
Kernel linear_cross_entropy(const OpView& op) {
  const Tensor& weight = op.input(1);
  const std::int64_t m = rows(op.input(0)), vocab = weight.shape.at(0), hidden = weight.shape.at(1);
  const std::int64_t parts = (vocab + hidden - 1) / hidden;
  const std::int64_t chunk = power_of_two_from((m + parts - 1) / parts);
  const std::int64_t flops = matmul_flops(op, m, vocab, hidden);
  const std::int64_t logits = product(op, m, vocab);
  Draft k(op);
  std::int32_t gradients[2] = {-1, -1};
  for (std::size_t i = 0; i < 2; ++i)
    if (op.needs_gradient(i)) gradients[i] = k.temp(i == 0 ? "grad_input" : "grad_weight", bytes(op.input(i)));
  const std::int32_t losses = k.temp("losses", product(op, fp32, m));
  const std::int32_t tile =
      k.temp("logits_chunk", product(op, product(op, chunk, vocab), bytes_per_element(op.input(0).dtype)));
  k.run().free_temp(tile).outputs().free_temp(losses);
  std::int64_t products = 1;
  for (std::size_t i = 0, saved = 0; i < 2; ++i) {
    if (gradients[i] < 0) continue;
    k.save_temp(gradients[i]).over_saved(i, saved++);
    ++products;
  }
  return k.matmul_flops(product(op, products, flops), 0).other_flops(product(op, 8, logits), 0).finish();
}

/// One kernel. A library's (Unsloth, kernels/rms_layernorm.py; Liger, ops/rms_norm.py) writes dX over the incoming
/// gradient.
Kernel rms_norm(const OpView& op) {
  const std::int64_t n = elements(op.input(0));
  Draft k(op);
  k.outputs();
  const std::int32_t rstd = k.temp("rstd", product(op, fp32, rows(op.input(0))));
  k.run().save_input(0).save_input_for(1, 0).save_temp(rstd).backward();
  if (op.op.attributes.implementation.empty())
    k.gradient(0);
  else
    k.pass(0);
  k.gradient(1).run();
  return k.other_flops(product(op, 4, n), product(op, 9, n)).finish();
}

/// A library's rotation (Unsloth, kernels/rope_embedding.py) is in place, forward and backward.
Kernel rotary(const OpView& op) {
  const std::int64_t n = elements(op.output(0));
  Draft k(op);
  k.outputs().run().save_input(1).save_input(2).backward();
  if (op.op.attributes.in_place)
    k.run().pass(0);
  else
    k.gradient(0).run();
  return k.other_flops(product(op, 3, n), product(op, 3, n)).finish();
}

}  // namespace

RuleTable cuda_rules() {
  RuleTable rules = ideal_rules();
  set_torch_rules(rules, Torch::cuda);
  rule(rules, OpKind::embedding) = embedding;
  rule(rules, OpKind::linear) = linear;
  rule(rules, OpKind::addmm) = addmm;
  rule(rules, OpKind::bmm) = bmm;
  rule(rules, OpKind::attention) = attention;
  rule(rules, OpKind::rms_norm) = rms_norm;
  rule(rules, OpKind::rotary) = rotary;
  rule(rules, OpKind::nll_loss) = nll_loss;
  rule(rules, OpKind::cross_entropy) = cross_entropy;
  rule(rules, OpKind::linear_cross_entropy) = linear_cross_entropy;
  rule(rules, OpKind::mse_loss) = mse_loss;
  return rules;
}

void set_torch_1_10_rules(RuleTable& rules) {
  rule(rules, OpKind::softmax) = softmax_keeping_both;
  rule(rules, OpKind::log_softmax) = softmax_keeping_both;
  rule(rules, OpKind::cross_entropy) = [](const OpView& op) { return chained_cross_entropy(op, true); };
}

}  // namespace tidemark::kernels
