#include "decoder.hpp"

namespace tidemark {
namespace {

struct Inverse {
  TensorId wide = no_tensor;      // the row in fp32
  TensorId variance = no_tensor;  // a variable of the norm
  TensorId root = no_tensor;
};

/// 1 / sqrt(mean(x^2) + epsilon) in fp32, operator by operator.
Inverse inverse_root(Decoder& d, const std::string& part, TensorId x) {
  const TensorId wide = d.cast(part + ".float", x, DType::float32);
  const TensorId square = d.pointwise(OpKind::pow, part + ".pow", {wide});
  Shape row = d.tensor(square).shape;
  row.back() = 1;
  const TensorId variance = d.program.op(OpKind::mean, d.name(part + ".mean"), {square}, row, DType::float32);
  const TensorId shifted = d.pointwise(OpKind::add_scalar, part + ".epsilon", {variance});
  return {wide, variance, d.pointwise(OpKind::rsqrt, part + ".rsqrt", {shifted})};
}

/// x / sqrt(mean(x^2) + epsilon) in fp32.
TensorId normalized(Decoder& d, const std::string& part, TensorId x) {
  const Inverse inverse = inverse_root(d, part, x);
  const TensorId normed = d.pointwise(OpKind::mul, part + ".normalize", {inverse.wide, inverse.root});
  if (d.is(ModelCode::huggingface)) d.ends_scope(inverse.variance);
  return normed;
}

/// LlamaRMSNorm (transformers, modeling_llama.py): the weight is multiplied after the cast back.
TensorId llama_rms_norm(Decoder& d, const std::string& part, TensorId x, TensorId weight) {
  const DType in = d.tensor(x).dtype;
  const TensorId normed = normalized(d, part, x);
  return d.pointwise(OpKind::mul, part + ".scale", {d.cast(part + ".half", normed, in), weight});
}

/// T5LayerNorm, and LlamaRMSNorm up to 4.29: the row itself, not its fp32 copy, times the inverse; then the weight
/// times that.
TensorId t5_rms_norm(Decoder& d, const std::string& part, TensorId x, TensorId weight) {
  const DType in = d.tensor(x).dtype;
  const Inverse inverse = inverse_root(d, part, x);
  const TensorId normed = d.pointwise(OpKind::mul, part + ".normalize", {x, inverse.root});
  const TensorId half = d.cast(part + ".half", normed, in);
  Shape shape = d.tensor(x).shape, strides = d.tensor(half).strides;
  const TensorId out = d.program.op_strided(OpKind::mul, d.name(part + ".scale"), {weight, half}, std::move(shape),
                                            std::move(strides), d.tensor(weight).dtype);
  d.ends_scope(inverse.variance);
  return out;
}

/// GemmaRMSNorm (modeling_gemma.py): times 1 + weight, in fp32.
TensorId gemma_rms_norm(Decoder& d, const std::string& part, TensorId x, TensorId weight) {
  const DType in = d.tensor(x).dtype;
  const TensorId normed = normalized(d, part, x);
  const TensorId wide_weight = d.cast(part + ".weight_float", weight, DType::float32);
  const TensorId gain = d.pointwise(OpKind::add_scalar, part + ".gain", {wide_weight});
  return d.cast(part + ".half", d.pointwise(OpKind::mul, part + ".scale", {normed, gain}), in);
}

/// F.rms_norm of PyTorch 2.6 (ATen/native/layer_norm.cpp): the same operators, the weight before the cast back.
TensorId aten_rms_norm(Decoder& d, const std::string& part, TensorId x, TensorId weight) {
  const DType in = d.tensor(x).dtype;
  const TensorId normed = normalized(d, part, x);
  return d.cast(part + ".half", d.pointwise(OpKind::mul, part + ".scale", {normed, weight}), in);
}

}  // namespace

TensorId norm(Decoder& d, std::string_view part, TensorId x) {
  const std::string path(part);
  const std::int64_t width = d.tensor(x).shape.back();
  const TensorId weight = d.weight(path + ".weight", {width});
  if (!d.spec.rms_norm) {
    const TensorId bias = d.weight(path + ".bias", {width});
    return d.pointwise(OpKind::layer_norm, part, {x, weight, bias});
  }
  if (d.fuses("norm")) return d.pointwise(OpKind::rms_norm, part, {x, weight}, {.implementation = "over_gradient"});
  if (d.is(ModelCode::torchtitan)) return aten_rms_norm(d, path, x, weight);
  if (d.is(ModelCode::huggingface) && (d.habits.gain_first || d.is_early_llama()))
    return t5_rms_norm(d, path, x, weight);
  if (d.is(ModelCode::huggingface))
    return d.habits.gain_from_one ? gemma_rms_norm(d, path, x, weight) : llama_rms_norm(d, path, x, weight);
  return d.pointwise(OpKind::rms_norm, part, {x, weight});
}

}  // namespace tidemark
