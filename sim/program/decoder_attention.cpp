#include <string>
#include <vector>

#include "decoder.hpp"

namespace tidemark {
namespace {

TensorId split_heads(Decoder& d, const std::string& part, TensorId x, std::int64_t heads) {
  return as_heads(d, part, x, heads, d.spec.head_dim);
}

/// One product for all three (GPT-2's c_attn, Megatron's linear_qkv), split into views. Megatron interleaves: each
/// group of query heads is followed by its key and its value head, so that grouped query heads do not view as heads but
/// copy (megatron/core/transformer/attention.py, get_query_key_value_tensors).
Heads fused_projections(Decoder& d, TensorId x) {
  const std::int64_t width = d.query_width + 2 * d.kv_width;
  const TensorId qkv = d.linear("attention.qkv_proj", x, width, d.spec.qkv_bias, Split::column);
  Shape q = d.token_rows(d.query_width);
  Shape kv = d.token_rows(d.kv_width);
  Shape strides = d.tensor(qkv).strides;
  if (d.is(ModelCode::megatron)) {
    q = d.token_rows(d.spec.kv_heads);
    q.push_back(d.query_width / d.spec.kv_heads);
    kv = d.token_rows(d.spec.kv_heads);
    kv.push_back(d.spec.head_dim);
    strides.back() = width / d.spec.kv_heads;
    strides.push_back(1);
  }
  const std::vector<TensorId> parts = d.program.split(d.name("attention.split"), qkv,
                                                      {{d.name("attention.q"), q, strides},
                                                       {d.name("attention.k"), kv, strides},
                                                       {d.name("attention.v"), kv, strides}});
  return {split_heads(d, "q", parts[0], d.spec.heads), split_heads(d, "k", parts[1], d.spec.kv_heads),
          split_heads(d, "v", parts[2], d.spec.kv_heads)};
}

Heads projections(Decoder& d, TensorId x) {
  if (d.spec.latent.kv_rank > 0) return latent_projections(d, x);
  if (d.is(ModelCode::megatron) || d.habits.fused_qkv) return fused_projections(d, x);
  const auto project = [&](const std::string& part, std::int64_t heads, std::int64_t width) {
    return split_heads(d, part, d.linear("attention." + part + "_proj", x, width, d.spec.qkv_bias, Split::column),
                       heads);
  };
  Heads heads;
  heads.q = project("q", d.spec.heads, d.query_width);
  heads.k = project("k", d.spec.kv_heads, d.kv_width);
  heads.v = project("v", d.spec.kv_heads, d.kv_width);
  return heads;
}

/// apply_rotary_pos_emb (modeling_llama.py): x * cos + rotate_half(x) * sin, where rotate_half is cat(-x2, x1).
TensorId huggingface_rotary(Decoder& d, const std::string& part, TensorId x) {
  const std::size_t last = d.tensor(x).shape.size() - 1;
  const std::int64_t half = d.rotary_dim / 2;
  const TensorId straight = d.pointwise(OpKind::mul, part + ".cos", {x, d.cos});
  const TensorId first = d.slice(part + ".first_half", x, last, half);
  const TensorId second = d.slice(part + ".second_half", x, last, half);
  const TensorId negated = d.pointwise(OpKind::scale, part + ".negate", {second});
  const Tensor like = d.tensor(straight);
  const TensorId rotated = d.program.op_strided(OpKind::cat, d.name(part + ".rotate"), {negated, first}, like.shape,
                                                like.strides, d.tensor(x).dtype);
  d.ends_scope(first);
  d.ends_scope(second);
  const TensorId crossed = d.pointwise(OpKind::mul, part + ".sin", {rotated, d.sin});
  return d.pointwise(OpKind::add, part + ".sum", {straight, crossed});
}

/// apply_rotary_emb (torchtitan, llama3/model): a complex product in fp32.
TensorId torchtitan_rotary(Decoder& d, const std::string& part, TensorId x) {
  const DType in = d.tensor(x).dtype;
  const TensorId wide = d.cast(part + ".float", x, DType::float32);
  return d.cast(part + ".half", d.pointwise(OpKind::rotary, part, {wide, d.cos, d.sin}), in);
}

/// The first `rotary_dim` of each head rotated, the rest as it is (modeling_phi.py).
TensorId partly_rotated(Decoder& d, const std::string& path, TensorId x) {
  const std::int64_t dim = d.tensor(x).shape.back();
  const std::vector<TensorId> parts =
      d.split_columns(path + ".split", x, {{path + ".rotated", d.rotary_dim}, {path + ".passed", dim - d.rotary_dim}});
  const TensorId rotated = huggingface_rotary(d, path, parts[0]);
  const Tensor like = d.tensor(x);
  const TensorId out =
      d.program.op(OpKind::cat, d.name(path + ".join"), {rotated, parts[1]}, like.shape, d.tensor(rotated).dtype);
  for (const TensorId local : {rotated, parts[1]}) d.ends_scope(local);
  return out;
}

void rotate(Decoder& d, Heads& heads) {
  if (!d.spec.rotary || d.spec.latent.kv_rank > 0) return;
  const Heads before = heads;
  heads.q = rotary(d, "q", heads.q);
  heads.k = rotary(d, "k", heads.k);
  d.ends_scope(before.q);
  d.ends_scope(before.k);
}

TensorId repeat_heads(Decoder& d, const std::string& part, TensorId x) {
  if (d.tensor(x).shape.at(1) == d.spec.heads) return x;
  const DType dtype = d.tensor(x).dtype;
  return d.program.op(OpKind::repeat_heads, d.name("attention.core_attn." + part + "_repeat"), {x},
                      {d.batch, d.spec.heads, d.sequence, d.tensor(x).shape.back()}, dtype);
}

/// Scores times 1/sqrt(head_dim), mask, softmax: Megatron as one kernel, GPT-2 with masked_fill, Hugging Face's Llama
/// by adding a mask and with the softmax in fp32, its BERT by adding one in the type at hand.
TensorId probabilities(Decoder& d, TensorId scores) {
  const auto part = [](const char* op) { return std::string("attention.core_attn.") + op; };
  if (d.is(ModelCode::megatron)) return d.pointwise(OpKind::softmax, part("softmax"), {scores});
  TensorId out = d.pointwise(OpKind::scale, part("scale"), {scores});
  if (d.spec.softcaps) out = softcap(d, part("softcap"), out);
  const bool adds = d.is(ModelCode::huggingface) && d.habits.mask == EagerMask::added;
  if (d.mask != no_tensor) out = d.pointwise(adds ? OpKind::add : OpKind::masked_fill, part("mask"), {out, d.mask});
  // torch.max(attn_weights, finfo.min), which keeps what it reads (modeling_llama.py up to 4.29)
  if (d.is_early_llama()) out = d.pointwise(OpKind::clamp, part("max"), {out}, {.implementation = "min"});
  const DType in = d.tensor(out).dtype;
  const bool wide = (adds && d.spec.causal) || d.habits.softmax_in_fp32 || d.training.dtypes.autocast;
  // CUDA's softmax reads fp16 and writes fp32 in one kernel; bf16 is cast first (ATen/native/SoftMax.cpp).
  if (wide && in != DType::float16) out = d.cast(part("softmax_float"), out, DType::float32);
  if (wide) {
    const Tensor like = d.tensor(out);
    out = d.program.op(OpKind::softmax, d.name(part("softmax")), {out}, like.shape, DType::float32);
  } else {
    out = d.pointwise(OpKind::softmax, part("softmax"), {out});
  }
  return d.cast(part("softmax_half"), out, d.compute);
}

/// GPTBigCodeAttention._attn: with one head of keys, the rows of all query heads are those of one product per sequence.
TensorId multi_query_core(Decoder& d, Heads& heads) {
  const std::int64_t rows = d.spec.heads * d.sequence;
  const auto flat = [&](const char* part, TensorId x, std::int64_t height, std::int64_t width) {
    return d.reshape(std::string("attention.core_attn.") + part, x, {d.batch, height, width});
  };
  const TensorId q = flat("q_rows", d.transpose("attention.core_attn.q_tokens", heads.q, 1, 2), rows, d.spec.head_dim);
  const TensorId k = flat("k_rows", heads.k, d.sequence, d.spec.head_dim);
  const TensorId keys = d.transpose("attention.core_attn.k_transposed", k, 1, 2);
  const TensorId scores = d.program.op(OpKind::bmm, d.name("attention.core_attn.scores"), {q, keys},
                                       {d.batch, rows, d.sequence}, d.compute);
  const TensorId weights = probabilities(d, scores);
  heads.weights = d.dropout("attention.core_attn.dropout", weights, d.spec.attention_dropout);
  const TensorId v = flat("v_rows", heads.v, d.sequence, d.spec.head_dim);
  const TensorId out = d.program.op(OpKind::bmm, d.name("attention.core_attn.context"), {heads.weights, v},
                                    {d.batch, rows, d.spec.head_dim}, d.compute);
  const TensorId split =
      d.reshape("attention.core_attn.context_heads", out, {d.batch, d.sequence, d.spec.heads, d.spec.head_dim});
  return d.transpose("attention.core_attn.context_transposed", split, 1, 2);
}

TensorId eager_core(Decoder& d, Heads& heads) {
  if (d.is(ModelCode::huggingface) && d.habits.expands_heads && d.spec.kv_heads == 1) return multi_query_core(d, heads);
  const Shape scores_shape = {d.batch, d.spec.heads, d.sequence, d.sequence};
  const Shape out_shape = {d.batch, d.spec.heads, d.sequence, d.value_dim};
  heads.k = repeat_heads(d, "k", heads.k);
  heads.v = repeat_heads(d, "v", heads.v);
  const TensorId keys = d.transpose("attention.core_attn.k_transposed", heads.k, 2, 3);
  const TensorId scores =
      d.program.op(OpKind::bmm, d.name("attention.core_attn.scores"), {heads.q, keys}, scores_shape, d.compute);
  const TensorId weights = probabilities(d, scores);
  heads.weights = d.dropout("attention.core_attn.dropout", weights, d.spec.attention_dropout);
  return d.program.op(OpKind::bmm, d.name("attention.core_attn.context"), {heads.weights, heads.v}, out_shape,
                      d.compute);
}

/// [batch, heads, rows, head_dim] as a row-major copy of [batch, rows, heads, head_dim].
TensorId batch_first(Decoder& d, const std::string& part, TensorId x) {
  const std::string path = "attention.core_attn." + part;
  const TensorId rows = d.contiguous(path + "_copy", d.transpose(path + "_rows", x, 1, 2));
  return d.transpose(path + "_heads", rows, 1, 2);
}

TensorId padded_values(Decoder& d, TensorId v) {
  Shape shape = d.tensor(v).shape;
  shape.back() = d.spec.head_dim;
  const DType dtype = d.tensor(v).dtype;
  return d.program.op(OpKind::cat, d.name("attention.core_attn.v_pad"), {v}, std::move(shape), dtype);
}

/// One kernel; its output lies in memory as the tokens do, so no copy follows, or batch first.
TensorId fused_core(Decoder& d, Heads& heads) {
  // Hugging Face's sdpa and torchtitan repeat the heads before the call; flash kernels read grouped heads, and
  // gpt_bigcode's one head is expanded without a copy. Up to transformers 4.48 Mistral's code repeats them for flash
  // too (MistralFlashAttention2, MixtralFlashAttention2).
  const bool flash_repeats =
      d.is(ModelCode::huggingface) && d.habits.flash_repeats_heads && d.training.transformers != "4.49";
  const bool sdpa_repeats = d.spec.attention == "sdpa" && !d.is(ModelCode::reference) && !d.habits.expands_heads;
  if (sdpa_repeats || flash_repeats) {
    heads.k = repeat_heads(d, "k", heads.k);
    heads.v = repeat_heads(d, "v", heads.v);
  }
  // flash-attn wants one width: DeepSeek's values are padded to the queries', and the result is cut.
  const bool padded = d.spec.attention == "flash" && d.value_dim < d.spec.head_dim;
  const std::int64_t width = padded ? d.spec.head_dim : d.value_dim;
  if (padded) heads.v = padded_values(d, heads.v);
  const std::int64_t row = d.spec.heads * width;
  // Transformer Engine turns q, k, v to [batch, sequence] for flash-attn and its output back, each by a copy; cuDNN's
  // kernel ("fused") reads and writes [sequence, batch].
  const bool sequence_first = d.is(ModelCode::megatron) && d.spec.attention != "flash";
  if (d.is(ModelCode::megatron) && d.spec.attention == "flash") {
    heads.q = batch_first(d, "q", heads.q);
    heads.k = batch_first(d, "k", heads.k);
    heads.v = batch_first(d, "v", heads.v);
  }
  Shape strides = {sequence_first ? row : d.sequence * row, width, sequence_first ? d.batch * row : row, 1};
  Attributes attributes;
  attributes.probability = d.spec.attention_dropout;
  attributes.causal = d.spec.causal;
  attributes.heads = d.spec.heads;
  attributes.kv_heads = d.tensor(heads.k).shape[1];
  attributes.head_dim = d.spec.head_dim;
  attributes.ranks = d.context_ranks;  // that pass keys and values around
  const TensorId out =
      d.program.op_strided(OpKind::attention, d.name("attention.core_attn.attention"), {heads.q, heads.k, heads.v},
                           {d.batch, d.spec.heads, d.sequence, width}, strides, d.compute, attributes);
  return padded ? d.slice("attention.core_attn.cut", out, 3, d.value_dim) : out;
}

/// Back to [.., heads x value_dim].
TensorId merge_heads(Decoder& d, TensorId x) {
  TensorId out = d.transpose("attention.merge_transposed", x, 1, 2);
  if (d.is(ModelCode::megatron)) out = d.transpose("attention.merge_sequence_first", out, 0, 1);
  out = d.contiguous("attention.core_attn.merge_copy", out);
  return d.reshape("attention.merge", out, d.token_rows(d.value_width));
}

}  // namespace

TensorId as_heads(Decoder& d, const std::string& part, TensorId x, std::int64_t heads, std::int64_t width) {
  Shape shape = d.token_rows(heads);
  shape.push_back(width);
  TensorId out = d.reshape("attention." + part + "_heads", x, shape);
  if (d.spec.qk_norm && d.spec.latent.kv_rank == 0 && (part == "q" || part == "k"))
    out = norm(d, "attention." + part + "_norm", out);
  if (d.is(ModelCode::megatron)) out = d.transpose("attention." + part + "_batch_first", out, 0, 1);
  return d.transpose("attention." + part + "_transposed", out, 1, 2);
}

TensorId rotary(Decoder& d, const std::string& part, TensorId x) {
  const std::string path = "attention." + part + "_rotary";
  if (d.fuses("rotary")) return d.pointwise(OpKind::rotary, path, {x, d.cos, d.sin}, {.in_place = true});
  if (d.is(ModelCode::huggingface))
    return d.rotary_dim < d.tensor(x).shape.back() ? partly_rotated(d, path, x) : huggingface_rotary(d, path, x);
  if (d.is(ModelCode::torchtitan)) return torchtitan_rotary(d, path, x);
  return d.pointwise(OpKind::rotary, path, {x, d.cos, d.sin});
}

TensorId softcap(Decoder& d, const std::string& part, TensorId x) {
  const TensorId small = d.pointwise(OpKind::scale, part + ".divide", {x});
  return d.pointwise(OpKind::scale, part + ".cap", {d.pointwise(OpKind::tanh, part + ".tanh", {small})});
}

Branch attention(Decoder& d, TensorId x) {
  Heads heads = projections(d, x);
  rotate(d, heads);
  heads.q = d.cast("attention.q_cast", heads.q, d.compute);  // under autocast, rotation may have widened them
  heads.k = d.cast("attention.k_cast", heads.k, d.compute);
  heads.v = d.cast("attention.v_cast", heads.v, d.compute);
  const Heads cached = heads;
  const TensorId core = merge_heads(d, d.spec.attention == "eager" ? eager_core(d, heads) : fused_core(d, heads));
  Branch branch;
  if (d.is(ModelCode::megatron)) {
    const TensorId weight = d.weight("attention.o_proj.weight", {d.spec.hidden, d.value_width});
    if (d.spec.projection_bias) branch.bias = d.weight("attention.o_proj.bias", {d.spec.hidden});
    branch.out = d.project("attention.o_proj", core, weight, no_tensor, d.spec.hidden, Split::row);
  } else {
    branch.out = d.linear("attention.o_proj", core, d.spec.hidden, d.spec.projection_bias, Split::row);
    branch.out = d.dropout("attention.output_dropout", branch.out, d.spec.residual_dropout);
  }
  for (const TensorId local : {x, heads.q, heads.k, heads.v, heads.weights}) d.ends_scope(local);
  if (d.training.loop.cache_held && d.spec.causal)  // past_key_value: before heads are repeated
    for (const TensorId part : {cached.k, cached.v}) {
      if (part != heads.k && part != heads.v) d.ends_scope(part);
      d.program.program().logits.push_back(part);
    }
  return branch;
}

}  // namespace tidemark
