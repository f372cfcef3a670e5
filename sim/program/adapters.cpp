/// What fine-tuning puts around a product: 4-bit weights (bitsandbytes, AutoGPTQ) and low-rank adapters (PEFT 0.13).
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "components.hpp"
#include "decoder.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

/// bitsandbytes scales blocks of 64 weights; with double quantization the scales are bytes in blocks of 256. AutoGPTQ
/// scales groups of 128 of a column, or whole columns.
constexpr std::int64_t nf4_block = 64, scale_block = 256, gptq_group = 128;

std::int64_t blocks(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

/// quantize_4bit (bitsandbytes/functional.py) and QuantLinear (auto_gptq), tensor by tensor.
TensorId packed_weight(Decoder& d, const std::string& path, std::int64_t out, std::int64_t in) {
  const std::optional<std::int64_t> count = checked_product(out, in);
  if (!count) throw InputError("the size of '" + d.name(path) + "' passes 2^63 bytes");
  const TensorId weight =
      d.program.packed_parameter(d.name(path + ".weight"), {out, in}, d.compute, Bytes{blocks(*count, 2)});
  const auto buffer = [&](const char* part, Shape shape, DType dtype) {
    d.program.buffer(d.name(path + "." + part), std::move(shape), dtype);
  };
  switch (d.training.quantization) {
    case Quantization::none:
      break;
    case Quantization::gptq:
    case Quantization::gptq_column: {
      const std::int64_t groups = d.training.quantization == Quantization::gptq ? blocks(in, gptq_group) : 1;
      buffer("zeros", {groups, blocks(out, 8)}, DType::int32);
      buffer("scales", {groups, out}, d.compute);
      buffer("group_of_row", {in}, DType::int32);
      break;
    }
    case Quantization::nf4:
      buffer("scales", {blocks(*count, nf4_block)}, DType::float32);
      buffer("code", {16}, DType::float32);
      break;
    case Quantization::nf4_double:
      buffer("scales", {blocks(*count, nf4_block)}, DType::uint8);
      buffer("scales_of_scales", {blocks(blocks(*count, nf4_block), scale_block)}, DType::float32);
      buffer("code", {16}, DType::float32);
      buffer("offset", {}, DType::float32);
      break;
  }
  return weight;
}

/// F.linear with the adapter's weight: in its own type, or in the computation's under autocast.
TensorId low_rank(Decoder& d, const std::string& part, TensorId x, TensorId weight) {
  const DType dtype = d.training.dtypes.autocast ? d.compute : d.tensor(weight).dtype;
  Shape shape = d.tensor(x).shape;
  shape.back() = d.tensor(weight).shape.front();
  const TensorId w = d.training.dtypes.autocast ? d.cast_weight(part + ".weight_cast", weight) : weight;
  return d.program.op(OpKind::linear, d.name(part), {d.cast(part + ".input_cast", x, dtype), w}, std::move(shape),
                      dtype);
}

}  // namespace

TensorId quantized_linear(Decoder& d, std::string_view part, TensorId x, std::int64_t out, TensorId bias) {
  const std::string path(part);
  const TensorId weight = packed_weight(d, path, out, d.tensor(x).shape.back());
  Attributes attributes;
  attributes.implementation = std::string(quantization_names[static_cast<std::size_t>(d.training.quantization)]);
  const DType in = d.tensor(x).dtype;
  const TensorId result = d.project(part, x, weight, bias, out, Split::none, std::move(attributes));
  return d.cast(path + ".output_cast", result, in);  // Linear4bit.forward: out.to(inp_dtype)
}

