#include "tidemark/program/transformer.hpp"

#include <initializer_list>
#include <limits>
#include <string>

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

/// Of one block.
Int128 block_parameters(const TransformerSpec& spec) {
  const Int128 hidden = spec.hidden;
  const Int128 head_dim = spec.head_dim > 0 ? spec.head_dim : spec.hidden / spec.heads;
  const Int128 query = spec.heads * head_dim;
  const Int128 qkv = query + 2 * (spec.kv_heads * head_dim);
  const Int128 ffn_in = (spec.gated_ffn ? 2 : 1) * Int128{spec.ffn_hidden};
  const Int128 weights = hidden * qkv + query * hidden + hidden * ffn_in + spec.ffn_hidden * hidden;
  const Int128 biases =
      (spec.qkv_bias ? qkv : 0) + (spec.projection_bias ? hidden : 0) + (spec.ffn_bias ? ffn_in + hidden : 0);
  const Int128 norms =
      2 * norm_parameters(spec, hidden) + (spec.qk_norm ? 2 * norm_parameters(spec, head_dim) : Int128{0});
  return weights + biases + norms;
}

Int128 all_parameters(const TransformerSpec& spec) {
  const Int128 table = Int128{spec.vocab} * spec.hidden;
  const Int128 positions = spec.rotary ? 0 : Int128{spec.max_positions} * spec.hidden;
  const Int128 head = spec.head == "lm" && !spec.tied_embeddings ? table : 0;
  return table + positions + spec.layers * block_parameters(spec) + norm_parameters(spec, spec.hidden) + head;
}

}  // namespace

std::int64_t parameter_count(const TransformerSpec& spec) {
  const Int128 count = all_parameters(spec);
  if (count > std::numeric_limits<std::int64_t>::max())
    throw InputError("transformer: the number of parameters passes 2^63");
  return static_cast<std::int64_t>(count);
}

Flops model_flops(const TransformerSpec& spec, const Training& training) {
  const Int128 tokens = Int128{training.batch.size} * training.batch.sequence;
  const Int128 query = Int128{spec.heads} * spec.head_dim;
  const Int128 parameters = parameter_count(spec);
  // Two products of scores and context, forward and twice backward, over the whole square: none of the three halves
  // for the causal mask.
  const Int128 attention = product({12, spec.layers, query, training.batch.sequence, tokens});
  // Chowdhery et al. 2022, appendix B: 6 N + 12 L H Q T a token, N all parameters.
  if (spec.flops_convention == "palm") return Flops{product({6, parameters, tokens}) + attention};
  // torchtitan, get_dense_model_nparams_and_flops: the same without nn.Embedding tables; a tied head goes with its
  // table.
  if (spec.flops_convention == "torchtitan") {
    const Int128 rows = Int128{spec.vocab} + (spec.rotary ? 0 : spec.max_positions);
    return Flops{product({6, parameters - rows * spec.hidden, tokens}) + attention};
  }
  // Megatron-LM, num_floating_point_operations (training/training.py), products only:
  // 12 B s L h^2 ((1 + kv_heads/heads + s/h) query/h + ffn/h (3/2 if gated) + V / (2 L h)), multiplied out.
  if (spec.flops_convention == "megatron") {
    const Int128 kv = Int128{spec.kv_heads} * spec.head_dim;
    const Int128 block =
        Int128{spec.hidden} * (12 * (query + kv) + (spec.gated_ffn ? 18 : 12) * Int128{spec.ffn_hidden});
    const Int128 head = 6 * Int128{spec.hidden} * spec.vocab;
    return Flops{product({tokens, product({spec.layers, block}) + head}) + attention};
  }
  throw InputError("transformer: unknown flops_convention '" + spec.flops_convention +
                   "'; known are palm, torchtitan, megatron");
}

}  // namespace tidemark
