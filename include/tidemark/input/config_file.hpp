/// Which transformer does a Hugging Face config.json describe?
///
/// Fields are read under either spelling (n_embd, hidden_size). A field that is known to leave sizes alone is ignored;
/// one that changes them and is not modelled, and one that is not known at all, are refused: nothing is guessed.
/// Absent fields take Hugging Face's defaults for the model type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/yaml_map.hpp"
#include "tidemark/program/transformer.hpp"

namespace tidemark {

/// A value that may have been given, and where.
template <class T>
struct Given {
  std::optional<T> value;
  SourceLoc where;
  bool overrides = false;  // given in the scenario, over a config or without one
};

/// A transformer's fields under neutral names, as a config or a scenario gives them.
struct DecoderFields {
  Given<std::string> model_type, activation;
  Given<std::int64_t> layers, hidden, heads, kv_heads, head_dim, ffn_hidden, vocab, max_positions, sliding_window;
  Given<double> embedding_dropout, attention_dropout, residual_dropout, hidden_dropout;
  Given<bool> tied_embeddings, qkv_bias, projection_bias, ffn_bias, multi_query;
  Given<std::int64_t> rotary_dim, token_types, labels, image_size, patch_size, channels;
  Given<double> rotary_fraction;
  Given<std::int64_t> experts, experts_per_token, expert_hidden, shared_hidden, shared_experts, first_dense, every;
  Given<bool> normalized, shared_gate, qk_norm, gated_ffn;
  Given<std::string> norm, positions;
  Given<std::string> scoring;
  std::vector<std::int64_t> dense_layers;
  Given<std::int64_t> decoder_layers, position_buckets;
  Given<std::int64_t> query_rank, kv_rank, nope_dim, rope_dim, value_dim;
};

/// `model_type` overrides the file's when not empty. Throws InputError for a field that is refused, an unknown model
/// type, a value of the wrong kind.
DecoderFields read_config(const std::string& path, const std::string& model_type = "");

struct TransformerModel {
  TransformerSpec spec;
  std::optional<std::int64_t> sliding_window;  // attention reaches no further back; not modelled
};

/// The model of family transformer: its config's fields, the inline ones over them, the model type's defaults under
/// both. Throws InputError where a field is missing or they do not fit together.
TransformerModel read_transformer(const YamlMap& model);

}  // namespace tidemark
