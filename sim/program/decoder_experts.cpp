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

/// Rows that this rank routes: of its own tokens where ranks divide them.
std::int64_t own_rows(const Decoder& d) { return d.batch * d.sequence / (d.divides_tokens ? d.tensor_ranks : 1); }

/// Scores in fp32, the best `per_token` of them, each over their sum (MixtralSparseMoeBlock, TopKRouter).
Routing route(Decoder& d, TensorId x) {
  const Experts& experts = d.spec.experts;
  const std::int64_t tokens = own_rows(d);
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
  return d.program.op(OpKind::fill, d.name("mlp.combined"), {}, {own_rows(d), d.spec.hidden}, dtype);
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
  const TensorId weight = d.weight(part + ".weight", {d.spec.experts.count / d.expert_ranks, out, in});
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

/// Rows that go from the rank's own experts' point of view: how many it sends, has after the exchange, and works on.
struct Dispatch {
  std::int64_t sent = 0, received = 0, gathered = 0;
};

/// Experts of the rank that is shown: with a load given, of the one that gets most in all layers together; else the
/// first ones, and with them the busiest.
std::int64_t first_own_expert(const Decoder& d) {
  const std::int64_t own = d.spec.experts.count / d.expert_ranks;
  std::vector<Int128> load(static_cast<std::size_t>(d.expert_ranks));
  for (const std::vector<std::int64_t>& layer : d.spec.experts.loads)
    for (std::size_t i = 0; i < layer.size(); ++i) load[i / static_cast<std::size_t>(own)] += layer[i];
  return (std::ranges::max_element(load) - load.begin()) * own;
}

/// The tokens of all ranks that share the experts are routed together. Whole rows where they do not divide.
Dispatch dispatch(const Decoder& d, std::int64_t number) {
  const std::int64_t ranks = std::int64_t{d.expert_ranks} * d.expert_tensor_ranks;
  const std::vector<std::int64_t> rows = expert_rows(d.spec.experts, number, own_rows(d) * ranks);
  const auto own = rows.begin() + first_own_expert(d);
  const auto up = [](std::int64_t whole, std::int64_t parts) { return (whole + parts - 1) / parts; };
  Dispatch out;
  out.sent = up(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}), ranks);
  out.gathered = std::accumulate(own, own + d.spec.experts.count / d.expert_ranks, std::int64_t{0});
  out.received = up(out.gathered, d.expert_tensor_ranks);
  return out;
}

/// Rows of x exchanged among ranks, in an op of its own.
TensorId exchanged(Decoder& d, const std::string& how, const std::string& part, TensorId x, std::int64_t rows,
                   int ranks) {
  const DType dtype = d.tensor(x).dtype;
  return d.program.op(OpKind::collective, d.name(part + "." + how), {x}, {rows, d.spec.hidden}, dtype,
                      {.ranks = ranks, .implementation = how});
}

/// MoEAlltoAllTokenDispatcher (megatron/core/transformer/moe/token_dispatcher.py): rows go to the ranks that have their
/// experts, are gathered where ranks share each expert's columns, and sorted by expert: as many came from each rank.
TensorId at_experts(Decoder& d, const Dispatch& rows, TensorId x, TensorId choices) {
  if (d.expert_ranks > 1) x = exchanged(d, "all_to_all", "mlp.dispatch", x, rows.received, d.expert_ranks);
  if (d.expert_tensor_ranks > 1)
    x = exchanged(d, "all_gather", "mlp.dispatch", x, rows.gathered, d.expert_tensor_ranks);
  if (d.expert_ranks * d.expert_tensor_ranks == 1 || d.spec.experts.count == d.expert_ranks) return x;
  return picked(d, "mlp.sorted", x, from_choices(d, "mlp.sorting", choices, {rows.gathered}), d.spec.hidden);
}

/// The same way back.
TensorId from_experts(Decoder& d, const Dispatch& rows, TensorId x, TensorId choices) {
  if (d.expert_ranks * d.expert_tensor_ranks > 1 && d.spec.experts.count > d.expert_ranks)
    x = picked(d, "mlp.unsorted", x, from_choices(d, "mlp.unsorting", choices, {rows.gathered}), d.spec.hidden);
  if (d.expert_tensor_ranks > 1)
    x = exchanged(d, "reduce_scatter", "mlp.combine", x, rows.received, d.expert_tensor_ranks);
  if (d.expert_ranks > 1) x = exchanged(d, "all_to_all", "mlp.combine", x, rows.sent, d.expert_ranks);
  return x;
}

