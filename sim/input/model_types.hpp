/// What is a Hugging Face model type made of, and what are its defaults for what a config leaves out?
///
/// Internal to the reader of transformers. Defaults are those of transformers' configuration_<type>.py.
#pragma once

#include <string>
#include <string_view>

#include "tidemark/base/errors.hpp"
#include "tidemark/program/transformer.hpp"

namespace tidemark {

struct ModelType {
  std::string_view name;
  bool rms_norm = true, rotary = true, gated_ffn = true;
  std::string_view activation = "silu";
  bool tied = false;
  bool qkv_bias = false, projection_bias = false, ffn_bias = false, head_bias = false;
  bool qk_norm = false;
  Norms norms = Norms::before;
  bool causal = true;
  bool parallel_branches = false;
  bool softcaps = false;
  std::string_view head = "lm";
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: hidden / heads
  std::int64_t max_positions = 0;
  double dropout = 0;
  std::int64_t sliding_window = 0;  // 0: none
  std::int64_t token_types = 0;
  Experts experts = {};  // count 0: none, unless the config gives it
  bool has_experts = false;
  bool latent = false;
  Image image = {};
  bool encoder_decoder = false;
};

/// Throws InputError, at `where`, naming the known types.
const ModelType& model_type(const std::string& name, const SourceLoc& where);

}  // namespace tidemark
