/// PyTorch on a CPU, 1.13.1 and 2.6.0: every allocation and free of each op, as an allocator hook saw them.
///
/// What the two versions share stands first. They differ in the order a node lets its saved tensors go: 1.13 by the
/// formula, 2.x by name (E12).
#include "draft.hpp"

namespace tidemark::kernels {
namespace {

/// A Python number in arithmetic: an 8-byte double, and a 4-byte copy for the call (E11).
constexpr std::int64_t wrapped = 8, cast_number = 4;

enum class Version : std::uint8_t { v1_13, v2_6 };

/// A product's backward copies a gradient of stride 0 for each of its two products.
Kernel copying(Kernel kernel) {
  kernel.gradient_copy = GradientCopy::per_product;
  return kernel;
}

/// A loop over rows reads its gradient row by row.
Kernel copying_whole(Kernel kernel) {
  kernel.gradient_copy = GradientCopy::whole;
  return kernel;
}

/// x @ w: dW is made before dX (mat2 before self), each in its operand's order of dimensions.
template <Version version>
Kernel mm(const OpView& op, std::size_t x, std::size_t w, bool transposed) {
  const Tensor& weight = op.input(w);
  const std::int64_t flops =
      matmul_flops(op, rows(op.input(x)), weight.shape.at(transposed ? 0 : 1), weight.shape.at(transposed ? 1 : 0));
  const std::int64_t products = (op.needs_gradient(x) ? 1 : 0) + (op.needs_gradient(w) ? 1 : 0);
  Draft k(op);
  k.outputs().run();
  if constexpr (version == Version::v1_13)
    k.save_input_for(x, w).save_input_for(w, x);
  else
    k.save_input_for(w, x).save_input_for(x, w);
  k.backward().gradient(w, Layout::like_input).gradient(x, Layout::like_input).run();
  return copying(k.matmul_flops(flops, product(op, products, flops)).finish());
}

/// b + x @ w as one op: dX before dW, then the engine sums the bias's gradient.
template <Version version>
Kernel mm_with_bias(const OpView& op, std::size_t bias, std::size_t x, std::size_t w, bool transposed) {
  const Tensor& weight = op.input(w);
  const std::int64_t flops =
      matmul_flops(op, rows(op.input(x)), weight.shape.at(transposed ? 0 : 1), weight.shape.at(transposed ? 1 : 0));
  const std::int64_t products = (op.needs_gradient(x) ? 1 : 0) + (op.needs_gradient(w) ? 1 : 0);
  Draft k(op);
  k.outputs().run();
  if constexpr (version == Version::v1_13)
    k.save_input_for(w, x).save_input_for(x, w);
  else
    k.save_input_for(x, w).save_input_for(w, x);
  k.backward().gradient(x, Layout::like_input).gradient(w, Layout::like_input).run().gradient(bias);
  const std::int64_t additions = elements(op.output(0));
  return copying(k.matmul_flops(flops, product(op, products, flops)).other_flops(additions, additions).finish());
}

template <Version version>
Kernel matmul(const OpView& op) {
  return mm<version>(op, 0, 1, false);
}
template <Version version>
Kernel addmm(const OpView& op) {
  return mm_with_bias<version>(op, 0, 1, 2, false);
}
template <Version version>
Kernel linear(const OpView& op) {
  return op.inputs() > 2 ? mm_with_bias<version>(op, 2, 0, 1, true) : mm<version>(op, 0, 1, true);
}

template <Version version>
Kernel bmm(const OpView& op) {
  const std::int64_t flops = matmul_flops(op, rows(op.output(0)), last_extent(op.output(0)), last_extent(op.input(0)));
  const std::int64_t products = (op.needs_gradient(0) ? 1 : 0) + (op.needs_gradient(1) ? 1 : 0);
  Draft k(op);
  k.outputs().run();
  if constexpr (version == Version::v1_13)
    k.save_input_for(0, 1).save_input_for(1, 0);
  else
    k.save_input_for(1, 0).save_input_for(0, 1);
  k.backward().gradient(1).gradient(0).run();
  return k.matmul_flops(flops, product(op, products, flops)).finish();
}

/// x * 2.0 and x / 2.0: the number's double stays with the node.
Kernel scale(const OpView& op) {
  const std::int64_t n = elements(op.output(0));
  Draft k(op);
  const std::int32_t number = k.wrapped_number();
  const std::int32_t copy = k.temp("number_cast", cast_number);
  k.outputs().run().free_temp(copy).save_temp(number);
  k.backward();
  const std::int32_t copy_again = k.temp("number_cast", cast_number);
  k.gradient(0, Layout::like_gradient).run().free_temp(copy_again);
  return k.other_flops(n, n).finish();
}

/// The CPU's dropout multiplies by a float noise of full size, and keeps the noise; p = 0 does nothing at all.
Kernel dropout(const OpView& op) {
  const std::int64_t n = elements(op.output(0));
  Draft k(op);
  if (op.op.attributes.probability == 0) return k.backward().pass(0).finish();
  const std::int32_t noise = k.temp("noise", bytes(op.output(0)));
  const std::int32_t number = k.temp("number", wrapped);
  const std::int32_t copy = k.temp("number_cast", cast_number);
  k.free_temp(copy).free_temp(number).outputs().run().save_temp(noise);
  k.backward().gradient(0, Layout::like_gradient).run();
  return k.other_flops(product(op, 2, n), n).finish();
}

/// Forward: output, mean, 1/deviation. Backward: a buffer of two rows a thread dies inside.
template <Version version>
Kernel layer_norm(const OpView& op) {
  const std::int64_t n = elements(op.input(0));
  Draft k(op);
  k.outputs();
  const std::int32_t mean = k.temp("mean", bytes(op.input(0)) / last_extent(op.input(0)));
  const std::int32_t rstd = k.temp("rstd", bytes(op.input(0)) / last_extent(op.input(0)));
  k.run();
  const bool affine = op.inputs() > 2;
  if (affine && version == Version::v2_6) k.save_input(2);
  k.save_input(0);
  if (affine) k.save_input(1);
  if (affine && version == Version::v1_13) k.save_input(2);
  k.save_temp(mean).save_temp(rstd);
  k.backward().gradient(0).gradient(1).gradient(2);
  if (op.needs_gradient(1)) {
    const std::int32_t buffer = k.temp("buffer", 2 * bytes(op.input(1)));
    k.run().free_temp(buffer);
  } else {
    k.run();
  }
  return copying_whole(k.other_flops(product(op, 8, n), product(op, 14, n)).finish());
}

/// Loss, then the sum of weights, which the node keeps; of images (nll_loss2d, classes not last) the other way round.
Kernel nll_loss(const OpView& op) {
  Draft k(op);
  const bool of_images = rows(op.input(0)) != elements(op.input(1));
  if (!of_images) k.outputs();
  const std::int32_t total_weight = k.temp("total_weight", bytes_per_element(op.input(0).dtype));
  if (of_images) k.outputs();
  k.run().save_input(0).save_input(1).save_temp(total_weight);
  k.backward().gradient(0).run();
  return k.other_flops(rows(op.input(0)), rows(op.input(0))).finish();
}

/// The scalar is a resized tensor of full size, whose storage it keeps; the mean divides by a wrapped number.
Kernel mse_loss(const OpView& op) {
  const std::int64_t n = elements(op.input(0));
  Draft k(op);
  k.outputs();
  const std::int32_t squares = k.temp("squares", bytes(op.input(0)));
  const std::int32_t number = k.temp("number", wrapped);
  const std::int32_t copy = k.temp("number_cast", cast_number);
  k.run().free_temp(copy).free_temp(number).free_temp(squares).save_input(0).save_input(1);
  k.backward().gradient(0).gradient(1).run();
  Kernel kernel = k.other_flops(product(op, 3, n), product(op, 2, n)).finish();
  kernel.output_bytes = {Bytes{bytes(op.input(0))}};
  return kernel;
}

/// 1.13 keeps the table too (it is a parameter and lives anyway).
Kernel embedding(const OpView& op) {
  Draft k(op);
  k.outputs().run().save_input(0);
  k.backward().gradient(1).run();
  return copying_whole(k.other_flops(0, elements(op.output(0))).finish());
}

/// The CPU's flash kernel of 2.6: tiles of queries and keys in a buffer; backward two tiles and their row sums.
Kernel attention(const OpView& op) {
  const Tensor& q = op.input(0);
  const std::int64_t rows_of_q = q.shape.at(2), keys = op.input(1).shape.at(2), head_dim = last_extent(q);
  const std::int64_t full = matmul_flops(op, rows(q), keys, head_dim);
  const std::int64_t query_tile = rows_of_q >= 768 ? 256 : rows_of_q >= 192 ? 64 : 32;
  const std::int64_t key_tile = std::min<std::int64_t>(keys, 512);
  constexpr std::int64_t fp32 = 4;
  Draft k(op);
  k.outputs();
  const std::int32_t logsumexp = k.temp("logsumexp", fp32 * rows(q));
  const std::int32_t buffer = k.temp("tiles", fp32 * (query_tile * key_tile + 2 * query_tile + query_tile * head_dim));
  k.run().free_temp(buffer);
  k.save_input(1).save_input(0).save_input(2).save_temp(logsumexp).save_output(0);
  k.backward().gradient(0, Layout::token_major).gradient(1, Layout::token_major).gradient(2, Layout::token_major);
  const std::int32_t tiles = k.temp("tiles", fp32 * 2 * query_tile * key_tile);
  const std::int32_t sums = k.temp("row_sums", fp32 * query_tile);
  k.run().free_temp(sums).free_temp(tiles);
  return k.matmul_flops(product(op, 2, full), product(op, 5, full)).finish();
}

template <Version version>
RuleTable rules_of() {
  RuleTable rules = ideal_rules();
  set_torch_rules(rules, version == Version::v1_13 ? Torch::cpu_1_13 : Torch::cpu_2_6);
  rule(rules, OpKind::embedding) = embedding;
  rule(rules, OpKind::linear) = linear<version>;
  rule(rules, OpKind::matmul) = matmul<version>;
  rule(rules, OpKind::addmm) = addmm<version>;
  rule(rules, OpKind::bmm) = bmm<version>;
  rule(rules, OpKind::scale) = scale;
  rule(rules, OpKind::dropout) = dropout;
  rule(rules, OpKind::layer_norm) = layer_norm<version>;
  rule(rules, OpKind::nll_loss) = nll_loss;
  rule(rules, OpKind::mse_loss) = mse_loss;
  rule(rules, OpKind::attention) = attention;
  return rules;
}

}  // namespace

RuleTable cpu_1_13_rules() { return rules_of<Version::v1_13>(); }
RuleTable cpu_2_6_rules() { return rules_of<Version::v2_6>(); }

}  // namespace tidemark::kernels
