// What tensor-parallel ranks divide, as Megatron-LM does it (megatron/core/tensor_parallel).
#include <utility>

#include "decoder.hpp"

namespace tidemark {
namespace {

/// The dimension of tokens.
std::size_t token_dimension(const Decoder& d) { return d.is(ModelCode::megatron) ? 0 : 1; }

}  // namespace

TransformerSpec shard_of(TransformerSpec spec, const Training& training) {
  const int ranks = training.shards.tensor;
  if (ranks == 1) return spec;
  spec.heads /= ranks;
  spec.kv_heads /= ranks;
  spec.ffn_hidden /= ranks;
  // tokenizer/tokenizer.py, _vocab_size_with_padding.
  if (training.profile.model_code == "megatron") spec.vocab = round_up(spec.vocab, std::int64_t{128} * ranks);
  spec.vocab /= ranks;
  return spec;
}

TensorId split_product(Decoder& d, std::string_view part, std::vector<TensorId> inputs, std::int64_t out, Split split) {
  Shape shape = d.tensor(inputs[0]).shape;
  shape.back() = out;
  Attributes attributes;
  attributes.ranks = d.tensor_ranks;
  attributes.implementation = split == Split::row ? "row" : "column";
  if (d.divides_tokens) {
    attributes.implementation += split == Split::head ? "_tokens_buffered" : "_tokens";
    std::int64_t& tokens = shape.at(token_dimension(d));
    tokens = split == Split::row ? tokens / d.tensor_ranks : tokens * d.tensor_ranks;
  }
  // get_global_memory_buffer().get_tensor(.., "mpu"), megatron/core/utils.py.
  if (d.divides_tokens && split == Split::head)
    d.program.workspace("global_memory_buffer", d.token_rows(d.spec.hidden), d.compute);
  return d.program.op(OpKind::linear, d.name(part), std::move(inputs), std::move(shape), d.compute,
                      std::move(attributes));
}

TensorId split_lookup(Decoder& d, TensorId ids, TensorId table) {
  Shape rows = d.tensor(ids).shape;
  rows.push_back(d.spec.hidden);
  const DType dtype = d.tensor(table).dtype;
  const TensorId partial =
      d.program.op(OpKind::embedding, d.name("tokens"), {ids, table}, rows, dtype, {.ranks = d.tensor_ranks});
  // Without positions to add, Megatron-LM turns the rows to [sequence, batch] first and divides the sum by tokens.
  if (d.divides_tokens && !has_position_table(d.spec)) {
    const TensorId turned = d.contiguous("sequence_first", d.transpose("transposed", partial, 0, 1));
    d.ends_scope(partial);
    return d.program.op(OpKind::collective, d.name("tokens.reduce_scatter"), {turned}, d.stream_rows(d.spec.hidden),
                        dtype, {.ranks = d.tensor_ranks, .implementation = "reduce_scatter"});
  }
  return d.program.op(OpKind::collective, d.name("tokens.all_reduce"), {partial}, rows, dtype,
                      {.in_place = true, .ranks = d.tensor_ranks, .implementation = "all_reduce"});
}

TensorId own_tokens(Decoder& d, TensorId x) {
  const DType dtype = d.tensor(x).dtype;
  return d.program.op(OpKind::collective, d.name("scatter"), {x}, d.stream_rows(d.spec.hidden), dtype,
                      {.ranks = d.tensor_ranks, .implementation = "scatter"});
}

}  // namespace tidemark
