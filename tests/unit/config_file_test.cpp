// Does a Hugging Face config become the decoder it describes, and is everything refused that would be guessed?
#include "tidemark/input/config_file.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/scenario.hpp"

using namespace tidemark;

namespace {

/// A config file that lives as long as the test.
class TempConfig {
 public:
  explicit TempConfig(const std::string& json) {
    std::filesystem::create_directories(path_.parent_path());
    std::ofstream(path_) << json;
  }
  ~TempConfig() { std::filesystem::remove_all(path_.parent_path()); }
  TempConfig(const TempConfig&) = delete;
  TempConfig& operator=(const TempConfig&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_ = std::filesystem::temp_directory_path() / "tidemark_config_test" / "config.json";
};

TransformerSpec spec_of(const std::string& path, const std::string& inline_fields = "", const std::string& rest = "") {
  const std::string yaml = "model: {family: transformer, config: " + path + inline_fields + "}\n" + rest;
  return std::get<TransformerSpec>(parse_scenario(yaml, "s.yaml").model);
}

std::string error_of(const std::string& json, const std::string& inline_fields = "", const std::string& rest = "") {
  const TempConfig config(json);
  try {
    spec_of(config.path(), inline_fields, rest);
  } catch (const InputError& error) {
    const std::string text = error.what();
    return text.starts_with(config.path()) ? text.substr(config.path().size() - std::string("config.json").size())
                                           : text;
  }
  return "";
}

const std::string llama =
    R"("model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100,
 "intermediate_size": 96)";

}  // namespace

