#include "model_types.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tidemark/input/quantities.hpp"

namespace tidemark {
namespace {

Experts experts(std::int64_t count, std::int64_t per_token, std::int64_t hidden, bool normalized) {
  Experts out;
  out.count = count;
  out.per_token = per_token;
  out.hidden = hidden;
  out.normalized = normalized;
  return out;
}

ModelType with_biases(ModelType type) {
  type.qkv_bias = type.projection_bias = type.ffn_bias = true;
  return type;
}

ModelType gpt2() {
  return with_biases({.name = "gpt2",
                      .rms_norm = false,
                      .rotary = false,
                      .gated_ffn = false,
                      .activation = "gelu_new",
                      .tied = true,
                      .max_positions = 1024,
                      .dropout = 0.1});
}

/// One head of keys and values for all, unless multi_query is off.
ModelType gpt_bigcode() {
  ModelType type = gpt2();
  type.name = "gpt_bigcode";
  type.activation = "gelu_pytorch_tanh";
  type.kv_heads = 1;
  return type;
}

ModelType gemma(std::string_view name) {
  return {.name = name,
          .activation = "gelu_pytorch_tanh",
          .tied = true,
          .kv_heads = 16,
          .head_dim = 256,
          .max_positions = 8192};
}

ModelType gemma2() {
  ModelType type = gemma("gemma2");
  type.norms = Norms::around;
  type.softcaps = true;
  type.kv_heads = 4;
  type.sliding_window = 4096;
  return type;
}

ModelType phi() {
  ModelType type = with_biases({.name = "phi",
                                .rms_norm = false,
                                .gated_ffn = false,
                                .activation = "gelu_new",
                                .head_bias = true,
                                .parallel_branches = true,
                                .max_positions = 2048});
  return type;
}

ModelType qwen2_moe() {
  ModelType type = {.name = "qwen2_moe", .qkv_bias = true, .kv_heads = 16, .max_positions = 32768, .has_experts = true};
  type.experts = experts(60, 4, 1408, false);
  type.experts.shared_hidden = 5632;
  type.experts.shared_gate = true;
  return type;
}

/// Nothing about experts is assumed: every size must be given.
ModelType deepseek(std::string_view name, bool v3) {
  ModelType type = {.name = name, .max_positions = v3 ? 4096 : 2048, .has_experts = true, .latent = true};
  type.experts.normalized = v3;
  type.experts.sigmoid = v3;
  return type;
}

ModelType bert() {
  return with_biases({.name = "bert",
                      .rms_norm = false,
                      .rotary = false,
                      .gated_ffn = false,
                      .activation = "gelu",
                      .tied = true,
                      .head_bias = true,
                      .norms = Norms::after,
                      .causal = false,
                      .head = "mlm",
                      .max_positions = 512,
                      .dropout = 0.1,
                      .token_types = 2});
}

ModelType vit() {
  return with_biases({.name = "vit",
                      .rms_norm = false,
                      .rotary = false,
                      .gated_ffn = false,
                      .activation = "gelu",
                      .causal = false,
                      .head = "classification",
                      .image = {224, 16, 3}});
}

/// v1.1 and FLAN say feed_forward_proj: gated-gelu, and do not tie the head.
ModelType t5() {
  return {.name = "t5",
          .rotary = false,
          .gated_ffn = false,
          .activation = "relu",
          .tied = true,
          .head_dim = 64,
          .dropout = 0.1,
          .encoder_decoder = true};
}

const std::vector<ModelType>& model_types() {
  static const std::vector<ModelType> all = {
      gpt2(),
      {.name = "llama", .max_positions = 2048},
      {.name = "mistral", .kv_heads = 8, .max_positions = 131072, .sliding_window = 4096},
      {.name = "qwen", .qkv_bias = true, .max_positions = 8192},
      {.name = "qwen2", .qkv_bias = true, .kv_heads = 32, .max_positions = 32768},
      {.name = "qwen3", .qk_norm = true, .kv_heads = 32, .head_dim = 128, .max_positions = 32768},
      gemma("gemma"),
      gemma2(),
      {.name = "granite", .max_positions = 2048},
      phi(),
      {.name = "mixtral",
       .kv_heads = 8,
       .max_positions = 131072,
       .experts = experts(8, 2, 0, true),
       .has_experts = true},
      qwen2_moe(),
      {.name = "qwen3_moe",
       .qk_norm = true,
       .kv_heads = 4,
       .max_positions = 32768,
       .experts = experts(128, 8, 768, false),
       .has_experts = true},
      deepseek("deepseek_v2", false),
      deepseek("deepseek_v3", true),
      gpt_bigcode(),
      bert(),
      vit(),
      t5(),
  };
  return all;
}

}  // namespace

const ModelType& model_type(const std::string& name, const SourceLoc& where) {
  const std::string_view looked_up = name == "phi-msft" ? "phi" : std::string_view(name);
  const auto found = std::ranges::find(model_types(), looked_up, &ModelType::name);
  if (found != model_types().end()) return *found;
  std::vector<std::string> known;
  for (const ModelType& type : model_types()) known.emplace_back(type.name);
  throw InputError(where,
                   fmt::format("unknown model_type '{}'; known are: {}", shown(std::string_view(name)), joined(known)));
}

}  // namespace tidemark
