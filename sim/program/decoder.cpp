#include "decoder.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "components.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/program/strides.hpp"

namespace tidemark {
namespace {

constexpr std::array<std::pair<std::string_view, ModelCode>, 5> codes = {{{"reference", ModelCode::reference},
                                                                          {"huggingface", ModelCode::huggingface},
                                                                          {"megatron", ModelCode::megatron},
                                                                          {"torchtitan", ModelCode::torchtitan},
                                                                          {"llm.c", ModelCode::reference}}};

ModelCode find_code(const std::string& name) {
  for (const auto& [known, code] : codes)
    if (known == name) return code;
  throw InputError("transformer: unknown model_code '" + name +
                   "'; known are reference, huggingface, megatron, torchtitan, llm.c");
}

/// All heads side by side; as small as `check_positive` asks of every size.
std::int64_t heads_width(std::int64_t heads, std::int64_t head_dim) {
  const std::optional<std::int64_t> product = checked_product(heads, head_dim);
  if (!product || *product > std::int64_t{1} << 48) throw InputError("transformer: heads x head_dim is above 2^48");
  return *product;
}

/// Row-major strides after the dimensions are put into the order that `strides` has them in memory.
Shape dense_in_order_of(const Shape& shape, const Shape& strides) {
  std::vector<std::size_t> order(shape.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return strides[a] > strides[b]; });
  Shape out(shape.size(), 1);
  std::int64_t stride = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    out[order[i]] = stride;
    stride *= std::max<std::int64_t>(shape[order[i]], 1);
  }
  return out;
}

}  // namespace

Decoder::Decoder(const TransformerSpec& the_spec, const Training& the_training)
    : spec(shard_of(the_spec, the_training)),
      habits(habits_of(spec.model_type)),
      training(the_training),
      code(find_code(training.profile.model_code)),
      compute(training.dtypes.compute),
      tensor_ranks(training.shards.tensor),
      divides_tokens(training.shards.sequence),
      context_ranks(training.shards.context),
      batch(training.batch.size),
      sequence(rows_of_a_sequence(spec, training) / context_ranks),
      query_width(heads_width(spec.heads, spec.head_dim)),
      kv_width(heads_width(spec.kv_heads, spec.head_dim)),
      value_dim(spec.latent.kv_rank > 0 ? spec.latent.value_dim : spec.head_dim),
      value_width(heads_width(spec.heads, value_dim)),
      rotary_dim(spec.latent.kv_rank > 0 ? spec.latent.rope_dim
                 : spec.rotary_dim > 0   ? spec.rotary_dim
                                         : spec.head_dim) {}

void Decoder::begin_layer(const std::string& new_name, const char* type, bool is_block) {
  layer = new_name;
  program.begin_layer(new_name, type, is_block);
}

bool Decoder::is_early_llama() const {
  return is(ModelCode::huggingface) && training.transformers == "4.29" && spec.model_type == "llama";
}

bool Decoder::fuses(std::string_view part) const {
  return std::ranges::find(training.fused, part) != training.fused.end();
}

Shape Decoder::token_rows(std::int64_t last) const {
  return is(ModelCode::megatron) ? Shape{sequence, batch, last} : Shape{batch, sequence, last};
}

Shape Decoder::stream_rows(std::int64_t last) const {
  Shape rows = token_rows(last);
  if (divides_tokens) rows[is(ModelCode::megatron) ? 0 : 1] /= tensor_ranks;
  return rows;
}

void Decoder::ends_scope(TensorId id) {
  if (id != no_tensor && !is(ModelCode::reference)) program.hold_until_now(id);
}

TensorId Decoder::batch_input(std::string part, Shape shape, DType dtype) {
  if (training.profile.loop != "megatron" && training.profile.loop != "deepspeed")
    return program.input(std::move(part), std::move(shape), dtype);
  return program.batch_input(std::move(part), std::move(shape), dtype);
}

TensorId Decoder::weight(std::string_view part, Shape shape) {
  const bool of_norm = training.dtypes.norms && part.find("norm") != std::string_view::npos;
  const DType dtype = of_norm ? *training.dtypes.norms : training.dtypes.parameters;
  weights.push_back(name(part));
  const bool adapted = training.lora.rank > 0 && trains(part);  // PEFT's ModulesToSaveWrapper keeps the original
  if (adapted) program.buffer(name(part) + ".original", shape, dtype);
  const TensorId parameter = program.parameter(name(part), std::move(shape), dtype, trains(part));
  return training.dtypes.autocast || of_norm ? parameter : cast(std::string(part) + ".cast", parameter, compute);
}

bool Decoder::trains(std::string_view part) const {
  return training.lora.rank == 0 || has_component(name(part), training.lora.trained);
}

