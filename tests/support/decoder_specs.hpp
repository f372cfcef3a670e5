/// Published decoder configurations, from the fields of their config.json files.
#pragma once

#include <string>
#include <vector>

#include "tidemark/program/transformer.hpp"

namespace tidemark::test {

inline TransformerSpec gpt2_spec() {
  TransformerSpec spec;
  spec.model_type = "gpt2";
  spec.layers = 12;
  spec.hidden = 768;
  spec.heads = spec.kv_heads = 12;
  spec.head_dim = 64;
  spec.ffn_hidden = 3072;
  spec.vocab = 50257;
  spec.max_positions = 1024;
  spec.embedding_dropout = spec.attention_dropout = spec.residual_dropout = 0.1;
  spec.activation = "gelu_new";
  spec.tied_embeddings = true;
  spec.qkv_bias = spec.projection_bias = spec.ffn_bias = true;
  return spec;
}

struct LlamaSizes {
  std::string model_type = "llama";
  std::int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn_hidden = 0, vocab = 0;
};
inline TransformerSpec llama_spec(const LlamaSizes& sizes) {
  TransformerSpec spec;
  spec.model_type = sizes.model_type;
  spec.layers = sizes.layers;
  spec.hidden = sizes.hidden;
  spec.heads = sizes.heads;
  spec.kv_heads = sizes.kv_heads;
  spec.head_dim = sizes.head_dim;
  spec.ffn_hidden = sizes.ffn_hidden;
  spec.vocab = sizes.vocab;
  spec.activation = "silu";
  spec.gated_ffn = spec.rms_norm = spec.rotary = true;
  return spec;
}

inline TransformerSpec llama3_8b_spec() { return llama_spec({"llama", 32, 4096, 32, 8, 128, 14336, 128256}); }

struct PublishedModel {
  std::string name;
  TransformerSpec spec;
  std::int64_t parameters = 0;
};
/// Totals as the model cards and safetensors indices give them.
inline std::vector<PublishedModel> published_models() {
  TransformerSpec qwen2 = llama_spec({"qwen2", 28, 3584, 28, 4, 128, 18944, 152064});
  qwen2.qkv_bias = true;
  TransformerSpec qwen3 = llama_spec({"qwen3", 28, 1024, 16, 8, 128, 3072, 151936});
  qwen3.qk_norm = qwen3.tied_embeddings = true;
  TransformerSpec gemma = llama_spec({"gemma", 18, 2048, 8, 1, 256, 16384, 256000});
  gemma.activation = "gelu_pytorch_tanh";
  gemma.tied_embeddings = true;
  return {
      {"gpt2", gpt2_spec(), 124'439'808},
      {"llama2_7b", llama_spec({"llama", 32, 4096, 32, 32, 128, 11008, 32000}), 6'738'415'616},
      {"llama2_13b", llama_spec({"llama", 40, 5120, 40, 40, 128, 13824, 32000}), 13'015'864'320},
      {"llama3_1_8b", llama3_8b_spec(), 8'030'261'248},
      {"mistral_7b", llama_spec({"mistral", 32, 4096, 32, 8, 128, 14336, 32000}), 7'241'732'096},
      {"qwen2_7b", qwen2, 7'615'616'512},
      {"qwen3_0.6b", qwen3, 596'049'920},
      {"gemma_2b", gemma, 2'506'172'416},
  };
}

}  // namespace tidemark::test