/// All experts at once on rows sorted by expert: torchtitan's grouped_mm, Megatron's grouped GEMM, whose first product
/// makes gate and up in one tensor.
TensorId together(Decoder& d, const Routing& routing, std::int64_t number) {
  const std::int64_t inner = d.spec.experts.hidden;
  const Dispatch rows = dispatch(d, number);
  const TensorId places = from_choices(d, "mlp.permutation", routing.choices, {rows.sent});
  const TensorId permuted = picked(d, "mlp.permuted", routing.rows, places, d.spec.hidden);
  const TensorId sorted = at_experts(d, rows, permuted, routing.choices);
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
  const TensorId made = grouped(d, "mlp.experts.down_proj", middle, d.spec.hidden);
  const TensorId out = from_experts(d, rows, made, routing.choices);
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

namespace {

/// The mean number of rows times a factor, rounded up.
std::int64_t times_mean(const Ratio& factor, std::int64_t total, std::int64_t count) {
  const Int128 divisor = Int128{count} * factor.denominator;
  return static_cast<std::int64_t>((Int128{total} * factor.numerator + divisor - 1) / divisor);
}

/// Shares of `total` rows as the load has them; what does not divide goes to the first experts.
std::vector<std::int64_t> as_loaded(const std::vector<std::int64_t>& load, std::int64_t total) {
  const Int128 sum = std::accumulate(load.begin(), load.end(), Int128{0});
  std::vector<std::int64_t> rows;
  for (const std::int64_t entry : load) rows.push_back(static_cast<std::int64_t>(Int128{total} * entry / sum));
  const std::int64_t rest = total - std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  for (std::size_t i = 0; i < static_cast<std::size_t>(rest); ++i) ++rows[i];
  return rows;
}

/// An expert's capacity drops what is above, or fills up to it.
std::vector<std::int64_t> capped(const Experts& experts, std::vector<std::int64_t> rows, std::int64_t total) {
  if (!experts.capacity_factor) return rows;
  const std::int64_t capacity = times_mean(*experts.capacity_factor, total, experts.count);
  for (std::int64_t& row : rows) row = experts.pad_to_capacity ? capacity : std::min(row, capacity);
  return rows;
}

}  // namespace

std::vector<std::int64_t> expert_rows(const Experts& experts, std::int64_t number, std::int64_t tokens) {
  const std::optional<std::int64_t> total = checked_product(tokens, experts.per_token);
  if (!total) throw InputError("transformer: tokens x experts per token pass 2^63");
  const std::int64_t count = experts.count;
  if (const auto layer = static_cast<std::size_t>(number);
      layer < experts.loads.size() && !experts.loads[layer].empty())
    return capped(experts, as_loaded(experts.loads[layer], *total), *total);
  const std::vector<Ratio>& given = experts.imbalance;
  const Ratio factor = given.empty()       ? Ratio{}
                       : given.size() == 1 ? given[0]
                                           : given.at(static_cast<std::size_t>(number));
  // A token goes to different experts: none gets more rows than there are tokens.
  std::vector<std::int64_t> rows(static_cast<std::size_t>(count), *total);
  if (count > 1) {
    rows[0] = std::min(tokens, times_mean(factor, *total, count));
    const std::int64_t rest = *total - rows[0], others = count - 1;
    for (std::int64_t i = 1; i < count; ++i)  // what does not divide goes to the first ones
      rows[static_cast<std::size_t>(i)] = rest / others + (i <= rest % others ? 1 : 0);
  }
  return capped(experts, std::move(rows), *total);
}

Branch expert_layer(Decoder& d, std::int64_t number, TensorId x) {
  const Routing routing = route(d, x);
  TensorId out = d.is(ModelCode::huggingface) ? one_by_one(d, routing, expert_rows(d.spec.experts, number, own_rows(d)))
                                              : together(d, routing, number);
  Shape shape = d.tensor(x).shape;
  out = d.reshape("mlp.merged", out, shape);
  if (d.spec.experts.shared_hidden > 0) out = d.pointwise(OpKind::add, "mlp.add_shared", {out, shared(d, x)});
  for (const TensorId local : {routing.rows, routing.weights, routing.choices, x}) d.ends_scope(local);
  return {.out = out};
}

}  // namespace tidemark
