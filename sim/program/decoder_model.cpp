#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "decoder.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/program/transformer.hpp"
#include "tidemark/program/transformer_chunk.hpp"

namespace tidemark {
namespace {

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
  if (std::ranges::find(transformer_model_types, spec.model_type) == transformer_model_types.end()) {
    std::string known;
    for (const std::string_view type : transformer_model_types)
      known += (known.empty() ? "" : ", ") + std::string(type);
    refuse("unknown model_type '" + spec.model_type + "'; known are " + known);
  }
  check_positive("layers", spec.layers, most_layers);
  check_positive("hidden", spec.hidden);
  check_positive("heads", spec.heads);
  check_positive("kv_heads", spec.kv_heads);
  check_positive("ffn_hidden", spec.ffn_hidden);
  if (spec.image.size == 0) check_positive("vocab", spec.vocab);
  if (spec.head_dim == 0) check_divides("heads", spec.heads, "hidden", spec.hidden);
  check_divides("kv_heads", spec.kv_heads, "heads", spec.heads);
  if (spec.head_dim != 0) check_positive("head_dim", spec.head_dim);
}

void check_experts(const TransformerSpec& spec) {
  const Experts& experts = spec.experts;
  if (experts.count == 0) return;
  check_positive("experts", experts.count, 1 << 20);
  check_positive("experts_per_token", experts.per_token, 1 << 20);
  check_positive("expert_hidden", experts.hidden);
  check_positive("every", experts.every);
  if (experts.per_token > experts.count)
    refuse(std::to_string(experts.per_token) + " experts a token are more than the " + std::to_string(experts.count) +
           " there are");
  const auto entries = static_cast<std::int64_t>(experts.imbalance.size());
  if (entries > 1 && entries != spec.layers)
    refuse("'imbalance' has " + std::to_string(entries) + " entries; expected 1 or one for each of the " +
           std::to_string(spec.layers) + " layers");
  const auto within = [&](const Ratio& factor, bool at_least_one) {
    return factor.numerator > 0 && factor.denominator > 0 &&
           (!at_least_one || factor.numerator >= factor.denominator) &&
           factor.numerator <= Int128{experts.count} * factor.denominator;
  };
  for (const Ratio& factor : experts.imbalance)
    if (!within(factor, true)) refuse("'imbalance' must be from 1 to the number of experts");
  if (experts.capacity_factor && !within(*experts.capacity_factor, false))
    refuse("'capacity_factor' must be above 0 and at most the number of experts");
  if (experts.pad_to_capacity && !experts.capacity_factor) refuse("'pad_to_capacity' needs a 'capacity_factor'");
  if (spec.ffn_bias) refuse("experts have no biases");
}

void check_parts(const TransformerSpec& spec) {
  const LatentAttention& latent = spec.latent;
  if (latent.kv_rank != 0) {
    check_positive("kv_lora_rank", latent.kv_rank);
    check_positive("qk_nope_head_dim", latent.nope_dim);
    check_positive("qk_rope_head_dim", latent.rope_dim);
    check_positive("v_head_dim", latent.value_dim);
    if (latent.query_rank != 0) check_positive("q_lora_rank", latent.query_rank);
    if (spec.kv_heads != spec.heads) refuse("latent attention has as many kv_heads as heads");
  }
  const Image& image = spec.image;
  if (image.size != 0) {
    check_positive("image_size", image.size, 1 << 20);
    check_positive("patch_size", image.patch, image.size);
    check_positive("channels", image.channels, 1 << 20);
    check_divides("patch_size", image.patch, "image_size", image.size);
  }
  if (spec.head == "classification") check_positive("labels", spec.labels);
  if ((spec.model_type == "t5") != (spec.both.decoder_layers != 0)) refuse("t5 has an encoder and a decoder");
  if (spec.both.decoder_layers == 0) return;
  check_positive("decoder_layers", spec.both.decoder_layers, most_layers);
  check_positive("position_buckets", spec.both.buckets, 1 << 20);
  if (spec.attention != "eager") refuse("t5 has attention: eager only, as its scores have a bias");
  if (spec.head != "lm") refuse("t5 has head: lm only");
  if (spec.kv_heads != spec.heads) refuse("t5 has as many kv_heads as heads");
}

void check_settings(const TransformerSpec& spec) {
  activation_kind(spec.activation);
  if (spec.attention != "eager" && spec.attention != "sdpa" && spec.attention != "flash" && spec.attention != "fused")
    refuse("unknown attention '" + spec.attention + "'; known are eager, sdpa, flash, fused");
  if (spec.head != "lm" && spec.head != "mlm" && spec.head != "classification" && spec.head != "none")
    refuse("unknown head '" + spec.head + "'; known are lm, mlm, classification, none");
  if ((spec.head == "mlm") !=
      (spec.head != "classification" && spec.head != "none" && habits_of(spec.model_type).masked_words))
    refuse("head '" + spec.head + "' is not one of model_type '" + spec.model_type + "'");
  if (spec.image.size > 0 && spec.head == "lm") refuse("pictures have no next word: head is classification or none");
  check_probability("embedding_dropout", spec.embedding_dropout);
  check_probability("attention_dropout", spec.attention_dropout);
  check_probability("residual_dropout", spec.residual_dropout);
}

/// The spec with what is left open filled, once it is known to make sense.
TransformerSpec checked(TransformerSpec spec) {
  check_sizes(spec);
  check_settings(spec);
  check_experts(spec);
  check_parts(spec);
  if (spec.latent.kv_rank > 0) spec.head_dim = spec.latent.nope_dim + spec.latent.rope_dim;
  if (spec.head_dim == 0) spec.head_dim = spec.hidden / spec.heads;
  const std::int64_t rotated = spec.latent.kv_rank > 0 ? spec.latent.rope_dim
                               : spec.rotary_dim > 0   ? spec.rotary_dim
                                                       : spec.head_dim;
  if (spec.rotary && rotated % 2 != 0) refuse("rotary positions need an even head_dim, not " + std::to_string(rotated));
  if (rotated > spec.head_dim)
    refuse("rotary_dim " + std::to_string(rotated) + " is above head_dim " + std::to_string(spec.head_dim));
  if (has_position_table(spec)) check_positive("max_positions", spec.max_positions);
  return spec;
}

/// What T5's code does otherwise, or not at all.
void check_encoder_decoder(const Training& training) {
  const std::string& code = training.profile.model_code;
  if (training.batch.target != 0) check_positive("batch.target", training.batch.target);
  if (code != "reference" && code != "huggingface")
    refuse("model_type 't5' has the model codes reference and huggingface only");
  if (training.dtypes.compute == DType::float16)
    refuse("t5 in float16 clamps each block's sums, which is not modelled; bfloat16 and float32 are");
}

void check_training(const TransformerSpec& spec, const Training& training) {
  check_positive("batch size", training.batch.size);
  check_positive("sequence", training.batch.sequence);
  check_positive("loss.chunks", training.loss.chunks);
  if (spec.head != "lm" && (training.loss.chunks > 1 || training.loss.fused))
    refuse("'loss' in chunks or fused is for head lm, not " + spec.head);
  const bool both = spec.both.decoder_layers > 0;
  if (training.batch.target != 0 && !both) refuse("'batch.target' is for an encoder and decoder");
  if (both) check_encoder_decoder(training);
  if (has_position_table(spec) && training.batch.sequence > spec.max_positions)
    refuse("sequence " + std::to_string(training.batch.sequence) + " is above the " +
           std::to_string(spec.max_positions) + " learned positions");
  const auto tokens = checked_product(training.batch.size, rows_of_a_sequence(spec, training));
  if (!tokens) refuse("batch x sequence passes 2^63");
  const auto routed = checked_product(*tokens, std::max<std::int64_t>(spec.experts.per_token, 1));
  if (spec.experts.count > 0 && (!routed || *routed > std::int64_t{1} << 52))
    refuse("tokens x experts per token pass 2^52");
}

/// Tables and masks that live beside the batch, or that the model's forward makes for itself, in its variables.
void add_tables(Decoder& d, std::vector<TensorId>& locals) {
  const auto made = [&](const char* part, Shape shape, DType dtype) {
    return d.program.op(OpKind::custom, d.name(part), {}, std::move(shape), dtype);
  };
  const bool huggingface = d.is(ModelCode::huggingface);
  if (d.spec.rotary && huggingface) {
    // LlamaRotaryEmbedding.forward: cos and sin of this batch, in the activations' type.
    d.cos = made("rotary_cos", {1, 1, d.sequence, d.rotary_dim}, d.compute);
    d.sin = made("rotary_sin", {1, 1, d.sequence, d.rotary_dim}, d.compute);
  } else if (d.spec.rotary) {
    d.cos = d.program.input("rotary_cos", {d.sequence, d.rotary_dim}, DType::float32);
    d.sin = d.program.input("rotary_sin", {d.sequence, d.rotary_dim}, DType::float32);
  }
  locals.insert(locals.end(), {d.cos, d.sin});
  if (d.is(ModelCode::megatron)) return;  // the mask comes with the batch
  if (d.spec.attention != "eager" || !d.spec.causal) return;
  if (huggingface && d.habits.mask == EagerMask::buffer_of_model)  // all positions
    d.mask = d.program.input("causal_mask", {d.spec.max_positions, d.spec.max_positions}, DType::boolean);
  else if (huggingface && d.habits.mask == EagerMask::added)
    d.mask = made("causal_mask", {1, 1, d.sequence, d.sequence}, d.compute);
  else if (!huggingface)
    d.mask = d.program.input("causal_mask", {d.sequence, d.sequence}, DType::boolean);
  locals.push_back(d.mask);
}

/// GPT2Attention.bias: a triangle of all positions, one a layer.
void add_layer_mask(Decoder& d) {
  if (d.is(ModelCode::huggingface) && d.habits.mask == EagerMask::buffer_of_layer && d.spec.attention == "eager")
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
  const std::int64_t keys = d.sequence * d.context_ranks;  // get_batch_on_this_cp_rank divides the mask by its rows
  d.mask = d.batch_input("attention_mask", {d.batch, 1, d.sequence, keys}, DType::boolean);
  ids.positions = d.batch_input("position_ids", tokens, DType::int64);
  locals.insert(locals.end(), {ids.tokens, ids.positions, d.labels, d.mask});
  return ids;
}

Ids batch_of(Decoder& d, std::vector<TensorId>& locals) {
  if (d.is(ModelCode::megatron)) return megatron_batch(d, locals);
  // The trainer's batches have a mask, which flash and sdpa do not read when nothing is padded.
  if (d.is(ModelCode::huggingface) && d.training.profile.loop == "huggingface")
    d.batch_input("attention_mask", {d.batch, d.sequence}, DType::int64);
  return {.tokens = d.batch_input("input_ids", {d.batch, d.sequence}, DType::int64)};
}

/// Token table and ids to the first block's input. Locals of the model's forward live until its end; Megatron's
/// embedding is a module whose own locals go when it returns.
TensorId embed(Decoder& d, TensorId& token_table, std::vector<TensorId>& locals) {
  d.begin_layer("embedding", "other", false);
  if (!d.spec.causal) return encoder_embedding(d, token_table, locals);
  const bool megatron = d.is(ModelCode::megatron);
  std::vector<TensorId> own;
  std::vector<TensorId>& parts = megatron ? own : locals;
  const Shape rows = {d.batch, d.sequence, d.spec.hidden};
  Ids ids = batch_of(d, locals);
  token_table = d.weight("tokens.weight", {d.spec.vocab, d.spec.hidden});
  const bool splits = d.tensor_ranks > 1;
  TensorId x = splits ? split_lookup(d, ids.tokens, token_table)
                      : d.program.op(OpKind::embedding, "embedding.tokens", {ids.tokens, token_table}, rows,
                                     d.tensor(token_table).dtype);
  parts.push_back(x);
  // PEFT with checkpointing: enable_input_require_grads. Regions have no trained input else.
  if (!d.tensor(x).requires_grad && d.training.lora.input_requires_grad) d.program.make_leaf(x);
  if (d.spec.embedding_norm) {  // VocabParallelEmbedding.forward
    x = norm(d, "embedding_norm", x);
    parts.push_back(x);
  }
  if (has_position_table(d.spec)) {
    if (!megatron) ids.positions = d.batch_input("position_ids", {1, d.sequence}, DType::int64);
    const Shape position_rows = {megatron ? d.batch : 1, d.sequence, d.spec.hidden};
    const TensorId table = d.weight("positions.weight", {d.spec.max_positions, d.spec.hidden});
    const TensorId positions = d.program.op(OpKind::embedding, "embedding.positions", {ids.positions, table},
                                            position_rows, d.tensor(table).dtype);
    x = d.pointwise(OpKind::add, "add", {x, positions});
    parts.push_back(positions);
  }
  if (d.habits.scales_embedding) x = d.pointwise(OpKind::scale, "normalizer", {x});  // times sqrt(hidden)
  if (d.habits.multipliers) parts.back() = x;                              // GraniteModel.forward binds its name anew
  const bool scattered = d.divides_tokens && !has_position_table(d.spec);  // by the look-up
  if (megatron && !scattered) x = d.contiguous("sequence_first", d.transpose("transposed", x, 0, 1));
  if (d.divides_tokens && !scattered) {
    own.push_back(x);
    x = own_tokens(d, x);
  }
  x = d.dropout("dropout", x, d.spec.embedding_dropout);
  for (const TensorId id : own) d.ends_scope(id);
  if (megatron) locals.push_back(x);
  add_tables(d, locals);
  return x;
}

TensorId residual_add(Decoder& d, const std::string& part, TensorId x, const Branch& branch) {
  if (!d.is(ModelCode::megatron)) return d.pointwise(OpKind::add, part, {x, branch.out});
  std::vector<TensorId> inputs = {branch.out};
  if (branch.bias != no_tensor) inputs.push_back(branch.bias);
  inputs.push_back(x);
  return d.pointwise(OpKind::bias_dropout_add, part, std::move(inputs), {.probability = d.spec.residual_dropout});
}

/// x + branch, between norms where the model has them.
TensorId after_branch(Decoder& d, const std::string& part, TensorId x, Branch branch) {
  if (d.spec.norms == Norms::around) branch.out = norm(d, part + "_out_norm", branch.out);
  const TensorId made = branch.out;
  if (d.habits.multipliers) branch.out = d.pointwise(OpKind::scale, part + "_multiplier", {made});
  const TensorId sum = residual_add(d, part + "_residual", x, branch);
  if (made != branch.out) d.ends_scope(made);  // a variable of the block until it names the sum
  return d.spec.norms == Norms::after ? norm(d, part + "_norm", sum) : sum;
}

TensorId before_branch(Decoder& d, const std::string& part, TensorId x) {
  return d.spec.norms == Norms::after ? x : norm(d, part + "_norm", x);
}

/// One norm, both branches, one sum (modeling_phi.py, PhiDecoderLayer).
TensorId parallel_block(Decoder& d, TensorId x) {
  const TensorId normed = norm(d, "attention_norm", x);
  const Branch mixed = attention(d, normed);
  const Branch fed = feed_forward(d, "mlp", normed, d.spec.ffn_hidden);
  d.ends_scope(normed);
  if (d.is(ModelCode::megatron))
    return residual_add(d, "mlp_residual", residual_add(d, "attention_residual", x, mixed), fed);
  const TensorId both = d.pointwise(OpKind::add, "branches", {mixed.out, fed.out});
  for (const TensorId local : {mixed.out, fed.out}) d.ends_scope(local);
  return d.pointwise(OpKind::add, "residual", {both, x});
}

TensorId serial_block(Decoder& d, std::int64_t number, TensorId x) {
  const TensorId middle = after_branch(d, "attention", x, attention(d, before_branch(d, "attention", x)));
  const TensorId inner = before_branch(d, "mlp", middle);
  const Branch fed =
      has_experts(d.spec, number) ? expert_layer(d, number, inner) : feed_forward(d, "mlp", inner, d.spec.ffn_hidden);
  const TensorId out = after_branch(d, "mlp", middle, fed);
  d.ends_scope(middle);
  return out;
}

/// The caller's variable keeps the input until the block returns.
TensorId block(Decoder& d, std::int64_t number, TensorId x) {
  d.begin_layer("layers." + std::to_string(number), "block", true);
  add_layer_mask(d);
  const TensorId out = d.spec.parallel_branches ? parallel_block(d, x) : serial_block(d, number, x);
  d.ends_scope(x);
  return out;
}

TensorId model_loss(Decoder& d, TensorId hidden, TensorId token_table, const std::vector<TensorId>& locals) {
  if (d.spec.head == "classification") return classification_loss(d, hidden);
  if (d.habits.masked_words) return masked_language_loss(d, hidden, token_table);
  return language_loss(d, hidden, token_table, locals);
}

/// A chunk's input, from the chunk before. Megatron-LM gives the batch to the first and the last stage alone.
TensorId receive(Decoder& d, bool ends, TensorId& token_table, std::vector<TensorId>& locals) {
  d.begin_layer("received", "other", false);
  const TensorId x = d.program.input("received", d.stream_rows(d.spec.hidden), d.compute, true);
  if (ends && d.is(ModelCode::megatron)) megatron_batch(d, locals);
  add_tables(d, locals);
  if (ends && d.spec.head == "lm" && d.spec.tied_embeddings)
    token_table = d.weight("tokens.weight", {d.spec.vocab, d.spec.hidden});
  return x;
}

Program with_head(Decoder& d, TensorId x, TensorId token_table, const std::vector<TensorId>& locals) {
  d.begin_layer("head", "other", false);
  if (d.spec.norms != Norms::after) x = norm(d, "norm", x);
  // Megatron's model makes the loss itself; the others return their logits.
  if (!d.is(ModelCode::megatron))
    for (const TensorId local : locals) d.ends_scope(local);
  const TensorId loss = model_loss(d, x, token_table, locals);
  for (const auto& [weight, cast] : d.cached_casts) d.ends_scope(cast);  // autocast ends
  check_adapters(d);
  return d.program.finish(loss);
}

/// The next chunk hands the gradient of the output back.
Program without_head(Decoder& d, TensorId x, const std::vector<TensorId>& locals) {
  for (const auto& [weight, cast] : d.cached_casts) d.ends_scope(cast);
  for (const TensorId local : locals) d.ends_scope(local);
  const Tensor output = d.tensor(x);
  d.program.program().loss_gradient = d.program.input("sent.gradient", output.shape, output.dtype);
  return d.program.finish(x);
}

/// Sharded parameters are gathered in the type that the model computes in (FSDP's MixedPrecision), whatever the shards
/// are stored in.
Training as_computed(Training training) {
  const std::optional<DType> type = training.shards.fsdp.parameter_dtype;
  if (!gathers_units(training.shards) || !type) return training;
  training.dtypes.parameters = training.lora.dtype = *type;
  training.dtypes.norms.reset();
  return training;
}

}  // namespace

