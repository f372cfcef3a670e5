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
      {"type", [](TransformerSpec& m, Training&) { m.model_type = "bert"; },
       "unknown model_type 'bert'; known are gpt2, llama, mistral, qwen2, qwen3, gemma"},
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
      {"head", [](TransformerSpec& m, Training&) { m.head = "mlm"; }, "unknown head 'mlm'; known are lm, none"},
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
