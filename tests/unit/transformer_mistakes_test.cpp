#include <doctest/doctest.h>

#include <string>

#include "support/small_decoders.hpp"
#include "tidemark/base/errors.hpp"

using namespace tidemark;
using namespace tidemark::test;

TEST_CASE("decoders: mistakes are named") {
  struct Case {
    std::string name;
    void (*spoil)(TransformerSpec&, Training&);
    std::string message;
  };
  const Case cases[] = {
      {"type", [](TransformerSpec& m, Training&) { m.model_type = "mamba"; },
       "unknown model_type 'mamba'; known are gpt2, llama, mistral, qwen, qwen2, qwen3, gemma, gemma2, granite, phi, "
       "mixtral, qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3, gpt_bigcode, bert, vit, t5"},
      {"layers", [](TransformerSpec& m, Training&) { m.layers = 0; }, "'layers' must be positive, not 0"},
      {"many layers", [](TransformerSpec& m, Training&) { m.layers = 1'000'000'000; },
       "'layers' must be at most 100000, not 1000000000"},
      {"heads", [](TransformerSpec& m, Training&) { m.heads = m.kv_heads = 5; },
       "hidden 16 is not divisible by heads 5"},
      {"kv_heads", [](TransformerSpec& m, Training&) { m.kv_heads = 3; }, "heads 4 is not divisible by kv_heads 3"},
      {"activation", [](TransformerSpec& m, Training&) { m.activation = "mish"; },
       "unknown activation 'mish'; known are relu, gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, silu, swish, tanh"},
      {"attention", [](TransformerSpec& m, Training&) { m.attention = "paged"; },
       "unknown attention 'paged'; known are eager, sdpa, flash, fused"},
      {"head", [](TransformerSpec& m, Training&) { m.head = "seq2seq"; },
       "unknown head 'seq2seq'; known are lm, mlm, classification, none"},
      {"masked words of a decoder", [](TransformerSpec& m, Training&) { m.head = "mlm"; },
       "head 'mlm' is not one of model_type 'gpt2'"},
      {"dropout", [](TransformerSpec& m, Training&) { m.attention_dropout = 1; },
       "'attention_dropout' must be at least 0 and below 1"},
      {"positions", [](TransformerSpec&, Training& how) { how.batch.sequence = 33; },
       "sequence 33 is above the 32 learned positions"},
      {"batch", [](TransformerSpec&, Training& how) { how.batch.size = 0; }, "'batch size' must be positive, not 0"},
      {"chunks", [](TransformerSpec&, Training& how) { how.loss.chunks = 0; }, "'loss.chunks' must be positive, not 0"},
      {"odd rotary heads",
       [](TransformerSpec& m, Training&) {
         m.rotary = true;
         m.head_dim = 3;
       },
       "rotary positions need an even head_dim, not 3"},
      {"code", [](TransformerSpec&, Training& how) { how.profile.model_code = "jax"; },
       "unknown model_code 'jax'; known are reference, huggingface, megatron, torchtitan, llm.c"},
      {"more experts a token than experts",
       [](TransformerSpec& m, Training&) {
         m.experts.count = 4;
         m.experts.per_token = 5;
         m.experts.hidden = 8;
       },
       "5 experts a token are more than the 4 there are"},
      {"imbalance of other layers",
       [](TransformerSpec& m, Training&) {
         m.experts.count = 4;
         m.experts.per_token = 2;
         m.experts.hidden = 8;
         m.experts.imbalance = {{1, 1}, {1, 1}, {1, 1}};
       },
       "'imbalance' has 3 entries; expected 1 or one for each of the 2 layers"},
      {"an imbalance above all rows",
       [](TransformerSpec& m, Training&) {
         m.experts.count = 4;
         m.experts.per_token = 2;
         m.experts.hidden = 8;
         m.experts.imbalance = {{9, 2}};
       },
       "'imbalance' must be from 1 to the number of experts"},
      {"padding to nothing",
       [](TransformerSpec& m, Training&) {
         m.experts.count = 4;
         m.experts.per_token = 2;
         m.experts.hidden = 8;
         m.experts.pad_to_capacity = true;
       },
       "'pad_to_capacity' needs a 'capacity_factor'"},
      {"patches that do not divide",
       [](TransformerSpec& m, Training&) {
         m.image = {.size = 30, .patch = 7, .channels = 3};
         m.head = "none";
       },
       "image_size 30 is not divisible by patch_size 7"},
      {"words of a picture", [](TransformerSpec& m, Training&) { m.image = {.size = 32, .patch = 8, .channels = 3}; },
       "pictures have no next word: head is classification or none"},
      {"a rotated part above the head",
       [](TransformerSpec& m, Training&) {
         m.rotary = true;
         m.rotary_dim = 6;
       },
       "rotary_dim 6 is above head_dim 4"},
      {"an encoder in Megatron's code",
       [](TransformerSpec& m, Training& how) {
         m.model_type = "bert";
         m.head = "none";
         m.causal = false;
         how.profile.model_code = "megatron";
       },
       "model_type 'bert' has the model codes reference and huggingface only"},
      {"convention", [](TransformerSpec& m, Training&) { m.flops_convention = "mlperf"; },
       "unknown flops_convention 'mlperf'; known are palm, torchtitan, megatron"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    TransformerSpec spec = small_gpt2();
    Training how = training("reference", "ideal");
    c.spoil(spec, how);
    CHECK_THROWS_WITH_AS(make_transformer(spec, how), ("error: transformer: " + c.message).c_str(), InputError);
  }
}

TEST_CASE("decoders: sizes whose product passes 2^63 name the tensor or the op") {
  const auto message = [](const TransformerSpec& spec, const Training& how) -> std::string {
    try {
      outline_of(spec, how);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  };
  TransformerSpec wide = small_gpt2();
  wide.vocab = wide.hidden = std::int64_t{1} << 40;
  CHECK(message(wide, training("reference", "ideal")) ==
        "error: the size of 'embedding.tokens.weight' passes 2^63 bytes");
  TransformerSpec vocabulary = small_gpt2();
  vocabulary.vocab = std::int64_t{1} << 48;
  Training many = training("reference", "ideal");
  many.batch.size = std::int64_t{1} << 20;
  CHECK(message(vocabulary, many) == "error: the size of 'head.lm_head' passes 2^63 bytes");
  TransformerSpec llama = small_llama();
  llama.attention = "flash";
  Training far = training("reference", "ideal");
  far.batch.sequence = std::int64_t{1} << 32;
  llama.attention = "eager";
  Training square = training("reference", "ideal");
  square.batch.sequence = std::int64_t{1} << 31;
  CHECK(message(llama, square) == "error: the size of 'layers.0.attention.core_attn.scores' passes 2^63 bytes");
  llama.attention = "flash";
  CHECK(message(llama, far) == "error: the bytes or FLOPs of 'layers.0.attention.core_attn.attention' pass 2^63");
}
