// Experts behind a router: which rows go where is data, so their numbers are given (Experts::imbalance).
#include <algorithm>
#include <numeric>

#include "decoder.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

/// Where the tokens of a layer go, and with what weight.
struct Routing {
  TensorId rows = no_tensor;     // [tokens, hidden]
  TensorId weights = no_tensor;  // [tokens, per_token]
  TensorId choices = no_tensor;  // [tokens, per_token]
};

/// Scores in fp32, the best `per_token` of them, each over their sum (MixtralSparseMoeBlock, TopKRouter).
Routing route(Decoder& d, TensorId x) {
  const Experts& experts = d.spec.experts;
  const std::int64_t tokens = d.batch * d.sequence;
  Routing out;
  out.rows = d.reshape("mlp.rows", x, {tokens, d.spec.hidden});
  const TensorId logits = d.linear("mlp.router", out.rows, experts.count, false);
  const TensorId wide = d.cast("mlp.router_float", logits, DType::float32);
  const TensorId scores = d.pointwise(experts.sigmoid ? OpKind::sigmoid : OpKind::softmax, "mlp.router_scores", {wide});
  const Shape chosen = {tokens, experts.per_token};
  const std::vector<TensorId> top =
      d.program.op_of_many(OpKind::top_k, d.name("mlp.top_k"), {scores},
                           {{d.name("mlp.top_values"), chosen, contiguous_strides(chosen), DType::float32, true},
                            {d.name("mlp.top_experts"), chosen, contiguous_strides(chosen), DType::int64, false}});
  TensorId weights = top[0];
  if (experts.normalized) {
    const TensorId total =
        d.program.op(OpKind::sum, d.name("mlp.top_sum"), {weights}, {tokens, 1}, DType::float32, {.dims = {-1}});
    weights = d.pointwise(OpKind::div, "mlp.top_weights", {weights, total});
  }
  out.weights = d.cast("mlp.top_cast", weights, d.tensor(x).dtype);
  out.choices = top[1];
  d.ends_scope(logits);
  return out;
}

/// Numbers that come from the router's choices: no gradient flows to them.
TensorId from_choices(Decoder& d, const std::string& part, TensorId choices, const Shape& shape) {
  return d.program.op_of_many(OpKind::compare, d.name(part), {choices, choices},
                              {{d.name(part), shape, contiguous_strides(shape), DType::int64, false}})[0];
}

TensorId picked(Decoder& d, const std::string& part, TensorId from, TensorId places, std::int64_t width) {
  const std::int64_t rows = d.tensor(places).shape[0];
  return d.program.op(OpKind::index, d.name(part), {from, places}, {rows, width}, d.tensor(from).dtype);
}

/// Adds rows at their tokens' places, in place.
TensorId added(Decoder& d, const std::string& part, TensorId sum, TensorId places, TensorId rows) {
  const Tensor& whole = d.tensor(sum);
  Shape shape = whole.shape, strides = whole.strides;
  const DType dtype = whole.dtype;
  return d.program.op_strided(OpKind::index_add, d.name(part), {sum, places, rows}, std::move(shape),
                              std::move(strides), dtype, {.in_place = true});
}

TensorId zeros(Decoder& d, DType dtype) {
  return d.program.op(OpKind::fill, d.name("mlp.combined"), {}, {d.batch * d.sequence, d.spec.hidden}, dtype);
}

/// One expert after the other, on copies of its rows (transformers, modeling_mixtral.py, modeling_qwen2_moe.py,
/// modeling_deepseek_v3.py): each row's weight multiplies its result. An expert without rows is still called. one_hot
/// makes the mask of choices in int64, torch.where the places of an expert's rows as pairs.
TensorId one_by_one(Decoder& d, const Routing& routing, const std::vector<std::int64_t>& rows) {
  TensorId sum = zeros(d, d.tensor(routing.rows).dtype);
  const Experts& experts = d.spec.experts;
  const TensorId mask =
      from_choices(d, "mlp.expert_mask", routing.choices, {d.batch * d.sequence, experts.per_token, experts.count});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string part = "mlp.experts." + std::to_string(i);
    const TensorId pairs = from_choices(d, part + ".places", mask, {rows[i], 2});
    const TensorId places = d.program.alias(OpKind::view, d.name(part + ".tokens"), {pairs}, {rows[i]}, {2});
    const TensorId input = picked(d, part + ".rows", routing.rows, places, d.spec.hidden);
    const TensorId out = feed_forward(d, part, input, d.spec.experts.hidden).out;
    const TensorId weights = picked(d, part + ".weights", routing.weights, places, 1);
    const TensorId weighted = d.pointwise(OpKind::mul, part + ".weighted", {out, weights});
    sum = added(d, part + ".add", sum, places, weighted);
    for (const TensorId local : {places, input, weighted}) d.ends_scope(local);
  }
  d.ends_scope(mask);
  return sum;
}

TensorId grouped(Decoder& d, const std::string& part, TensorId x, std::int64_t out) {
  const std::int64_t in = d.tensor(x).shape.back(), rows = d.tensor(x).shape.front();
  const TensorId weight = d.weight(part + ".weight", {d.spec.experts.count, out, in});
  return d.program.op(OpKind::grouped_linear, d.name(part),
                      {d.cast(part + ".input_cast", x, d.compute), d.cast(part + ".weight_cast", weight, d.compute)},
                      {rows, out}, d.compute);
}

