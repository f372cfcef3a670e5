#include "tidemark/program/transformer.hpp"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string>

#include "model_habits.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

Int128 product(std::initializer_list<Int128> factors) {
  Int128 out = 1;
  for (const Int128 factor : factors)
    if (__builtin_mul_overflow(out, factor, &out)) throw InputError("transformer: the model's FLOPs pass 2^127");
  return out;
}

Int128 norm_parameters(const TransformerSpec& spec, Int128 width) { return spec.rms_norm ? width : 2 * width; }

std::int64_t head_dim(const TransformerSpec& spec) {
  return spec.head_dim > 0 ? spec.head_dim : spec.hidden / spec.heads;
}

/// x W + b.
Int128 projection(Int128 in, Int128 out, bool bias) { return in * out + (bias ? out : 0); }

Int128 latent_attention_parameters(const TransformerSpec& spec) {
  const LatentAttention& latent = spec.latent;
  const Int128 hidden = spec.hidden;
  const Int128 query = Int128{spec.heads} * (latent.nope_dim + latent.rope_dim);
  const Int128 down_query =
      latent.query_rank > 0 ? projection(hidden, latent.query_rank, spec.qkv_bias) + latent.query_rank : Int128{0};
  const Int128 up_query = latent.query_rank > 0 ? Int128{latent.query_rank} : hidden;
  return down_query + up_query * query + projection(hidden, latent.kv_rank + latent.rope_dim, spec.qkv_bias) +
         latent.kv_rank + Int128{latent.kv_rank} * spec.heads * (latent.nope_dim + latent.value_dim) +
         projection(Int128{spec.heads} * latent.value_dim, hidden, spec.projection_bias);
}

Int128 attention_parameters(const TransformerSpec& spec) {
  if (spec.latent.kv_rank > 0) return latent_attention_parameters(spec);
  const Int128 dim = head_dim(spec);
  const Int128 query = spec.heads * dim;
  return projection(spec.hidden, query + 2 * (spec.kv_heads * dim), spec.qkv_bias) +
         projection(query, spec.hidden, spec.projection_bias) +
         (spec.qk_norm ? 2 * norm_parameters(spec, dim) : Int128{0});
}

Int128 feed_forward_parameters(const TransformerSpec& spec, Int128 inner) {
  const Int128 in = (spec.gated_ffn ? 2 : 1) * inner;
  return projection(spec.hidden, in, spec.ffn_bias) + projection(inner, spec.hidden, spec.ffn_bias);
}

Int128 expert_layer_parameters(const TransformerSpec& spec, Int128 routed) {
  const Experts& experts = spec.experts;
  const Int128 shared = experts.shared_hidden > 0 ? feed_forward_parameters(spec, experts.shared_hidden) : Int128{0};
  return Int128{spec.hidden} * experts.count + routed * feed_forward_parameters(spec, experts.hidden) + shared +
         (experts.shared_gate ? spec.hidden : 0);
}

/// A phi block has one norm for both branches; Gemma 2 norms what comes out of each too.
Int128 block_norm_parameters(const TransformerSpec& spec) {
  const int norms = spec.norms == Norms::around ? 4 : spec.parallel_branches ? 1 : 2;
  return norms * norm_parameters(spec, spec.hidden);
}

/// `routed`: of each layer's experts so many.
Int128 block_parameters(const TransformerSpec& spec, Int128 routed) {
  Int128 total = 0;
  for (std::int64_t i = 0; i < spec.layers; ++i)
    total +=
        attention_parameters(spec) + block_norm_parameters(spec) +
        (has_experts(spec, i) ? expert_layer_parameters(spec, routed) : feed_forward_parameters(spec, spec.ffn_hidden));
  return total;
}

Int128 table_rows(const TransformerSpec& spec) {
  if (spec.image.size > 0) return 0;
  return Int128{spec.vocab} + spec.token_types + (has_position_table(spec) ? spec.max_positions : 0);
}

/// The patches' projection, the class row, and a position each.
Int128 image_parameters(const TransformerSpec& spec) {
  const Image& image = spec.image;
  if (image.size == 0) return 0;
  const Int128 side = image.size / image.patch;
  return projection(Int128{image.channels} * image.patch * image.patch, spec.hidden, true) + spec.hidden +
         (side * side + 1) * spec.hidden;
}

/// One after the last block, or after the embedding (BERT).
Int128 end_norm_parameters(const TransformerSpec& spec) { return norm_parameters(spec, spec.hidden); }

Int128 head_parameters(const TransformerSpec& spec) {
  const Int128 hidden = spec.hidden;
  const bool bert = habits_of(spec.model_type).masked_words;
  const Int128 pooler = bert ? projection(hidden, hidden, true) : Int128{0};
  if (spec.head == "none") return pooler;
  const bool biased = bert || spec.image.size > 0;  // decoders score without a bias
  if (spec.head == "classification") return pooler + projection(hidden, spec.labels, biased);
  const Int128 transform = bert ? projection(hidden, hidden, true) + norm_parameters(spec, hidden) : Int128{0};
  return transform + (spec.tied_embeddings ? 0 : spec.vocab * hidden) + (spec.head_bias ? spec.vocab : 0);
}

/// T5: one table, two stacks with a norm at the end and a table of biases each; a decoder's block attends twice.
Int128 encoder_decoder_parameters(const TransformerSpec& spec) {
  const Int128 attention = attention_parameters(spec), norm = norm_parameters(spec, spec.hidden);
  const Int128 inner = feed_forward_parameters(spec, spec.ffn_hidden);
  const Int128 encoder = Int128{spec.layers} * (attention + inner + 2 * norm);
  const Int128 decoder = Int128{spec.both.decoder_layers} * (2 * attention + inner + 3 * norm);
  const Int128 biases = Int128{spec.both.buckets} * spec.heads;
  const Int128 table = Int128{spec.vocab} * spec.hidden;
  return encoder + decoder + 2 * (norm + biases) + (spec.tied_embeddings ? 1 : 2) * table;
}

