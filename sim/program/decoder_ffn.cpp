#include <array>
#include <utility>

#include "decoder.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

/// One feed-forward part: what its ops' names begin with, and the width inside.
struct Part {
  std::string name;
  std::int64_t width = 0;
  std::string of(const char* op) const { return name + "." + op; }
};

/// NewGELUActivation (transformers/activations.py), operator by operator:
/// 0.5 * x * (1.0 + tanh(sqrt(2 / pi) * (x + 0.044715 * pow(x, 3.0))))
TensorId new_gelu(Decoder& d, const std::string& name, TensorId x) {
  const auto part = [&](const char* op) { return name + "." + op; };
  const TensorId half = d.pointwise(OpKind::scale, part("half"), {x});
  const TensorId cube = d.pointwise(OpKind::pow, part("pow"), {x});
  const TensorId scaled = d.pointwise(OpKind::scale, part("cubic"), {cube});
  const TensorId inner = d.pointwise(OpKind::add, part("add"), {x, scaled});
  const TensorId argument = d.pointwise(OpKind::scale, part("argument"), {inner});
  const TensorId tanh = d.pointwise(OpKind::tanh, part("tanh"), {argument});
  const TensorId shifted = d.pointwise(OpKind::add_scalar, part("one_plus"), {tanh});
  return d.pointwise(OpKind::mul, part("mul"), {half, shifted});
}

TensorId activation(Decoder& d, const Part& part, std::vector<TensorId> inputs) {
  if (d.spec.activation == "gelu_new" && d.is(ModelCode::huggingface)) {
    const TensorId out = new_gelu(d, part.of("activation"), inputs[0]);
    d.ends_scope(inputs[0]);
    return out;
  }
  return d.pointwise(activation_kind(d.spec.activation), part.of("activation"), std::move(inputs));
}

/// Megatron's fc1 makes gate and up in one tensor; bias_swiglu reads it whole, other activations its halves.
TensorId megatron_gated(Decoder& d, const Part& part, TensorId x) {
  const TensorId both = d.linear(part.of("gate_up_proj"), x, 2 * part.width, d.spec.ffn_bias, Split::column);
  Shape half = d.tensor(both).shape;
  half.back() = part.width;
  if (activation_kind(d.spec.activation) == OpKind::silu)
    return d.program.op(OpKind::swiglu, d.name(part.of("swiglu")), {both}, half, d.compute);
  const std::vector<TensorId> parts =
      d.split_columns(part.of("chunk"), both, {{part.of("gate"), part.width}, {part.of("up"), part.width}});
  return d.pointwise(OpKind::mul, part.of("mul"), {activation(d, part, {parts[0]}), parts[1]});
}

/// down(activation(gate(x)) * up(x)), in Python's order of evaluation. `named`: what has a name until it returns.
TensorId gated(Decoder& d, const Part& part, TensorId x, std::vector<TensorId>& named) {
  if (d.is(ModelCode::megatron)) return megatron_gated(d, part, x);
  const TensorId gate =
      activation(d, part, {d.linear(part.of("gate_proj"), x, part.width, d.spec.ffn_bias, Split::column)});
  const TensorId up = d.linear(part.of("up_proj"), x, part.width, d.spec.ffn_bias, Split::column);
  if (d.spec.both.decoder_layers > 0) named = {gate, up};  // T5DenseGatedActDense: hidden_gelu, hidden_linear
  return d.pointwise(OpKind::mul, part.of("mul"), {gate, up});
}

/// Megatron adds fc1's bias in the activation's kernel (bias_gelu), which keeps the sum's operands.
TensorId plain(Decoder& d, const Part& part, TensorId x) {
  const bool fused_bias = d.is(ModelCode::megatron) && d.spec.ffn_bias;
  if (!fused_bias)
    return activation(d, part, {d.linear(part.of("up_proj"), x, part.width, d.spec.ffn_bias, Split::column)});
  const TensorId weight = d.weight(part.of("up_proj.weight"), {part.width, d.spec.hidden});
  const TensorId bias = d.weight(part.of("up_proj.bias"), {part.width});
  return activation(d, part, {d.project(part.of("up_proj"), x, weight, no_tensor, part.width, Split::column), bias});
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

Branch feed_forward(Decoder& d, const std::string& name, TensorId x, std::int64_t width) {
  const Part part = {name, width};
  std::vector<TensorId> named;
  TensorId inner = d.spec.gated_ffn ? gated(d, part, x, named) : plain(d, part, x);
  if (d.habits.inner_dropout) inner = d.dropout(part.of("dropout"), inner, d.spec.residual_dropout);
  Branch branch;
  if (d.is(ModelCode::megatron)) {
    const TensorId weight = d.weight(part.of("down_proj.weight"), {d.spec.hidden, width});
    if (d.spec.ffn_bias) branch.bias = d.weight(part.of("down_proj.bias"), {d.spec.hidden});
    branch.out = d.project(part.of("down_proj"), inner, weight, no_tensor, d.spec.hidden, Split::row);
  } else {
    branch.out = d.linear(part.of("down_proj"), inner, d.spec.hidden, d.spec.ffn_bias, Split::row);
    if (!d.habits.inner_dropout) branch.out = d.dropout(part.of("dropout"), branch.out, d.spec.residual_dropout);
  }
  for (const TensorId local : named) d.ends_scope(local);
  d.ends_scope(x);
  return branch;
}

}  // namespace tidemark