/// Megatron's gate and up lie in one tensor: SwiGLU reads it whole, other activations its halves.
TensorId gated_together(Decoder& d, TensorId both, std::int64_t inner) {
  if (activation_kind(d.spec.activation) == OpKind::silu)
    return d.program.op(OpKind::swiglu, d.name("mlp.experts.swiglu"), {both}, {d.tensor(both).shape.front(), inner},
                        d.compute);
  const std::vector<TensorId> halves =
      d.split_columns("mlp.experts.chunk", both, {{"mlp.experts.gate", inner}, {"mlp.experts.up", inner}});
  const TensorId gate = d.pointwise(activation_kind(d.spec.activation), "mlp.experts.activation", {halves[0]});
  return d.pointwise(OpKind::mul, "mlp.experts.mul", {gate, halves[1]});
}

/// All experts at once on rows sorted by expert: torchtitan's grouped_mm, Megatron's grouped GEMM, whose first product
/// makes gate and up in one tensor.
TensorId together(Decoder& d, const Routing& routing, const std::vector<std::int64_t>& rows) {
  const std::int64_t total = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  const std::int64_t inner = d.spec.experts.hidden;
  const TensorId places = from_choices(d, "mlp.permutation", routing.choices, {total});
  const TensorId sorted = picked(d, "mlp.permuted", routing.rows, places, d.spec.hidden);
  TensorId middle = no_tensor;
  if (d.spec.gated_ffn && d.is(ModelCode::megatron)) {
    middle = gated_together(d, grouped(d, "mlp.experts.gate_up_proj", sorted, 2 * inner), inner);
  } else if (d.spec.gated_ffn) {
    const TensorId gate = d.pointwise(activation_kind(d.spec.activation), "mlp.experts.activation",
                                      {grouped(d, "mlp.experts.gate_proj", sorted, inner)});
    middle = d.pointwise(OpKind::mul, "mlp.experts.mul", {gate, grouped(d, "mlp.experts.up_proj", sorted, inner)});
  } else {
    middle = d.pointwise(activation_kind(d.spec.activation), "mlp.experts.activation",
                         {grouped(d, "mlp.experts.up_proj", sorted, inner)});
  }
  const TensorId out = grouped(d, "mlp.experts.down_proj", middle, d.spec.hidden);
  const TensorId weights = picked(d, "mlp.permuted_weights", routing.weights, places, 1);
  const TensorId weighted = d.pointwise(OpKind::mul, "mlp.weighted", {out, weights});
  return added(d, "mlp.unpermuted", zeros(d, d.tensor(weighted).dtype), places, weighted);
}

/// Experts that every token visits, seen as one feed-forward part.
TensorId shared(Decoder& d, TensorId x) {
  const TensorId out = feed_forward(d, "mlp.shared_experts", x, d.spec.experts.shared_hidden).out;
  if (!d.spec.experts.shared_gate) return out;
  const TensorId gate =
      d.pointwise(OpKind::sigmoid, "mlp.shared_gate_sigmoid", {d.linear("mlp.shared_gate", x, 1, false)});
  return d.pointwise(OpKind::mul, "mlp.shared_weighted", {out, gate});
}

}  // namespace

std::vector<std::int64_t> expert_rows(const Experts& experts, std::int64_t number, std::int64_t tokens) {
  const std::optional<std::int64_t> total = checked_product(tokens, experts.per_token);
  if (!total) throw InputError("transformer: tokens x experts per token pass 2^63");
  const std::int64_t count = experts.count;
  // The mean number of rows times a factor, rounded up.
  const auto scaled = [&](const Ratio& factor) {
    const Int128 divisor = Int128{count} * factor.denominator;
    return static_cast<std::int64_t>((Int128{*total} * factor.numerator + divisor - 1) / divisor);
  };
  const std::vector<Ratio>& given = experts.imbalance;
  const Ratio factor = given.empty()       ? Ratio{}
                       : given.size() == 1 ? given[0]
                                           : given.at(static_cast<std::size_t>(number));
  // A token goes to different experts: none gets more rows than there are tokens.
  std::vector<std::int64_t> rows(static_cast<std::size_t>(count), *total);
  if (count > 1) {
    rows[0] = std::min(tokens, scaled(factor));
    const std::int64_t rest = *total - rows[0], others = count - 1;
    for (std::int64_t i = 1; i < count; ++i)  // what does not divide goes to the first ones
      rows[static_cast<std::size_t>(i)] = rest / others + (i <= rest % others ? 1 : 0);
  }
  if (!experts.capacity_factor) return rows;
  const std::int64_t capacity = scaled(*experts.capacity_factor);
  for (std::int64_t& row : rows) row = experts.pad_to_capacity ? capacity : std::min(row, capacity);
  return rows;
}

Branch expert_layer(Decoder& d, std::int64_t number, TensorId x) {
  const Routing routing = route(d, x);
  const std::vector<std::int64_t> rows = expert_rows(d.spec.experts, number, d.batch * d.sequence);
  TensorId out = d.is(ModelCode::huggingface) ? one_by_one(d, routing, rows) : together(d, routing, rows);
  Shape shape = d.tensor(x).shape;
  out = d.reshape("mlp.merged", out, shape);
  if (d.spec.experts.shared_hidden > 0) out = d.pointwise(OpKind::add, "mlp.add_shared", {out, shared(d, x)});
  for (const TensorId local : {routing.rows, routing.weights, routing.choices, x}) d.ends_scope(local);
  return {.out = out};
}

}  // namespace tidemark
