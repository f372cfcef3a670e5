/// Decoder transformers (GPT-2, Llama, Mistral, Qwen, Gemma), op by op, as the profile's model code writes them.
#pragma once

#include <optional>
#include <string>

#include "tidemark/program/program.hpp"
#include "tidemark/program/training.hpp"

namespace tidemark {

/// Fields of a Hugging Face config under neutral names; readers fill them from either spelling.
struct TransformerSpec {
  std::string model_type;  // gpt2, llama, mistral, qwen2, qwen3, gemma
  std::int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn_hidden = 0, vocab = 0;
  std::int64_t max_positions = 0;
  double embedding_dropout = 0, attention_dropout = 0, residual_dropout = 0;
  std::string activation;  // gelu, gelu_new (tanh form as separate ops or one kernel), silu, ...
  bool gated_ffn = false;  // gate and up projections
  bool rms_norm = false;   // else layer norm with bias
  bool rotary = false;     // else learned positions
  bool tied_embeddings = false;
  bool qkv_bias = false, projection_bias = false, ffn_bias = false;
  bool qk_norm = false;                   // norms on query and key heads (Qwen3)
  std::string attention = "eager";        // eager, sdpa, flash, fused
  std::string head = "lm";                // lm, none
  std::string flops_convention = "palm";  // palm, torchtitan, megatron: how causal attention counts in model FLOPs
  friend bool operator==(const TransformerSpec&, const TransformerSpec&) = default;
};

/// Throws InputError on sizes that do not fit (heads, kv_heads) or whose product passes 2^63, naming the op.
Program make_transformer(const TransformerSpec& spec, const Training& training);
/// Each tied weight once. Throws InputError past 2^63.
std::int64_t parameter_count(const TransformerSpec& spec);
/// Textbook forward and backward of one micro-batch, without recompute, as `spec.flops_convention` counts; head_dim
/// must be given. Throws InputError for an unknown convention.
Flops model_flops(const TransformerSpec& spec, const Training& training);

}  // namespace tidemark