/// Unsloth's LoRA_QKV and LoRA_W (kernels/fast_lora.py), one for each product: x, A and B are kept, and x after
/// dropout where there is one (fms-acceleration's variant).
TensorId fused_adapter(Decoder& d, std::string_view part, TensorId x, std::int64_t out) {
  const Quantization kind = d.training.quantization;
  const std::string path(part);
  const std::int64_t in = d.tensor(x).shape.back();
  const TensorId weight =
      kind == Quantization::none ? d.weight(path + ".weight", {out, in}) : packed_weight(d, path, out, in);
  const Lora& lora = d.training.lora;
  const TensorId a = d.program.parameter(d.name(path + ".lora_A.weight"), {lora.rank, in}, lora.dtype);
  const TensorId b = d.program.parameter(d.name(path + ".lora_B.weight"), {out, lora.rank}, lora.dtype);
  Attributes attributes;
  attributes.probability = lora.dropout;
  attributes.implementation = "lora_" + std::string(quantization_names[static_cast<std::size_t>(kind)]);
  Shape shape = d.tensor(x).shape;
  shape.back() = out;
  return d.program.op(OpKind::linear, d.name(part), {d.cast(path + ".input_cast", x, d.compute), weight, a, b},
                      std::move(shape), d.compute, std::move(attributes));
}

bool has_adapter(const Decoder& d, std::string_view part) {
  return d.training.lora.rank > 0 && has_component(part, d.training.lora.targets);
}

/// tuners/lora: layer.py casts x to the adapter's type and the sum back to the base's; bnb.py clones the base's result
/// first and casts under no autocast only; gptq.py adds in place.
TensorId adapted(Decoder& d, std::string_view part, TensorId x, TensorId base) {
  const Lora& lora = d.training.lora;
  const Quantization kind = d.training.quantization;
  const std::string path = std::string(part) + ".lora";
  const std::int64_t in = d.tensor(x).shape.back(), out = d.tensor(base).shape.back();
  const DType result = d.tensor(base).dtype;
  const TensorId a = d.program.parameter(d.name(path + "_A.weight"), {lora.rank, in}, lora.dtype);
  const TensorId b = d.program.parameter(d.name(path + "_B.weight"), {out, lora.rank}, lora.dtype);
  const bool quantized = kind != Quantization::none;
  const bool gptq = kind == Quantization::gptq || kind == Quantization::gptq_column;
  if (quantized && !gptq) {
    Shape shape = d.tensor(base).shape;
    base = d.program.op(OpKind::contiguous, d.name(path + ".clone"), {base}, std::move(shape), result);
  }
  const bool converts = !quantized || !d.training.dtypes.autocast;
  const TensorId wide = converts ? d.cast(path + ".input", x, lora.dtype) : x;
  const TensorId down = low_rank(d, path + "_A", d.dropout(path + ".dropout", wide, lora.dropout), a);
  TensorId delta = d.pointwise(OpKind::scale, path + ".scaling", {low_rank(d, path + "_B", down, b)});
  if (quantized && converts) delta = d.cast(path + ".delta", delta, result);
  Attributes attributes;
  attributes.in_place = gptq;
  const TensorId sum = d.pointwise(OpKind::add, path + ".add", {base, delta}, attributes);
  const TensorId narrowed = d.cast(path + ".output", sum, result);
  if (wide != x) d.ends_scope(wide);
  return narrowed;
}

namespace {

/// Throws for the first word that is no component of any of `paths`; `known` are those to choose from.
void check_words(const std::vector<std::string>& words, const std::vector<std::string>& paths, const std::string& key,
                 const std::string& fault, const std::set<std::string>& known) {
  const auto is_met = [&](const std::string& word) {
    return std::ranges::any_of(paths, [&](const std::string& path) { return has_component(path, {word}); });
  };
  const auto unmet = std::ranges::find_if_not(words, is_met);
  if (unmet == words.end() && !words.empty()) return;
  std::string names;
  for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
  const std::string what = words.empty() ? " is empty" : ": '" + *unmet + "' " + fault;
  throw InputError("transformer: lora." + key + what + "; there are " + names);
}

}  // namespace

void check_adapters(const Decoder& d) {
  const Lora& lora = d.training.lora;
  if (lora.rank == 0) return;
  std::set<std::string> products, weights;
  for (const std::string& product : d.products) products.insert(product.substr(product.rfind('.') + 1));
  check_words(lora.targets, d.products, "targets", "is no product of a block", products);
  if (lora.trained.empty()) return;
  // "layers.3.attention_norm.weight": the module is meant
  for (const std::string& weight : d.weights) {
    const std::string module = weight.substr(0, weight.rfind('.'));
    weights.insert(module.substr(module.rfind('.') + 1));
  }
  check_words(lora.trained, d.weights, "trained", "is no part of a weight's name", weights);
}

}  // namespace tidemark