Int128 all_parameters(const TransformerSpec& spec, Int128 routed) {
  if (spec.both.decoder_layers > 0) return encoder_decoder_parameters(spec);
  return table_rows(spec) * spec.hidden + image_parameters(spec) + block_parameters(spec, routed) +
         (spec.embedding_norm ? 2 : 1) * end_norm_parameters(spec) + head_parameters(spec);
}

std::int64_t fitting(Int128 count) {
  if (count > std::numeric_limits<std::int64_t>::max())
    throw InputError("transformer: the number of parameters passes 2^63");
  return static_cast<std::int64_t>(count);
}

}  // namespace

std::int64_t rows_of_a_sequence(const TransformerSpec& spec, const Training& training) {
  if (spec.image.size == 0) return training.batch.sequence;
  const std::int64_t side = spec.image.size / spec.image.patch;
  return side * side + 1;
}

bool has_position_table(const TransformerSpec& spec) {
  return !spec.rotary && !spec.alibi && spec.image.size == 0 && spec.both.decoder_layers == 0;
}

bool has_experts(const TransformerSpec& spec, std::int64_t number) {
  const Experts& experts = spec.experts;
  if (experts.count == 0 || number < experts.first_dense) return false;
  if (std::ranges::find(experts.dense_layers, number) != experts.dense_layers.end()) return false;
  return (number + 1) % experts.every == 0;
}

std::int64_t parameter_count(const TransformerSpec& spec) { return fitting(all_parameters(spec, spec.experts.count)); }

std::int64_t active_parameter_count(const TransformerSpec& spec) {
  return fitting(all_parameters(spec, spec.experts.per_token));
}

namespace {

/// Each token meets its own stack; the head is the decoder's, and the keys across are the encoder's. Tables are counted
/// once with the head, as in `palm`, or left out but for it; the biases of distances are no products.
Flops encoder_decoder_flops(const TransformerSpec& spec, const Training& training) {
  const Int128 source = training.batch.sequence;
  const Int128 target = training.batch.target > 0 ? training.batch.target : training.batch.sequence;
  const Int128 attention = attention_parameters(spec), inner = feed_forward_parameters(spec, spec.ffn_hidden);
  const Int128 across = attention / 2;  // keys and values of the encoder's rows; queries and output of the decoder's
  const Int128 layers = spec.both.decoder_layers;
  const Int128 products = source * (spec.layers * (attention + inner) + layers * across) +
                          target * (layers * (attention + across + inner) + Int128{spec.vocab} * spec.hidden);
  const Int128 squares = spec.layers * source * source + layers * (target * target + target * source);
  const Int128 width = Int128{spec.heads} * spec.head_dim;
  return Flops{product({6, training.batch.size, products}) + product({12, training.batch.size, width, squares})};
}

}  // namespace

Flops model_flops(const TransformerSpec& spec, const Training& training) {
  if (spec.both.decoder_layers > 0) return encoder_decoder_flops(spec, training);
  const std::int64_t sequence = rows_of_a_sequence(spec, training);
  const Int128 tokens = Int128{training.batch.size} * sequence;
  const bool latent = spec.latent.kv_rank > 0;
  const Int128 query = Int128{spec.heads} * (latent ? spec.latent.nope_dim + spec.latent.rope_dim : spec.head_dim);
  const Int128 value = Int128{spec.heads} * (latent ? spec.latent.value_dim : spec.head_dim);
  const Int128 parameters = active_parameter_count(spec);
  // Two products of scores and context, forward and twice backward, over the whole square: none of the three halves
  // for the causal mask.
  const Int128 attention = product({6, spec.layers, query + value, sequence, tokens});
  // Chowdhery et al. 2022, appendix B: 6 N + 12 L H Q T a token, N all parameters that a token meets.
  if (spec.flops_convention == "palm") return Flops{product({6, parameters, tokens}) + attention};
  // torchtitan, get_dense_model_nparams_and_flops: the same without nn.Embedding tables; a tied head goes with its
  // table.
  if (spec.flops_convention == "torchtitan")
    return Flops{product({6, parameters - table_rows(spec) * spec.hidden, tokens}) + attention};
  // Megatron-LM, num_floating_point_operations (training/training.py), products only:
  // 12 B s L h^2 ((1 + kv_heads/heads + s/h) query/h + ffn/h (3/2 if gated) + V / (2 L h)), multiplied out.
  if (spec.flops_convention == "megatron") {
    TransformerSpec products = spec;  // without biases and norms
    products.qkv_bias = products.projection_bias = products.ffn_bias = products.qk_norm = false;
    const Int128 norms = spec.layers * block_norm_parameters(spec);
    const Int128 latent_norms =
        latent ? spec.layers * (Int128{spec.latent.kv_rank} + spec.latent.query_rank) : Int128{0};
    Int128 routers = 0;
    for (std::int64_t i = 0; i < spec.layers; ++i)
      if (has_experts(spec, i))
        routers += spec.hidden * (Int128{spec.experts.count} + (spec.experts.shared_gate ? 1 : 0));
    const Int128 weights = block_parameters(products, spec.experts.per_token) - norms - latent_norms - routers;
    const Int128 head = Int128{spec.hidden} * spec.vocab;
    return Flops{product({6, tokens, weights + head}) + attention};
  }
  throw InputError("transformer: unknown flops_convention '" + spec.flops_convention +
                   "'; known are palm, torchtitan, megatron");
}

}  // namespace tidemark