TEST_CASE("config: the files in scenarios/configs have the published numbers of parameters") {
  struct Case {
    std::string name;
    std::int64_t parameters;
  };
  const Case cases[] = {
      {"gpt2", 124'439'808},
      {"gpt2-medium", 354'823'168},
      {"gpt2-large", 774'030'080},
      {"gpt2-xl", 1'557'611'200},
      {"llama-2-7b", 6'738'415'616},
      {"llama-2-13b", 13'015'864'320},
      {"llama-2-70b", 68'976'648'192},
      {"llama-3.1-8b", 8'030'261'248},
      {"llama-3.1-70b", 70'553'706'496},
      {"llama-3.1-405b", 405'853'388'800},
      {"llama-3.2-1b", 1'235'814'400},
      {"mistral-7b", 7'241'732'096},
      {"qwen-1.8b", 1'836'828'672},
      {"qwen-7b", 7'721'324'544},
      {"qwen-14b", 14'167'290'880},
      {"qwen2-0.5b", 494'032'768},
      {"qwen2-7b", 7'615'616'512},
      {"qwen3-0.6b", 596'049'920},
      {"qwen3-8b", 8'190'735'360},
      {"gemma-2b", 2'506'172'416},
      {"gemma-7b", 8'537'680'896},
      {"powerlm-3b", 3'510'819'072},
      {"gemma-2-2b", 2'614'341'888},
      {"mixtral-8x7b", 46'702'792'704},
      {"qwen3-30b-a3b", 30'532'122'624},
      {"qwen1.5-moe-a2.7b", 14'315'784'192},
      {"deepseek-v2-lite", 15'706'484'224},
      // 671,026,419,200 with the 58 x 256 numbers that balance the experts: buffers without a gradient.
      {"deepseek-v3", 671'026'404'352},
      {"phi-2", 2'779'683'840},
      {"santacoder", 1'124'886'528},
      {"bert-base", 109'514'298},  // with the words' head and without a pooler
      {"bert-large", 335'174'458},
      {"vit-base", 86'567'656},
      {"t5-base", 222'903'552},
      {"flan-t5-large", 783'150'080},
  };
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("scenarios/configs")) files += entry.is_regular_file();
  CHECK(files == std::size(cases));
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(parameter_count(spec_of("scenarios/configs/" + c.name + ".json")) == c.parameters);
  }
}

TEST_CASE("config: what a model type fixes, and what it leaves to defaults") {
  const std::string sizes =
      R"("num_hidden_layers": 2, "hidden_size": 1024, "num_attention_heads": 32, "vocab_size": 9, "intermediate_size": 96)";
  struct Case {
    std::string type;
    std::int64_t kv_heads, head_dim, max_positions;
    std::string activation;
    double dropout;
    bool tied, qkv_bias, other_bias, norms_of_decoders, qk_norm;
  };
  const Case cases[] = {
      {"gpt2", 32, 32, 1024, "gelu_new", 0.1, true, true, true, false, false},
      {"llama", 32, 32, 2048, "silu", 0, false, false, false, true, false},
      {"mistral", 8, 32, 131072, "silu", 0, false, false, false, true, false},
      {"qwen2", 32, 32, 32768, "silu", 0, false, true, false, true, false},
      {"qwen3", 32, 128, 32768, "silu", 0, false, false, false, true, true},
      {"gemma", 16, 256, 8192, "gelu_pytorch_tanh", 0, true, false, false, true, false},
  };
  for (const Case& c : cases) {
    CAPTURE(c.type);
    const TempConfig config("{\"model_type\": \"" + c.type + "\", " + sizes + "}");
    const TransformerSpec spec = spec_of(config.path());
    CHECK(spec.kv_heads == c.kv_heads);
    CHECK(spec.head_dim == c.head_dim);
    CHECK(spec.max_positions == c.max_positions);
    CHECK(spec.activation == c.activation);
    CHECK(spec.attention_dropout == c.dropout);
    CHECK(spec.embedding_dropout == c.dropout);
    CHECK(spec.residual_dropout == c.dropout);
    CHECK(spec.tied_embeddings == c.tied);
    CHECK(spec.qkv_bias == c.qkv_bias);
    CHECK(spec.projection_bias == c.other_bias);
    CHECK(spec.ffn_bias == c.other_bias);
    CHECK(spec.rms_norm == c.norms_of_decoders);
    CHECK(spec.rotary == c.norms_of_decoders);
    CHECK(spec.gated_ffn == c.norms_of_decoders);
    CHECK(spec.qk_norm == c.qk_norm);
  }
}

TEST_CASE("config: either spelling, null for a default, inline fields over both") {
  const TempConfig gpt2(R"({"model_type": "gpt2", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
                            "vocab_size": 100, "n_inner": null, "n_positions": 32, "n_ctx": 32, "attn_pdrop": 0})");
  CHECK(spec_of(gpt2.path()).ffn_hidden == 256);
  CHECK(spec_of(gpt2.path()).attention_dropout == 0);
  CHECK(spec_of(gpt2.path()).residual_dropout == 0.1);
  CHECK(spec_of(gpt2.path(), ", dropout: 0.25, residual_dropout: 0").residual_dropout == 0);
  CHECK(spec_of(gpt2.path(), ", dropout: 0.25, residual_dropout: 0").embedding_dropout == 0.25);
  const TransformerSpec wide = spec_of(gpt2.path(), ", hidden: 128, attention: flash, tied_embeddings: false");
  CHECK(wide.hidden == 128);
  CHECK(wide.head_dim == 32);
  CHECK(wide.ffn_hidden == 512);
  CHECK(wide.attention == "flash");
  CHECK_FALSE(wide.tied_embeddings);
}

TEST_CASE("config: a bias of attention is one of all four projections") {
  const TempConfig config("{" + llama + R"(, "attention_bias": true, "mlp_bias": true})");
  CHECK(spec_of(config.path()).qkv_bias);
  CHECK(spec_of(config.path()).projection_bias);
  CHECK(spec_of(config.path()).ffn_bias);
  const TempConfig gemma(R"({"model_type": "gemma", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 9,
      "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32, "intermediate_size": 96, "hidden_act": "gelu"})");
  CHECK(spec_of(gemma.path()).activation == "gelu_pytorch_tanh");
}

TEST_CASE("config: fields that leave sizes alone are ignored") {
  CHECK(error_of("{" + llama + R"(, "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": [2, 3],
      "initializer_range": 0.02, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "rope_scaling": {"factor": 8.0},
      "torch_dtype": "bfloat16", "transformers_version": "4.42.3", "use_cache": true, "pretraining_tp": 2,
      "attention_dropout": 0.0, "attention_bias": false, "sliding_window": null, "output_attentions": false})") == "");
}

TEST_CASE("config: what is refused") {
  struct Case {
    std::string name;
    std::string json;
    std::string error;
  };
  const Case cases[] = {
      {"not JSON", "model_type: llama", "config.json:1:1: error: not valid JSON"},
      {"a list", "[]", "config.json:1:1: error: expected a Hugging Face config: a JSON object of fields"},
      {"no model type", "{\"hidden_size\": 64}",
       "config.json: error: missing field 'model_type'; expected a Hugging Face config (JSON)"},
      {"an unknown model type", "{\"model_type\": \"mamba\"}",
       "config.json:1:16: error: unknown model_type 'mamba'; known are: gpt2, llama, mistral, qwen, qwen2, qwen3, "
       "gemma, gemma2, granite, phi, mixtral, qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3, gpt_bigcode, bert, vit, "
       "t5"},
      {"an unknown field", "{" + llama + ",\n \"num_memory_tokens\": 8}",
       "config.json:3:2: error: unknown field \"num_memory_tokens\" for model_type 'llama'; it could change sizes, so "
       "it is not ignored"},
      {"experts of a dense model", "{" + llama + ",\n \"num_local_experts\": 8}",
       "config.json:3:2: error: field 'num_local_experts' has no meaning for model_type 'llama'"},
      {"a field of another type", "{" + llama + ",\n \"embd_pdrop\": 0.1}",
       "config.json:3:2: error: field 'embd_pdrop' has no meaning for model_type 'llama'"},
      {"a setting that is not modelled",
       R"({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": true, "n_layer": 2})",
       "config.json:1:59: error: 'scale_attn_by_inverse_layer_idx' 'true' is not modelled; only false is"},
      {"windowed layers", "{" + llama + ",\n \"layer_types\": [\"full_attention\", \"sliding_attention\"]}",
       "config.json:3:36: error: layer type \"sliding_attention\" is not modelled; only full_attention is"},
      {"two spellings that differ", "{" + llama + ",\n \"n_embd\": 128}",
       "config.json:3:12: error: 'n_embd' contradicts what the same file says under another spelling"},
      {"a size that is no number", "{" + llama + ",\n \"head_dim\": \"16\"}",
       "config.json:3:14: error: 'head_dim' must be a positive integer, not \"16\""},
      {"a size of 0", "{" + llama + ",\n \"head_dim\": 0}",
       "config.json:3:14: error: 'head_dim' must be a positive integer, not '0'"},
      {"half a head", "{" + llama + ",\n \"head_dim\": 1.5}",
       "config.json:3:14: error: 'head_dim' must be a positive integer, not '1.5'"},
      {"a dropout above 1", "{" + llama + ",\n \"attention_dropout\": 1.5}",
       "config.json:3:23: error: 'attention_dropout' must be a number from 0 to 1, not '1.5'"},
      {"an unknown activation", "{" + llama + ",\n \"hidden_act\": \"quick_gelu\"}",
       "config.json:3:16: error: unknown activation 'quick_gelu'; known are: gelu, gelu_new, gelu_pytorch_tanh, silu, "
       "relu, tanh"},
      {"a missing size", R"({"model_type": "llama", "hidden_size": 64})",
       "s.yaml:1:8: error: missing 'layers' of the transformer, in 'model' or its config"},
      {"heads that do not divide",
       "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 770,\n \"num_attention_heads\": 12, "
       "\"vocab_size\": 9, \"intermediate_size\": 9}",
       "config.json:2:25: error: 12 heads do not divide the hidden size 770"},
      {"kv_heads that do not divide", "{" + llama + ",\n \"num_key_value_heads\": 3}",
       "config.json:3:25: error: 4 heads are not a multiple of 3 kv_heads"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(error_of(c.json) == c.error);
  }
}

TEST_CASE("config: a sliding window that is shorter than the sequence is modelled for eager attention only") {
  const std::string mistral = R"({"model_type": "mistral", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 100,
    "num_attention_heads": 8, "intermediate_size": 96, "sliding_window": )";
  const std::string longer = "batch: {sequence: 65}";
  CHECK(error_of(mistral + "64}", ", attention: flash", longer) ==
        "s.yaml:2:19: error: a sequence of 65 is longer than the model's sliding window of 64, which is modelled for "
        "attention: eager only");
  CHECK(error_of(mistral + "64}", ", attention: flash", "batch: {sequence: 64}") == "");
  CHECK(error_of(mistral + "64}", ", attention: eager", longer) == "");
  CHECK(error_of(mistral + "null}", ", attention: flash", longer) == "");
  const std::string qwen2 = R"({"model_type": "qwen2", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 100,
    "num_attention_heads": 32, "intermediate_size": 96, "sliding_window": 64, "use_sliding_window": )";
  CHECK(error_of(qwen2 + "false}", ", attention: flash", longer) == "");
  CHECK(error_of(qwen2 + "true}").ends_with("'use_sliding_window' 'true' is not modelled; only false is"));
  CHECK(error_of(R"({"model_type": "mistral", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 100,
    "num_attention_heads": 8, "intermediate_size": 96})",
                 ", attention: sdpa", "batch: {sequence: 4097}") != "");
}
