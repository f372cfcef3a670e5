#include <array>
#include <utility>

#include "decoder.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

/// NewGELUActivation (transformers/activations.py), operator by operator:
/// 0.5 * x * (1.0 + tanh(sqrt(2 / pi) * (x + 0.044715 * pow(x, 3.0))))
TensorId new_gelu(Decoder& d, TensorId x) {
  const auto part = [](const char* op) { return std::string("mlp.activation.") + op; };
  const TensorId half = d.pointwise(OpKind::scale, part("half"), {x});
  const TensorId cube = d.pointwise(OpKind::pow, part("pow"), {x});
  const TensorId scaled = d.pointwise(OpKind::scale, part("cubic"), {cube});
  const TensorId inner = d.pointwise(OpKind::add, part("add"), {x, scaled});
  const TensorId argument = d.pointwise(OpKind::scale, part("argument"), {inner});
  const TensorId tanh = d.pointwise(OpKind::tanh, part("tanh"), {argument});
  const TensorId shifted = d.pointwise(OpKind::add_scalar, part("one_plus"), {tanh});
  return d.pointwise(OpKind::mul, part("mul"), {half, shifted});
}

TensorId activation(Decoder& d, std::vector<TensorId> inputs) {
  if (d.spec.activation == "gelu_new" && d.is(ModelCode::huggingface)) {
    const TensorId out = new_gelu(d, inputs[0]);
    d.ends_scope(inputs[0]);
    return out;
  }
  return d.pointwise(activation_kind(d.spec.activation), "mlp.activation", std::move(inputs));
}

/// Megatron's fc1 makes gate and up in one tensor; bias_swiglu reads it whole, other activations its halves.
TensorId megatron_gated(Decoder& d, TensorId x) {
  const TensorId both = d.linear("mlp.gate_up_proj", x, 2 * d.spec.ffn_hidden, d.spec.ffn_bias);
  const Shape half = d.token_rows(d.spec.ffn_hidden);
  if (activation_kind(d.spec.activation) == OpKind::silu)
    return d.program.op(OpKind::swiglu, d.name("mlp.swiglu"), {both}, half, d.compute);
  const Shape strides = d.tensor(both).strides;
  const std::vector<TensorId> parts = d.program.split(
      d.name("mlp.chunk"), both, {{d.name("mlp.gate"), half, strides}, {d.name("mlp.up"), half, strides}});
  return d.pointwise(OpKind::mul, "mlp.mul", {activation(d, {parts[0]}), parts[1]});
}

/// down(activation(gate(x)) * up(x)), in Python's order of evaluation.
TensorId gated(Decoder& d, TensorId x) {
  if (d.is(ModelCode::megatron)) return megatron_gated(d, x);
  const TensorId gate = activation(d, {d.linear("mlp.gate_proj", x, d.spec.ffn_hidden, d.spec.ffn_bias)});
  const TensorId up = d.linear("mlp.up_proj", x, d.spec.ffn_hidden, d.spec.ffn_bias);
  return d.pointwise(OpKind::mul, "mlp.mul", {gate, up});
}

/// Megatron adds fc1's bias in the activation's kernel (bias_gelu), which keeps the sum's operands.
TensorId plain(Decoder& d, TensorId x) {
  const bool fused_bias = d.is(ModelCode::megatron) && d.spec.ffn_bias;
  if (!fused_bias) return activation(d, {d.linear("mlp.up_proj", x, d.spec.ffn_hidden, d.spec.ffn_bias)});
  const TensorId weight = d.weight("mlp.up_proj.weight", {d.spec.ffn_hidden, d.spec.hidden});
  const TensorId bias = d.weight("mlp.up_proj.bias", {d.spec.ffn_hidden});
  return activation(d, {d.project("mlp.up_proj", x, weight, no_tensor, d.spec.ffn_hidden), bias});
}

}  // namespace

OpKind activation_kind(const std::string& name) {
  constexpr std::array<std::pair<std::string_view, OpKind>, 8> known = {{{"relu", OpKind::relu},
                                                                         {"gelu", OpKind::gelu},
                                                                         {"gelu_new", OpKind::gelu},
                                                                         {"gelu_fast", OpKind::gelu},
                                                                         {"gelu_pytorch_tanh", OpKind::gelu},
                                                                         {"silu", OpKind::silu},
                                                                         {"swish", OpKind::silu},
                                                                         {"tanh", OpKind::tanh}}};
  for (const auto& [spelling, kind] : known)
    if (spelling == name) return kind;
  throw InputError("transformer: unknown activation '" + name +
                   "'; known are relu, gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, silu, swish, tanh");
}

Branch feed_forward(Decoder& d, TensorId x) {
  const TensorId inner = d.spec.gated_ffn ? gated(d, x) : plain(d, x);
  Branch branch;
  if (d.is(ModelCode::megatron)) {
    const TensorId weight = d.weight("mlp.down_proj.weight", {d.spec.hidden, d.spec.ffn_hidden});
    if (d.spec.ffn_bias) branch.bias = d.weight("mlp.down_proj.bias", {d.spec.hidden});
    branch.out = d.project("mlp.down_proj", inner, weight, no_tensor, d.spec.hidden);
  } else {
    branch.out = d.linear("mlp.down_proj", inner, d.spec.hidden, d.spec.ffn_bias);
    branch.out = d.dropout("mlp.dropout", branch.out, d.spec.residual_dropout);
  }
  d.ends_scope(x);
  return branch;
}

}  // namespace tidemark
