/// The least any implementation can do: outputs, what the mathematics of backward needs, gradients. No temporaries.
///
/// FLOPs besides products count each elementary operation of an element once, a transcendental function too.
#include <algorithm>

#include "draft.hpp"

namespace tidemark::kernels {
namespace {

constexpr std::int64_t fp32 = 4;

/// Rows of ids pick rows of the weight; the gradient is as large as the whole table.
Kernel embedding(const OpView& op) {
  Draft k(op);
  k.outputs().run().save_input(0);
  k.backward().gradient(1).run();
  return k.other_flops(0, elements(op.output(0))).finish();
}

/// x @ w (or x @ wT), plus a bias: dW = xT g, dX = g wT, db = sum of g over rows.
Kernel product_with_weight(const OpView& op, std::size_t x, std::size_t w, std::size_t bias, bool transposed) {
  const Tensor& weight = op.input(w);
  const std::int64_t k_extent = weight.shape.at(transposed ? 1 : 0);
  const std::int64_t n = weight.shape.at(transposed ? 0 : 1);
  const std::int64_t m = rows(op.input(x));
  const std::int64_t flops = matmul_flops(op, m, n, k_extent);
  const std::int64_t products = (op.needs_gradient(x) ? 1 : 0) + (op.needs_gradient(w) ? 1 : 0);
  const bool has_bias = bias < op.inputs();
  Draft k(op);
  k.outputs().run().save_input_for(x, w).save_input_for(w, x);
  k.backward().gradient(w).gradient(x);
  if (has_bias) k.gradient(bias);
  k.run();
  const std::int64_t additions = has_bias ? elements(op.output(0)) : 0;
  return k.matmul_flops(flops, product(op, products, flops)).other_flops(additions, additions).finish();
}

Kernel linear(const OpView& op) { return product_with_weight(op, 0, 1, 2, true); }
Kernel matmul(const OpView& op) { return product_with_weight(op, 0, 1, 9, false); }
Kernel addmm(const OpView& op) { return product_with_weight(op, 1, 2, 0, false); }

/// The rows of all groups together make each product as large as one weight would.
Kernel grouped_linear(const OpView& op) {
  const Tensor& weight = op.input(1);
  const std::int64_t flops = matmul_flops(op, rows(op.input(0)), weight.shape.at(1), weight.shape.at(2));
  const std::int64_t products = (op.needs_gradient(0) ? 1 : 0) + (op.needs_gradient(1) ? 1 : 0);
  Draft k(op);
  k.outputs().run().save_input_for(0, 1).save_input_for(1, 0);
  k.backward().gradient(1).gradient(0).run();
  return k.matmul_flops(flops, product(op, products, flops)).finish();
}

/// a @ b, one product a batch entry.
Kernel bmm(const OpView& op) {
  const std::int64_t batch_and_rows = rows(op.output(0));
  const std::int64_t flops = matmul_flops(op, batch_and_rows, last_extent(op.output(0)), last_extent(op.input(0)));
  const std::int64_t products = (op.needs_gradient(0) ? 1 : 0) + (op.needs_gradient(1) ? 1 : 0);
  Draft k(op);
  k.outputs().run().save_input_for(1, 0).save_input_for(0, 1);
  k.backward().gradient(1).gradient(0).run();
  return k.matmul_flops(flops, product(op, products, flops)).finish();
}

/// The same gradient goes to both; a broadcast operand gets it summed.
Kernel add(const OpView& op) {
  const std::int64_t n = elements(op.output(0));
  Draft k(op);
  k.outputs().run().backward();
  std::int64_t reductions = 0;
  for (std::size_t i = 0; i < op.inputs(); ++i) {
    if (!op.needs_gradient(i)) continue;
    if (op.input(i).shape == op.output(0).shape) {  // one dimension fewer is summed too, be it of extent 1
      k.pass(i);
    } else {
      k.gradient(i);
      ++reductions;
    }
  }
  if (reductions > 0) k.run();
  return k.other_flops(n, reductions * n).finish();
}

Kernel mul(const OpView& op) {
  const std::int64_t n = elements(op.output(0));
  const std::int64_t gradients = (op.needs_gradient(0) ? 1 : 0) + (op.needs_gradient(1) ? 1 : 0);
  Draft k(op);
  k.outputs().run().save_input_for(0, 1).save_input_for(1, 0);
  k.backward().gradient(1).gradient(0).run();
  return k.other_flops(n, gradients * n).finish();
}

/// An elementwise op, or a reduction over rows; a fused bias (input 1) is kept beside the input.
Kernel elementwise(const OpView& op, Keeps keeps, std::int64_t forward_ops, std::int64_t backward_ops,
                   Layout layout = Layout::like_input) {
  const std::int64_t n = elements(op.input(0));
  const bool has_bias = op.inputs() > 1;
  Draft k(op);
  k.outputs().run();
  if (keeps == Keeps::input) k.save_input(0);
  if (keeps == Keeps::input && has_bias) k.save_input(1);
  if (keeps == Keeps::output) k.save_output(0);
  k.backward().gradient(0, layout);
  if (has_bias) k.gradient(1);
  k.run();
  const std::int64_t bias_ops = has_bias ? 1 : 0;
  return k.other_flops(product(op, forward_ops + bias_ops, n), product(op, backward_ops + bias_ops, n)).finish();
}

Kernel scale(const OpView& op) { return elementwise(op, Keeps::nothing, 1, 1); }
Kernel pow(const OpView& op) { return elementwise(op, Keeps::input, 1, 3); }
Kernel mean(const OpView& op) { return elementwise(op, Keeps::nothing, 1, 1); }
Kernel rsqrt(const OpView& op) { return elementwise(op, Keeps::output, 2, 3); }
Kernel relu(const OpView& op) { return elementwise(op, Keeps::output, 1, 1); }
Kernel tanh(const OpView& op) { return elementwise(op, Keeps::output, 1, 3, Layout::like_gradient); }
/// x / 2 * (1 + erf(x / sqrt 2))
Kernel gelu(const OpView& op) { return elementwise(op, Keeps::input, 5, 9, Layout::like_gradient); }
/// x / (1 + exp(-x))
Kernel silu(const OpView& op) { return elementwise(op, Keeps::input, 5, 8, Layout::like_gradient); }
Kernel softmax(const OpView& op) { return elementwise(op, Keeps::output, 5, 4); }  // max, -, exp, sum, /
Kernel log_softmax(const OpView& op) { return elementwise(op, Keeps::output, 6, 4); }
Kernel cast(const OpView& op) { return elementwise(op, Keeps::nothing, 0, 0); }
Kernel negated(const OpView& op) { return elementwise(op, Keeps::nothing, 1, 1); }
Kernel by_input(const OpView& op) { return elementwise(op, Keeps::input, 1, 2); }
Kernel by_output(const OpView& op) { return elementwise(op, Keeps::output, 1, 2); }
Kernel triangle(const OpView& op) { return elementwise(op, Keeps::nothing, 0, 0); }

/// The incoming gradient for x, its negative for y; summed where one is broadcast.
Kernel sub(const OpView& op) {
  const std::int64_t n = elements(op.output(0));
  Draft k(op);
  k.outputs().run().backward();
  if (elements(op.input(0)) != n) k.gradient(0);
  k.gradient(1).run();
  if (elements(op.input(0)) == n) k.pass(0);
  return k.other_flops(n, n).finish();
}

Kernel div(const OpView& op) {
  const std::int64_t n = elements(op.output(0));
  Draft k(op);
  k.outputs().run().save_input(1).save_input_for(0, 1).backward().gradient(1).gradient(0).run();
  return k.other_flops(n, product(op, 4, n)).finish();
}

Kernel where(const OpView& op) {
  const std::int64_t n = elements(op.output(0));
  Draft k(op);
  k.outputs().run().save_input(0).backward().gradient(2).gradient(1).run();
  return k.other_flops(n, n).finish();
}

/// Picks elements, or adds at their places: the indices are kept.
Kernel index(const OpView& op) {
  Draft k(op);
  k.outputs().run();
  for (std::size_t i = 1; i < op.inputs(); ++i) k.save_input(i);
  return k.backward().gradient(0).run().other_flops(0, elements(op.output(0))).finish();
}
Kernel index_add(const OpView& op) {
  Draft k(op);
  k.outputs().run().save_input(1).backward().gradient(2).run().pass(0);
  return k.other_flops(elements(op.input(2)), 0).finish();
}

/// Values and where they stood; only the places are kept.
Kernel with_places(const OpView& op) {
  Draft k(op);
  k.outputs().run().save_output(1).backward().gradient(0).run();
  return k.other_flops(elements(op.input(0)), elements(op.output(0))).finish();
}
Kernel avg_pool(const OpView& op) {
  Draft k(op);
  k.outputs().run().backward().gradient(0).run();
  return k.other_flops(elements(op.input(0)), elements(op.input(0))).finish();
}

/// x, and a mean and 1/deviation in fp32 for each of `statistics`.
Kernel norm_of(const OpView& op, std::int64_t statistics) {
  const std::int64_t n = elements(op.input(0));
  Draft k(op);
  k.outputs();
  const std::int32_t mean = k.temp("mean", fp32 * statistics);
  const std::int32_t rstd = k.temp("rstd", fp32 * statistics);
  k.run().save_input(0).save_input_for(1, 0).save_temp(mean).save_temp(rstd);
  k.backward().gradient(0).gradient(1).gradient(2).run();
  return k.other_flops(product(op, 8, n), product(op, 14, n)).finish();
}
Kernel group_norm(const OpView& op) { return norm_of(op, op.input(0).shape.at(0) * op.op.attributes.heads); }
Kernel batch_norm(const OpView& op) { return norm_of(op, op.input(0).shape.at(1)); }

/// No gradient flows.
Kernel made_anew(const OpView& op) {
  Draft k(op);
  return k.outputs().run().other_flops(elements(op.output(0)), 0).finish();
}
Kernel repeat_heads(const OpView& op) {
  Draft k(op);
  k.outputs().run().backward().gradient(0).run();
  return k.other_flops(0, elements(op.output(0))).finish();
}

Kernel add_scalar(const OpView& op) {
  Draft k(op);
  k.outputs().run().backward().pass(0);
  return k.other_flops(elements(op.output(0)), 0).finish();
}

/// silu(gate) * up. One input holds both halves when a single projection made them.
Kernel swiglu(const OpView& op) {
  const std::int64_t n = elements(op.output(0));
  Draft k(op);
  k.outputs().run();
  for (std::size_t i = 0; i < op.inputs(); ++i) k.save_input(i);
  k.backward();
  for (std::size_t i = 0; i < op.inputs(); ++i) k.gradient(i);
  k.run();
  return k.other_flops(product(op, 6, n), product(op, 10, n)).finish();
}

/// Input and, per row, mean and 1/deviation in fp32.
Kernel layer_norm(const OpView& op) {
  const std::int64_t n = elements(op.input(0));
  Draft k(op);
  k.outputs();
  const std::int32_t mean = k.temp("mean", fp32 * rows(op.input(0)));
  const std::int32_t rstd = k.temp("rstd", fp32 * rows(op.input(0)));
  k.run().save_input(0);
  if (op.inputs() > 1) k.save_input_for(1, 0);
  k.save_temp(mean).save_temp(rstd);
  k.backward().gradient(0).gradient(1).gradient(2).run();
  return k.other_flops(product(op, 8, n), product(op, 14, n)).finish();
}

/// Input and, per row, 1/root-mean-square in fp32.
Kernel rms_norm(const OpView& op) {
  const std::int64_t n = elements(op.input(0));
  Draft k(op);
  k.outputs();
  const std::int32_t rstd = k.temp("rstd", fp32 * rows(op.input(0)));
  k.run().save_input(0).save_input_for(1, 0).save_temp(rstd);
  k.backward().gradient(0).gradient(1).run();
  return k.other_flops(product(op, 4, n), product(op, 9, n)).finish();
}

Kernel masked_fill(const OpView& op) {
  Draft k(op);
  k.outputs().run().save_input(1);
  k.backward().gradient(0).run();
  return k.other_flops(elements(op.output(0)), elements(op.output(0))).finish();
}

/// A mask of one byte an element.
Kernel dropout(const OpView& op) {
  const std::int64_t n = elements(op.output(0));
  Draft k(op);
  k.outputs();
  const std::int32_t mask = k.temp("mask", n);
  k.run().save_temp(mask);
  k.backward().gradient(0).run();
  return k.other_flops(product(op, 2, n), product(op, 2, n)).finish();
}

/// residual + dropout(x + bias), the bias being optional: only the mask is kept, and the residual's gradient is the
/// incoming one.
Kernel bias_dropout_add(const OpView& op) {
  const std::int64_t n = elements(op.output(0));
  const std::size_t residual = op.inputs() - 1;
  const bool drops = op.op.attributes.probability > 0;
  Draft k(op);
  k.outputs();
  if (drops) k.save_temp(k.temp("mask", n));
  k.run().backward();
  if (drops)
    k.gradient(0);
  else
    k.pass(0);
  if (residual == 2) k.gradient(1);
  k.run().pass(residual);
  return k.other_flops(product(op, drops ? 4 : 2, n), product(op, drops ? 3 : 1, n)).finish();
}

/// The tables are inputs; the rotation's backward is the rotation the other way.
Kernel rotary(const OpView& op) {
  const std::int64_t n = elements(op.output(0));
  Draft k(op);
  k.outputs().run().save_input(1).save_input(2);
  k.backward().gradient(0).run();
  return k.other_flops(product(op, 3, n), product(op, 3, n)).finish();
}

/// Dao et al. 2022: keeps q, k, v, the output and one fp32 logsumexp a row instead of the scores.
Kernel attention(const OpView& op) {
  const AttentionFlops flops = attention_flops(op);
  Draft k(op);
  k.outputs();
  const std::int32_t logsumexp = k.temp("logsumexp", fp32 * rows(op.input(0)));
  k.run().save_input(0).save_input(1).save_input(2).save_temp(logsumexp).save_output(0);
  k.backward().gradient(0).gradient(1).gradient(2).run();
  return k.matmul_flops(flops.forward, flops.backward).finish();
}

/// An alias. The gradient of a part (fewer elements) is a full-size tensor that is zero elsewhere.
Kernel view(const OpView& op) {
  Draft k(op);
  k.backward();
  const Layout layout = op.op.attributes.dims.empty() ? Layout::reshape : Layout::transpose;
  if (elements(op.output(0)) == elements(op.input(0))) return k.pass(0, layout).finish();
  return k.gradient(0).run().finish();
}

Kernel contiguous(const OpView& op) {
  Draft k(op);
  k.outputs().run().backward().pass(0);
  return k.finish();
}

/// Aliases; the parts' gradients are put together again.
Kernel split(const OpView& op) {
  Draft k(op);
  return k.backward().gradient(0).run().finish();
}

/// Each input's gradient is a view of the incoming one.
Kernel cat(const OpView& op) {
  Draft k(op);
  k.outputs().run().backward();
  for (std::size_t i = 0; i < op.inputs(); ++i) k.pass(i, Layout::part);
  return k.finish();
}

/// Keeps the log-probabilities and the targets.
Kernel nll_loss(const OpView& op) {
  Draft k(op);
  k.outputs();
  k.run().save_input(0).save_input(1);
  k.backward().gradient(0).run();
  return k.other_flops(rows(op.input(0)), rows(op.input(0))).finish();
}

/// As one kernel: logits and one fp32 logsumexp a row.
Kernel cross_entropy(const OpView& op) {
  const std::int64_t n = elements(op.input(0));
  Draft k(op);
  k.outputs();
  const std::int32_t logsumexp = k.temp("logsumexp", fp32 * rows(op.input(0)));
  k.run().save_input(0).save_input(1).save_temp(logsumexp);
  k.backward().gradient(0).run();
  return k.other_flops(product(op, 5, n), product(op, 3, n)).finish();
}

/// Head and loss as one kernel (Wijmans et al. 2024, cut cross-entropy): logits exist tile by tile; backward makes them
/// again.
Kernel linear_cross_entropy(const OpView& op) {
  const Tensor& weight = op.input(1);
  const std::int64_t m = rows(op.input(0));
  const std::int64_t flops = matmul_flops(op, m, weight.shape.at(0), weight.shape.at(1));
  const std::int64_t products = 1 + (op.needs_gradient(0) ? 1 : 0) + (op.needs_gradient(1) ? 1 : 0);
  const std::int64_t logits = product(op, m, weight.shape.at(0));
  Draft k(op);
  k.outputs();
  const std::int32_t logsumexp = k.temp("logsumexp", product(op, fp32, m));
  k.run().save_input(0).save_input(1).save_input(2).save_temp(logsumexp);
  k.backward().gradient(0).gradient(1).run();
  return k.matmul_flops(flops, product(op, products, flops))
      .other_flops(product(op, 5, logits), product(op, 3, logits))
      .finish();
}

Kernel mse_loss(const OpView& op) {
  const std::int64_t n = elements(op.input(0));
  Draft k(op);
  k.outputs().run().save_input(0).save_input(1);
  k.backward().gradient(0).gradient(1).run();
  return k.other_flops(product(op, 3, n), product(op, 2, n)).finish();
}

/// The gradient is the incoming scalar seen as a tensor of stride 0.
Kernel sum(const OpView& op) {
  Draft k(op);
  k.outputs().run().backward().pass(0, Layout::expand);
  return k.other_flops(elements(op.input(0)), 0).finish();
}

/// The lines of a custom op's script; without any, outputs, then what is given, then gradients.
void follow(Draft& k, const std::vector<ScriptLine>& script, std::vector<std::int32_t>& temps) {
  for (const ScriptLine& line : script) {
    const auto i = static_cast<std::size_t>(line.index);
    if (line.of == ScriptLine::Of::output) {
      k.output(i);
    } else if (line.of == ScriptLine::Of::gradient) {
      k.gradient(i);
    } else if (line.alloc) {
      temps.resize(std::max(temps.size(), i + 1), -1);
      temps[i] = k.temp("temporary", line.bytes.count);
    } else {
      k.free_temp(temps.at(i));
    }
  }
}

/// Sizes as the scenario gives them.
Kernel custom(const OpView& op) {
  const Attributes& given = op.op.attributes;
  Draft k(op);
  std::vector<std::int32_t> temps;
  if (given.forward_script.empty()) k.outputs();
  follow(k, given.forward_script, temps);
  for (const std::int32_t i : given.saved_inputs) k.save_input(static_cast<std::size_t>(i));
  for (const std::int32_t i : given.saved_outputs) k.save_output(static_cast<std::size_t>(i));
  if (given.saved.count > 0) k.save_temp(k.temp("saved", given.saved.count));
  if (given.forward_temporary.count > 0) k.temp("temporary", given.forward_temporary.count);
  k.run().backward();
  temps.clear();
  if (given.backward_script.empty())
    for (std::size_t i = 0; i < op.inputs(); ++i) k.gradient(i);
  follow(k, given.backward_script, temps);
  if (given.backward_temporary.count > 0) k.temp("temporary", given.backward_temporary.count);
  k.run();
  return k.matmul_flops(fits(op, given.forward_flops), fits(op, given.backward_flops)).finish();
}

}  // namespace

RuleTable ideal_rules() {
  RuleTable rules{};
  const std::pair<OpKind, KernelRule> rows_of_table[] = {
      {OpKind::embedding, embedding},
      {OpKind::linear, linear},
      {OpKind::matmul, matmul},
      {OpKind::addmm, addmm},
      {OpKind::bmm, bmm},
      {OpKind::grouped_linear, grouped_linear},
      {OpKind::add, add},
      {OpKind::mul, mul},
      {OpKind::scale, scale},
      {OpKind::add_scalar, add_scalar},
      {OpKind::pow, pow},
      {OpKind::mean, mean},
      {OpKind::rsqrt, rsqrt},
      {OpKind::relu, relu},
      {OpKind::gelu, gelu},
      {OpKind::silu, silu},
      {OpKind::tanh, tanh},
      {OpKind::swiglu, swiglu},
      {OpKind::layer_norm, layer_norm},
      {OpKind::rms_norm, rms_norm},
      {OpKind::softmax, softmax},
      {OpKind::masked_fill, masked_fill},
      {OpKind::dropout, dropout},
      {OpKind::bias_dropout_add, bias_dropout_add},
      {OpKind::rotary, rotary},
      {OpKind::attention, attention},
      {OpKind::repeat_heads, repeat_heads},
      {OpKind::cast, cast},
      {OpKind::view, view},
      {OpKind::contiguous, contiguous},
      {OpKind::split, split},
      {OpKind::cat, cat},
      {OpKind::log_softmax, log_softmax},
      {OpKind::nll_loss, nll_loss},
      {OpKind::cross_entropy, cross_entropy},
      {OpKind::linear_cross_entropy, linear_cross_entropy},
      {OpKind::mse_loss, mse_loss},
      {OpKind::sum, sum},
      {OpKind::sub, sub},
      {OpKind::sub_from, negated},
      {OpKind::div, div},
      {OpKind::where, where},
      {OpKind::neg, negated},
      {OpKind::abs, by_input},
      {OpKind::exp, by_output},
      {OpKind::log, by_input},
      {OpKind::sqrt, by_output},
      {OpKind::sin, by_input},
      {OpKind::cos, by_input},
      {OpKind::erf, by_input},
      {OpKind::reciprocal, by_output},
      {OpKind::sigmoid, by_output},
      {OpKind::leaky_relu, by_input},
      {OpKind::elu, by_input},
      {OpKind::softplus, by_input},
      {OpKind::hardtanh, by_input},
      {OpKind::hardswish, by_input},
      {OpKind::clamp, by_input},
      {OpKind::triangle, triangle},
      {OpKind::group_norm, group_norm},
      {OpKind::batch_norm, batch_norm},
      {OpKind::max_pool, with_places},
      {OpKind::avg_pool, avg_pool},
      {OpKind::stack, cat},
      {OpKind::index, index},
      {OpKind::gather, index},
      {OpKind::index_add, index_add},
      {OpKind::top_k, with_places},
      {OpKind::bce_loss, mse_loss},
      {OpKind::compare, made_anew},
      {OpKind::fill, made_anew},
      {OpKind::collective, collective},
      {OpKind::custom, custom},
  };
  for (const auto& [kind, function] : rows_of_table) rule(rules, kind) = function;
  return rules;
}

}  // namespace tidemark::kernels
