/// Any small MLP and transformer, for properties; what a test wants otherwise it sets afterwards.
#pragma once

#include <rapidcheck.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "support/any_policy.hpp"
#include "tidemark/program/mlp.hpp"
#include "tidemark/program/transformer.hpp"

namespace tidemark {

inline bool coin() { return number(0, 1) == 1; }

template <class T>
T one_of(std::initializer_list<T> values) {
  return *rc::gen::elementOf(std::vector<T>(values));
}

inline MlpSpec any_mlp_spec(int least_layers, int most_layers) {
  MlpSpec spec;
  spec.layers = number(least_layers, most_layers);
  spec.rows = number(1, 9);
  spec.width = number(1, 9);
  spec.hidden = number(1, 9);
  spec.style = one_of<std::string>({"matmul", "addmm", "linear", "residual", "inplace"});
  spec.activation = one_of<std::string>({"relu", "gelu", "silu", "tanh"});
  spec.loss = one_of<std::string>({"mse", "sum"});
  spec.input_requires_grad = coin();
  return spec;
}

inline TransformerSpec any_transformer_spec(int least_layers, int most_layers) {
  TransformerSpec spec;
  const bool llama = coin();
  spec.model_type = llama ? "llama" : "gpt2";
  spec.layers = number(least_layers, most_layers);
  spec.kv_heads = number(1, 2);
  spec.heads = spec.kv_heads * (llama ? number(1, 2) : 1);
  spec.head_dim = 4;
  spec.hidden = spec.heads * spec.head_dim;
  spec.ffn_hidden = 4 * spec.hidden;
  spec.vocab = 11;
  spec.max_positions = 8;
  spec.activation = llama ? "silu" : "gelu_new";
  spec.gated_ffn = spec.rms_norm = spec.rotary = llama;
  spec.qkv_bias = spec.projection_bias = spec.ffn_bias = !llama;
  spec.tied_embeddings = coin();
  if (coin()) spec.attention_dropout = spec.residual_dropout = spec.embedding_dropout = 0.1;
  spec.attention = one_of<std::string>({"eager", "sdpa"});
  return spec;
}

}  // namespace tidemark