TensorId Decoder::linear(std::string_view part, TensorId x, std::int64_t out, bool bias, Split split) {
  const std::int64_t in = tensor(x).shape.back();
  const std::string path(part);
  // Hugging Face's GPT-2 has Conv1D: weights [in, out] and a bias, one addmm on the rows.
  const bool conv1d = is(ModelCode::huggingface) && habits.conv1d && bias;
  products.push_back(path);
  if (fuses("lora") && has_adapter(*this, part) && !bias) return fused_adapter(*this, part, x, out);
  TensorId result = no_tensor;
  if (training.quantization != Quantization::none) {
    result = quantized_linear(*this, part, x, out, bias ? weight(path + ".bias", {out}) : no_tensor);
  } else {
    const TensorId w = weight(path + ".weight", conv1d ? Shape{in, out} : Shape{out, in});
    const TensorId b = bias ? weight(path + ".bias", {out}) : no_tensor;
    Shape shape = tensor(x).shape;
    shape.back() = out;
    result = conv1d ? program.op(OpKind::addmm, name(part), {b, x, w}, std::move(shape), compute)
                    : project(part, x, w, b, out, split);
  }
  return has_adapter(*this, part) ? adapted(*this, part, x, result) : result;
}

TensorId Decoder::cast_weight(std::string_view part, TensorId weight) {
  const Tensor& w = tensor(weight);
  const bool cached = training.dtypes.autocast && w.dtype == DType::float32 && w.requires_grad;
  if (!cached) return cast(part, weight, compute);
  const auto found = cached_casts.find(weight);
  if (found != cached_casts.end()) return found->second;
  return cached_casts[weight] = cast(part, weight, compute);
}

TensorId Decoder::project(std::string_view part, TensorId x, TensorId w, TensorId bias, std::int64_t out, Split split,
                          Attributes attributes) {
  const std::string path(part);
  Shape shape = tensor(x).shape;
  shape.back() = out;
  std::vector<TensorId> inputs = {cast(path + ".input_cast", x, compute), cast_weight(path + ".weight_cast", w)};
  if (bias != no_tensor) inputs.push_back(cast_weight(path + ".bias_cast", bias));
  if (split != Split::none && tensor_ranks > 1) return split_product(*this, part, std::move(inputs), out, split);
  return program.op(OpKind::linear, name(part), std::move(inputs), std::move(shape), compute, std::move(attributes));
}

TensorId Decoder::pointwise(OpKind kind, std::string_view part, std::vector<TensorId> inputs, Attributes attributes) {
  const Tensor& first = tensor(inputs.at(0));
  Shape shape = first.shape;
  Shape strides = dense_in_order_of(shape, first.strides);
  DType dtype = first.dtype;
  // Mixed operands give the wider type; rotary kernels read fp32 tables and keep their input's type.
  if (kind != OpKind::rotary)
    for (const TensorId id : inputs)
      if (tensor(id).dtype == DType::float32) dtype = DType::float32;
  return program.op_strided(kind, name(part), std::move(inputs), std::move(shape), std::move(strides), dtype,
                            std::move(attributes));
}

TensorId Decoder::cast(std::string_view part, TensorId x, DType dtype) {
  const Tensor& from = tensor(x);
  if (from.dtype == dtype) return x;
  Shape shape = from.shape;
  Shape strides = dense_in_order_of(shape, from.strides);
  return program.op_strided(OpKind::cast, name(part), {x}, std::move(shape), std::move(strides), dtype);
}

TensorId Decoder::dropout(std::string_view part, TensorId x, double probability) {
  if (probability == 0) return x;
  return pointwise(OpKind::dropout, part, {x}, {.probability = probability});
}

TensorId Decoder::reshape(std::string_view part, TensorId x, const Shape& shape) {
  const Tensor& from = tensor(x);
  if (from.shape == shape) return x;
  if (const std::optional<Shape> strides = view_strides(from.shape, from.strides, shape))
    return program.alias(OpKind::view, name(part), {x}, shape, *strides);
  return program.op(OpKind::contiguous, name(part), {x}, shape, from.dtype);
}

TensorId Decoder::transpose(std::string_view part, TensorId x, std::int64_t a, std::int64_t b) {
  Shape shape = tensor(x).shape;
  Shape strides = tensor(x).strides;
  std::swap(shape.at(static_cast<std::size_t>(a)), shape.at(static_cast<std::size_t>(b)));
  std::swap(strides.at(static_cast<std::size_t>(a)), strides.at(static_cast<std::size_t>(b)));
  return program.alias(OpKind::view, name(part), {x}, std::move(shape), std::move(strides), {.dims = {a, b}});
}

TensorId Decoder::slice(std::string_view part, TensorId x, std::size_t dimension, std::int64_t extent) {
  Shape shape = tensor(x).shape;
  Shape strides = tensor(x).strides;
  shape.at(dimension) = extent;
  return program.alias(OpKind::view, name(part), {x}, std::move(shape), std::move(strides));
}

std::vector<TensorId> Decoder::split_columns(std::string_view part, TensorId x,
                                             const std::vector<std::pair<std::string, std::int64_t>>& parts) {
  const Tensor whole = tensor(x);
  std::vector<ProgramBuilder::Part> views;
  for (const auto& [part_name, extent] : parts) {
    views.push_back({name(part_name), whole.shape, whole.strides});
    views.back().shape.back() = extent;
  }
  return program.split(name(part), x, views);
}

TensorId Decoder::contiguous(std::string_view part, TensorId x) {
  const Tensor& from = tensor(x);
  if (same_layout(from.shape, from.strides, contiguous_strides(from.shape))) return x;
  Shape shape = from.shape;
  return program.op(OpKind::contiguous, name(part), {x}, std::move(shape), from.dtype);
}

}  // namespace tidemark
