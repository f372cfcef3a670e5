#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "decoder.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/program/transformer.hpp"

namespace tidemark {
namespace {

constexpr std::array<std::string_view, 6> model_types = {"gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma"};

constexpr std::int64_t most_layers = 100'000;  // some 3 million ops

[[noreturn]] void refuse(const std::string& fault) { throw InputError("transformer: " + fault); }

/// Positive, and small enough that sums of sizes stay in 63 bits; products are checked where a tensor or op is made.
void check_positive(const char* name, std::int64_t value, std::int64_t most = std::int64_t{1} << 48) {
  const std::string quoted = "'" + std::string(name) + "' must be ";
  if (value <= 0) refuse(quoted + "positive, not " + std::to_string(value));
  if (value > most) refuse(quoted + "at most " + std::to_string(most) + ", not " + std::to_string(value));
}

void check_divides(const char* part_name, std::int64_t part, const char* whole_name, std::int64_t whole) {
  if (whole % part != 0)
    refuse(std::string(whole_name) + " " + std::to_string(whole) + " is not divisible by " + part_name + " " +
           std::to_string(part));
}

void check_probability(const char* name, double value) {
  if (!(value >= 0 && value < 1)) refuse("'" + std::string(name) + "' must be at least 0 and below 1");
}

void check_sizes(const TransformerSpec& spec) {
  if (std::ranges::find(model_types, spec.model_type) == model_types.end())
    refuse("unknown model_type '" + spec.model_type + "'; known are gpt2, llama, mistral, qwen2, qwen3, gemma");
  check_positive("layers", spec.layers, most_layers);
  check_positive("hidden", spec.hidden);
  check_positive("heads", spec.heads);
  check_positive("kv_heads", spec.kv_heads);
  check_positive("ffn_hidden", spec.ffn_hidden);
  check_positive("vocab", spec.vocab);
  check_divides("heads", spec.heads, "hidden", spec.hidden);
  check_divides("kv_heads", spec.kv_heads, "heads", spec.heads);
  if (spec.head_dim != 0) check_positive("head_dim", spec.head_dim);
}

void check_settings(const TransformerSpec& spec) {
  activation_kind(spec.activation);
  if (spec.attention != "eager" && spec.attention != "sdpa" && spec.attention != "flash" && spec.attention != "fused")
    refuse("unknown attention '" + spec.attention + "'; known are eager, sdpa, flash, fused");
  if (spec.head != "lm" && spec.head != "none") refuse("unknown head '" + spec.head + "'; known are lm, none");
  check_probability("embedding_dropout", spec.embedding_dropout);
  check_probability("attention_dropout", spec.attention_dropout);
  check_probability("residual_dropout", spec.residual_dropout);
}

/// The spec with what is left open filled, once it is known to make sense.
TransformerSpec checked(TransformerSpec spec) {
  check_sizes(spec);
  check_settings(spec);
  if (spec.head_dim == 0) spec.head_dim = spec.hidden / spec.heads;
  if (spec.rotary && spec.head_dim % 2 != 0)
    refuse("rotary positions need an even head_dim, not " + std::to_string(spec.head_dim));
  if (!spec.rotary) check_positive("max_positions", spec.max_positions);
  return spec;
}

void check_training(const TransformerSpec& spec, const Training& training) {
  check_positive("batch size", training.batch.size);
  check_positive("sequence", training.batch.sequence);
  check_positive("loss.chunks", training.loss.chunks);
  if (!spec.rotary && training.batch.sequence > spec.max_positions)
    refuse("sequence " + std::to_string(training.batch.sequence) + " is above the " +
           std::to_string(spec.max_positions) + " learned positions");
  if (!checked_product(training.batch.size, training.batch.sequence)) refuse("batch x sequence passes 2^63");
}

/// Tables and masks that live beside the batch, or that the model's forward makes for itself.
void add_tables(Decoder& d) {
  const auto made = [&](const char* part, Shape shape, DType dtype) {
    return d.program.op(OpKind::custom, d.name(part), {}, std::move(shape), dtype);
  };
  const bool huggingface = d.is(ModelCode::huggingface);
  if (d.spec.rotary && huggingface) {
    // LlamaRotaryEmbedding.forward: cos and sin of this batch, in the activations' type.
    d.cos = made("rotary_cos", {1, 1, d.sequence, d.spec.head_dim}, d.compute);
    d.sin = made("rotary_sin", {1, 1, d.sequence, d.spec.head_dim}, d.compute);
  } else if (d.spec.rotary) {
    d.cos = d.program.input("rotary_cos", {d.sequence, d.spec.head_dim}, DType::float32);
    d.sin = d.program.input("rotary_sin", {d.sequence, d.spec.head_dim}, DType::float32);
  }
  if (d.is(ModelCode::megatron)) return;  // the mask comes with the batch
  if (d.spec.attention == "eager" && huggingface && d.spec.model_type != "gpt2")
    d.mask = made("causal_mask", {1, 1, d.sequence, d.sequence}, d.compute);
  else if (d.spec.attention == "eager" && !huggingface)
    d.mask = d.program.input("causal_mask", {d.sequence, d.sequence}, DType::boolean);
}

/// GPT2Attention.bias: a triangle of all positions, one a layer.
void add_layer_mask(Decoder& d) {
  if (d.is(ModelCode::huggingface) && d.spec.model_type == "gpt2" && d.spec.attention == "eager")
    d.mask = d.program.input(d.name("attention.causal_mask"), {1, 1, d.spec.max_positions, d.spec.max_positions},
                             DType::boolean);
}

/// The tensors of a micro-batch that the token table and the positions read.
struct Ids {
  TensorId tokens = no_tensor, positions = no_tensor;
};

/// get_batch (Megatron-LM, pretrain_gpt.py): tokens, labels, loss mask, attention mask and positions of each sequence.
/// Variables of forward_step keep all but the loss mask until the model returns.
Ids megatron_batch(Decoder& d, std::vector<TensorId>& locals) {
  const Shape tokens = {d.batch, d.sequence};
  Ids ids;
  ids.tokens = d.batch_input("input_ids", tokens, DType::int64);
  if (d.spec.head == "lm" && d.training.loss.chunks == 1) {
    d.labels = d.batch_input("labels", tokens, DType::int64);
    d.loss_mask = d.batch_input("loss_mask", tokens, DType::float32);
  }
  d.mask = d.batch_input("attention_mask", {d.batch, 1, d.sequence, d.sequence}, DType::boolean);
  ids.positions = d.batch_input("position_ids", tokens, DType::int64);
  locals.insert(locals.end(), {ids.tokens, ids.positions, d.labels, d.mask});
  return ids;
}

Ids batch_of(Decoder& d, std::vector<TensorId>& locals) {
  if (d.is(ModelCode::megatron)) return megatron_batch(d, locals);
  return {.tokens = d.batch_input("input_ids", {d.batch, d.sequence}, DType::int64)};
}

/// Token table and ids to the first block's input. Locals of the model's forward live until its end; Megatron's
/// embedding is a module whose own locals go when it returns.
TensorId embed(Decoder& d, TensorId& token_table, std::vector<TensorId>& locals) {
  d.begin_layer("embedding", "other", false);
  const bool megatron = d.is(ModelCode::megatron);
  std::vector<TensorId> own;
  std::vector<TensorId>& parts = megatron ? own : locals;
  const Shape rows = {d.batch, d.sequence, d.spec.hidden};
  Ids ids = batch_of(d, locals);
  token_table = d.weight("tokens.weight", {d.spec.vocab, d.spec.hidden});
  TensorId x =
      d.program.op(OpKind::embedding, "embedding.tokens", {ids.tokens, token_table}, rows, d.tensor(token_table).dtype);
  parts.push_back(x);
  if (!d.spec.rotary) {
    if (!megatron) ids.positions = d.batch_input("position_ids", {1, d.sequence}, DType::int64);
    const Shape position_rows = {megatron ? d.batch : 1, d.sequence, d.spec.hidden};
    const TensorId table = d.weight("positions.weight", {d.spec.max_positions, d.spec.hidden});
    const TensorId positions = d.program.op(OpKind::embedding, "embedding.positions", {ids.positions, table},
                                            position_rows, d.tensor(table).dtype);
    x = d.pointwise(OpKind::add, "add", {x, positions});
    parts.push_back(positions);
  }
  if (d.spec.model_type == "gemma") x = d.pointwise(OpKind::scale, "normalizer", {x});  // times sqrt(hidden)
  if (megatron) x = d.contiguous("sequence_first", d.transpose("transposed", x, 0, 1));
  x = d.dropout("dropout", x, d.spec.embedding_dropout);
  for (const TensorId id : own) d.ends_scope(id);
  if (megatron) locals.push_back(x);
  add_tables(d);
  for (const TensorId table : {d.cos, d.sin}) locals.push_back(table);
  if (!megatron) locals.push_back(d.mask);
  return x;
}

TensorId residual_add(Decoder& d, const std::string& part, TensorId x, const Branch& branch) {
  if (!d.is(ModelCode::megatron)) return d.pointwise(OpKind::add, part, {x, branch.out});
  std::vector<TensorId> inputs = {branch.out};
  if (branch.bias != no_tensor) inputs.push_back(branch.bias);
  inputs.push_back(x);
  return d.pointwise(OpKind::bias_dropout_add, part, std::move(inputs), {.probability = d.spec.residual_dropout});
}

/// Pre-norm, as all these families are. The caller's variable keeps the input until the block returns.
TensorId block(Decoder& d, std::int64_t number, TensorId x) {
  d.begin_layer("layers." + std::to_string(number), "block", true);
  add_layer_mask(d);
  const TensorId middle = residual_add(d, "attention_residual", x, attention(d, norm(d, "attention_norm", x)));
  const TensorId out = residual_add(d, "mlp_residual", middle, feed_forward(d, norm(d, "mlp_norm", middle)));
  d.ends_scope(middle);
  d.ends_scope(x);
  return out;
}

}  // namespace

Program make_transformer(const TransformerSpec& spec, const Training& training) {
  Decoder d(checked(spec), training);
  check_training(d.spec, training);
  TensorId token_table = no_tensor;
  std::vector<TensorId> locals;
  TensorId x = embed(d, token_table, locals);
  for (std::int64_t i = 0; i < d.spec.layers; ++i) x = block(d, i, x);
  d.begin_layer("head", "other", false);
  x = norm(d, "norm", x);
  // Megatron's model makes the loss itself; the others return their logits.
  if (!d.is(ModelCode::megatron))
    for (const TensorId local : locals) d.ends_scope(local);
  Program program = d.program.finish(language_loss(d, x, token_table, locals));
  program.model_flops = model_flops(d.spec, training);
  return program;
}

}  // namespace tidemark