namespace {

Program encoder_decoder(Decoder& d, const BlockRange& range) {
  if (range.count != d.spec.layers) refuse("an encoder-decoder is not cut into stages");
  const TensorId loss = encoder_decoder_loss(d);
  for (const auto& [weight, cast] : d.cached_casts) d.ends_scope(cast);  // autocast ends
  check_adapters(d);
  Program out = d.program.finish(loss);
  out.model_flops = model_flops(d.spec, d.training);
  return out;
}

}  // namespace

TransformerChunk make_transformer_chunk(const TransformerSpec& spec, const Training& training,
                                        const BlockRange& range) {
  const TransformerSpec whole_spec = checked(spec);
  Decoder d(whole_spec, training);
  check_training(d.spec, training);
  if (d.spec.both.decoder_layers > 0) return {.program = encoder_decoder(d, range)};
  const bool starts = range.first == 0 && !range.embedding_before;
  const bool ends = range.first + range.count == d.spec.layers && !range.head_behind;
  if (!d.spec.causal && !(starts && ends)) refuse("an encoder is not cut into stages");
  TransformerChunk out;
  TensorId token_table = no_tensor;
  std::vector<TensorId> locals;
  TensorId x = starts ? embed(d, token_table, locals) : receive(d, ends, token_table, locals);
  if (!starts) out.input = x;
  if (starts != ends && d.spec.tied_embeddings && d.spec.head == "lm") out.shared_table = token_table;
  for (std::int64_t i = range.first; i < range.first + range.count; ++i) x = block(d, i, x);
  out.program = ends ? with_head(d, x, token_table, locals) : without_head(d, x, locals);
  // Ranks that share tensors share the work.
  const Flops whole = model_flops(whole_spec, training);
  out.program.model_flops = Flops{whole.count * range.count / d.spec.layers / d.tensor_ranks / d.context_ranks};
  return out;
}

Program make_transformer(const TransformerSpec& spec, const Training& training) {
  return make_transformer_chunk(spec, as_computed(training), {0, spec.layers}).program;
}

}  // namespace tidemark
