#include "decoder.hpp"

namespace tidemark {
namespace {

/// LlamaRMSNorm (transformers/models/llama/modeling_llama.py): fp32 inside, the weight multiplied outside; Gemma's
/// multiplies by 1 + weight in fp32 (modeling_gemma.py).
TensorId huggingface_rms_norm(Decoder& d, const std::string& part, TensorId x, TensorId weight) {
  const bool gemma = d.spec.model_type == "gemma";
  const DType in = d.tensor(x).dtype;
  const TensorId wide = d.cast(part + ".float", x, DType::float32);
  const TensorId square = d.pointwise(OpKind::pow, part + ".pow", {wide});
  Shape row = d.tensor(square).shape;
  row.back() = 1;
  const TensorId variance = d.program.op(OpKind::mean, d.name(part + ".mean"), {square}, row, DType::float32);
  const TensorId shifted = d.pointwise(OpKind::add_scalar, part + ".epsilon", {variance});
  const TensorId inverse = d.pointwise(OpKind::rsqrt, part + ".rsqrt", {shifted});
  const TensorId normed = d.pointwise(OpKind::mul, part + ".normalize", {wide, inverse});
  d.ends_scope(variance);
  if (!gemma) return d.pointwise(OpKind::mul, part + ".scale", {d.cast(part + ".half", normed, in), weight});
  const TensorId gain =
      d.pointwise(OpKind::add_scalar, part + ".gain", {d.cast(part + ".weight_float", weight, DType::float32)});
  const TensorId scaled = d.pointwise(OpKind::mul, part + ".scale", {normed, gain});
  return d.cast(part + ".half", scaled, in);
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
  if (d.is(ModelCode::huggingface)) return huggingface_rms_norm(d, path, x, weight);
  return d.pointwise(OpKind::rms_norm, part, {x, weight});
}

}  // namespace tidemark
