/// Transformers (decoders, encoders, both; dense or with experts), op by op, as the profile's model code writes them.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/program/program.hpp"
#include "tidemark/program/training.hpp"

namespace tidemark {

inline constexpr std::array<std::string_view, 19> transformer_model_types = {
    "gpt2",        "llama",       "mistral", "qwen",    "qwen2",     "qwen3",     "gemma",
    "gemma2",      "granite",     "phi",     "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2",
    "deepseek_v3", "gpt_bigcode", "bert",    "vit",     "t5"};

/// Where a block norms: what goes into each branch; each sum (BERT); what goes in and what comes out (Gemma 2).
enum class Norms : std::uint8_t { before, after, around };

/// A decimal number, exactly.
struct Ratio {
  std::int64_t numerator = 1, denominator = 1;
  friend bool operator==(const Ratio&, const Ratio&) = default;
};

/// Routed experts in place of the feed-forward part (Shazeer et al. 2017; Fedus et al. 2021 for the capacity).
struct Experts {
  std::int64_t count = 0;                  // routed experts a layer; 0: the model is dense
  std::int64_t per_token = 0;              // each token goes to so many (top-k)
  std::int64_t hidden = 0;                 // width inside one of them
  std::int64_t shared_hidden = 0;          // width of all shared experts together, which every token visits; 0: none
  bool shared_gate = false;                // a sigmoid of one product weighs the shared experts (Qwen2-MoE)
  bool normalized = true;                  // a token's weights are divided by their sum
  bool sigmoid = false;                    // scores are sigmoids, not a softmax (DeepSeek V3)
  std::int64_t first_dense = 0;            // so many layers before the first one with experts
  std::int64_t every = 1;                  // of the layers after those: layers n - 1, 2n - 1, .. have experts
  std::vector<std::int64_t> dense_layers;  // numbers of further dense layers
  /// Rows of the busiest expert over the mean, the other experts sharing the rest evenly: one for all layers, or one
  /// each. Empty: all the same.
  std::vector<Ratio> imbalance;
  /// At most ceil(mean rows x this) an expert; tokens above are dropped. Without: none is.
  std::optional<Ratio> capacity_factor;
  bool pad_to_capacity = false;  // every expert gets exactly that many rows
  friend bool operator==(const Experts&, const Experts&) = default;
};

/// Keys and values made from a narrow latent row (DeepSeek-V2, 2024, section 2.1). A head of query and key is
/// `nope_dim` + `rope_dim` wide, of value `value_dim`.
struct LatentAttention {
  std::int64_t kv_rank = 0;     // 0: plain attention
  std::int64_t query_rank = 0;  // 0: queries straight from the row
  std::int64_t nope_dim = 0, rope_dim = 0, value_dim = 0;
  friend bool operator==(const LatentAttention&, const LatentAttention&) = default;
};

/// Pictures as input (ViT): square, cut into square patches; a class row stands before them.
struct Image {
  std::int64_t size = 0, patch = 0, channels = 3;
  friend bool operator==(const Image&, const Image&) = default;
};

/// An encoder whose rows a decoder attends to (T5, Raffel et al. 2020). Positions are biases of the scores.
struct EncoderDecoder {
  std::int64_t decoder_layers = 0;  // 0: the model is not one; else `layers` are the encoder's
  std::int64_t buckets = 0;         // of distances between positions: one bias a bucket and head
  friend bool operator==(const EncoderDecoder&, const EncoderDecoder&) = default;
};

/// Fields of a Hugging Face config under neutral names; readers fill them from either spelling.
struct TransformerSpec {
  std::string model_type;  // one of transformer_model_types
  std::int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn_hidden = 0, vocab = 0;
  std::int64_t max_positions = 0;
  double embedding_dropout = 0, attention_dropout = 0, residual_dropout = 0;
  std::string activation;       // gelu, gelu_new (tanh form as separate ops or one kernel), silu, ...
  bool gated_ffn = false;       // gate and up projections
  bool rms_norm = false;        // else layer norm with bias
  bool rotary = false;          // else learned positions
  bool alibi = false;           // neither: scores have biases by distance (Press et al. 2022)
  bool embedding_norm = false;  // between the embedding and the first block (Megatron-DeepSpeed, --embed-layernorm)
  bool tied_embeddings = false;
  bool qkv_bias = false, projection_bias = false, ffn_bias = false;
  bool qk_norm = false;  // norms on query and key heads (Qwen3)
  Norms norms = Norms::before;
  bool causal = true;
  bool parallel_branches = false;  // attention and feed-forward read the same normed row (Phi)
  bool head_bias = false;
  bool softcaps = false;         // scores and logits as cap * tanh(x / cap) (Gemma 2)
  std::int64_t rotary_dim = 0;   // so much of a head is rotated; 0: all
  std::int64_t token_types = 0;  // rows of the segment table (BERT)
  std::int64_t labels = 2;       // classes of head "classification"
  Experts experts;
  LatentAttention latent;
  Image image;
  EncoderDecoder both;
  std::string attention = "eager";        // eager, sdpa, flash, fused
  std::string head = "lm";                // lm, mlm (BERT), classification, none
  std::string flops_convention = "palm";  // palm, torchtitan, megatron: how causal attention counts in model FLOPs
  friend bool operator==(const TransformerSpec&, const TransformerSpec&) = default;
};

/// Throws InputError on sizes that do not fit (heads, kv_heads) or whose product passes 2^63, naming the op.
Program make_transformer(const TransformerSpec& spec, const Training& training);
/// Each tied weight once. Throws InputError past 2^63.
std::int64_t parameter_count(const TransformerSpec& spec);
/// Those a token meets: of the routed experts only `per_token`.
std::int64_t active_parameter_count(const TransformerSpec& spec);
/// Tokens; of a picture its patches and the class row.
std::int64_t rows_of_a_sequence(const TransformerSpec& spec, const Training& training);
/// Does a table of learned positions stand beside the words'?
bool has_position_table(const TransformerSpec& spec);
/// Does layer `number` (from 0) route to experts?
bool has_experts(const TransformerSpec& spec, std::int64_t number);
/// Rows of each routed expert of layer `number`, for `tokens` rows. Throws InputError past 2^63.
std::vector<std::int64_t> expert_rows(const Experts& experts, std::int64_t number, std::int64_t tokens);
/// Textbook forward and backward of one micro-batch, without recompute, as `spec.flops_convention` counts; head_dim
/// must be given. Throws InputError for an unknown convention.
Flops model_flops(const TransformerSpec& spec, const Training& training);

}  // namespace tidemark
