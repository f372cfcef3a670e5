// DeepseekV2Attention and DeepseekV3Attention (transformers, modeling_deepseek_v3.py): the latent row of keys and
// values, the part of a key that all heads share, and the heads put together again.
#include "decoder.hpp"

namespace tidemark {
namespace {

TensorId latent_queries(Decoder& d, TensorId x) {
  if (d.spec.latent.query_rank == 0) return d.linear("attention.q_proj", x, d.query_width, false, Split::column);
  const TensorId down = d.linear("attention.q_a_proj", x, d.spec.latent.query_rank, d.spec.qkv_bias);
  return d.linear("attention.q_b_proj", norm(d, "attention.q_a_norm", down), d.query_width, false, Split::column);
}

/// One head of keys seen as all of them: stride 0.
TensorId for_all_heads(Decoder& d, TensorId x) {
  Shape shape = d.tensor(x).shape;
  Shape strides = d.tensor(x).strides;
  shape.at(1) = d.spec.heads;
  strides.at(1) = 0;
  return d.program.alias(OpKind::view, d.name("attention.k_rope_expand"), {x}, std::move(shape), std::move(strides));
}

TensorId join(Decoder& d, const char* part, TensorId plain, TensorId rotated) {
  return d.program.op(OpKind::cat, d.name(part), {plain, rotated}, {d.batch, d.spec.heads, d.sequence, d.spec.head_dim},
                      d.tensor(plain).dtype);
}

}  // namespace

Heads latent_projections(Decoder& d, TensorId x) {
  const LatentAttention& latent = d.spec.latent;
  const TensorId queries = as_heads(d, "q", latent_queries(d, x), d.spec.heads, d.spec.head_dim);
  const std::vector<TensorId> q = d.split_columns(
      "attention.q_split", queries, {{"attention.q_nope", latent.nope_dim}, {"attention.q_rope", latent.rope_dim}});
  const TensorId down = d.linear("attention.kv_a_proj", x, latent.kv_rank + latent.rope_dim, d.spec.qkv_bias);
  const std::vector<TensorId> kv_a = d.split_columns(
      "attention.kv_a_split", down, {{"attention.kv_latent", latent.kv_rank}, {"attention.k_rope", latent.rope_dim}});
  const std::int64_t pair = latent.nope_dim + latent.value_dim;
  const TensorId up = d.linear("attention.kv_b_proj", norm(d, "attention.kv_a_norm", kv_a[0]), d.spec.heads * pair,
                               false, Split::column);
  const std::vector<TensorId> kv =
      d.split_columns("attention.kv_split", as_heads(d, "kv", up, d.spec.heads, pair),
                      {{"attention.k_nope", latent.nope_dim}, {"attention.v", latent.value_dim}});
  const TensorId shared_key =
      as_heads(d, "k_rope", gathered_tokens(d, "attention.k_rope", kv_a[1]), 1, latent.rope_dim);
  const TensorId q_rotated = rotary(d, "q", q[1]);
  const TensorId k_rotated = for_all_heads(d, rotary(d, "k", shared_key));
  Heads heads;
  heads.q = join(d, "attention.q_join", q[0], q_rotated);
  heads.k = join(d, "attention.k_join", kv[0], k_rotated);
  heads.v = kv[1];
  for (const TensorId local : {queries, q[0], q[1], down, kv_a[0], kv_a[1], kv[0], q_rotated, k_rotated})
    d.ends_scope(local);
  return heads;
}

}  // namespace tidemark
