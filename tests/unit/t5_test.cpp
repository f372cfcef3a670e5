// What do an encoder and a decoder behind it hold, and how many weights have the published ones?
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/life.hpp"
#include "tidemark/program/transformer.hpp"

using namespace tidemark;
using namespace tidemark::test;

namespace {

// 2 sequences of 4 tokens in and 6 out, 16 wide, 2 heads of 8, 32 inside, 40 words. Bytes in fp32.
const std::string t5 =
    "model: {family: transformer, model_type: t5, layers: 2, hidden: 16, heads: 2, head_dim: 8, ffn_hidden: 32,\n"
    "        vocab: 40, dropout: 0}\n"
    "batch: {size: 2, sequence: 4, target: 6}\n";

struct Sizes {
  std::string name;
  std::int64_t layers, hidden, heads, head_dim, inner;
  bool newer;  // v1.1 and FLAN: gated, and a head of its own
  std::int64_t parameters;
};

}  // namespace

TEST_CASE("t5: parameters of published checkpoints") {
  const Sizes rows[] = {
      {"t5-small", 6, 512, 8, 64, 2048, false, 60'506'624},
      {"t5-base", 12, 768, 12, 64, 3072, false, 222'903'552},
      {"t5-large", 24, 1024, 16, 64, 4096, false, 737'668'096},
      {"flan-t5-small", 8, 512, 6, 64, 1024, true, 76'961'152},
      {"flan-t5-base", 12, 768, 12, 64, 2048, true, 247'577'856},
      {"flan-t5-large", 24, 1024, 16, 64, 2816, true, 783'150'080},
  };
  for (const Sizes& row : rows) {
    CAPTURE(row.name);
    const std::string model =
        "model: {family: transformer, model_type: t5, layers: " + std::to_string(row.layers) +
        ", hidden: " + std::to_string(row.hidden) + ", heads: " + std::to_string(row.heads) +
        ", head_dim: " + std::to_string(row.head_dim) + ", ffn_hidden: " + std::to_string(row.inner) +
        ", vocab: 32128, gated_ffn: " + (row.newer ? "true, activation: gelu_new" : "false") +
        ", tied_embeddings: " + (row.newer ? "false" : "true") + "}\nbatch: {size: 1, sequence: 2}\n";
    const Scenario scenario = parse_scenario(model, "s.yaml", {});
    const TransformerSpec& spec = std::get<TransformerSpec>(scenario.model);
    CHECK(parameter_count(spec) == row.parameters);
    CHECK(parameter_count(make_transformer(spec, scenario.training)) == row.parameters);  // tensor by tensor
  }
}

TEST_CASE("t5: what lives how long") {
  struct Case {
    std::string name;
    std::vector<std::string> sets;
    std::string tensor, life;
  };
  const std::string half = "dtype={parameters: bfloat16, compute: bfloat16}";
  const std::string self = "encoder.layers.0.attention", across = "decoder.layers.0.cross_attention";
  const Case cases[] = {
      {"one bias for all blocks of a stack",
       {},
       self + ".masked_bias",
       "256 B, " + self + ".masked_bias to encoder.norm.norm.scale"},
      {"made by the first block alone", {}, "encoder.layers.1.attention.masked_bias", "never"},
      {"a table a stack", {}, "decoder.layers.0.attention.position_bias.weight", "256 B, start to end"},
      {"a decoder's is as square as its own rows",
       {},
       "decoder.layers.0.attention.masked_bias",
       "576 B, decoder.layers.0.attention.masked_bias to decoder.norm.norm.scale"},
      {"across there are no positions", {}, across + ".position_bias.weight", "never"},
      {"but a mask over the encoder's rows",
       {},
       across + ".masked_bias",
       "384 B, " + across + ".masked_bias to decoder.norm.norm.scale"},
      {"keys across are as many as the encoder's rows",
       {},
       across + ".k_proj",
       "512 B, " + across + ".k_proj to " + across + ".o_proj"},
      {"the encoder's rows stay for all of the decoder",
       {},
       "encoder.norm.norm.scale",
       "512 B, encoder.norm.norm.scale to backward of decoder.layers.0.cross_attention.k_proj"},
      {"a tied head scales the rows", {}, "head.scaled", "768 B, head.scaled to backward of head.lm_head"},
      {"a head of its own does not", {"model.tied_embeddings=false"}, "head.scaled", "never"},
      {"logits as they come", {half}, "loss.float", "never"},
      {"softmax in fp32",
       {half},
       self + ".core_attn.softmax",
       "256 B, " + self + ".core_attn.softmax to backward of " + self + ".core_attn.softmax"},
      {"and what multiplies in 16 bit",
       {half},
       self + ".core_attn.softmax_half",
       "128 B, " + self + ".core_attn.softmax_half to backward of " + self + ".core_attn.context"},
      {"norms square an fp32 copy",
       {half},
       "encoder.layers.0.mlp_norm.float",
       "512 B, encoder.layers.0.mlp_norm.float to backward of encoder.layers.0.mlp_norm.pow"},
      {"adapters train behind a frozen table",
       {"lora={rank: 2, targets: [v_proj]}"},
       "encoder.layers.0.attention.v_proj.lora_A.weight.grad",
       "128 B, backward of encoder.layers.0.attention.v_proj.lora_A to end"},
      {"a gate",
       {"model.gated_ffn=true", "model.activation=gelu_new"},
       "encoder.layers.0.mlp.gate_proj.weight",
       "2048 B, start to end"},
      {"as long as the source without a target",
       {"batch={size: 2, sequence: 4}"},
       "decoder.layers.0.attention.core_attn.scores",
       "256 B, decoder.layers.0.attention.core_attn.scores to decoder.layers.0.attention.o_proj"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(life(step_of(t5, c.sets), c.tensor) == c.life);
  }
}

TEST_CASE("t5: products of both stacks, by hand") {
  // A token of the encoder: 2 blocks of 4 x 16 x 16 + 2 x 16 x 32 weights, and keys and values of 2 blocks across.
  // One of the decoder: 2 blocks of 6 x 16 x 16 + 2 x 16 x 32, and the head. Squares: 2 x 4 x 4 + 2 x (6 x 6 + 6 x 4).
  const Step step = step_of(t5, {});
  const std::int64_t encoder = 2 * (4 * 256 + 2 * 512) + 2 * 2 * 256, decoder = 2 * (6 * 256 + 2 * 512) + 40 * 16;
  CHECK(step.model_flops.count == Int128{6 * 2 * (4 * encoder + 6 * decoder) + 12 * 2 * 16 * (2 * 16 + 2 * 60)});
}

TEST_CASE("loss in chunks needs the head that has it") {
  const std::string bert =
      "model: {family: transformer, model_type: bert, layers: 1, hidden: 16, heads: 2, ffn_hidden: 32, vocab: 40,\n"
      "        max_positions: 8}\nbatch: {size: 1, sequence: 4}\n";
  CHECK(error_of(bert, {"loss={chunks: 2}"}) ==
        "s.yaml: error: transformer: 'loss' in chunks or fused is for head lm, not mlm");
  CHECK(error_of(bert, {"loss={fused: true}", "model.head=classification"}) ==
        "s.yaml: error: transformer: 'loss' in chunks or fused is for head lm, not classification");
  CHECK(error_of(t5, {"loss={chunks: 2}"}).empty());
}

TEST_CASE("t5: what it does not have is refused") {
  struct Row {
    std::string name, set, error;
  };
  const Row rows[] = {
      {"sdpa", "model.attention=sdpa",
       "--set model.attention=sdpa: error: t5 has attention: eager only, as its scores have a bias"},
      {"another head", "model.head=none", "--set model.head=none: error: t5 has head: lm only"},
      {"positions", "model.positions=rotary",
       "--set model.positions=rotary: error: 'positions' has no meaning for model_type 't5'"},
      {"another code", "profile=megatron",
       "s.yaml: error: transformer: model_type 't5' has the model codes reference and huggingface only"},
      {"float16", "dtype={parameters: float16}",
       "s.yaml: error: transformer: t5 in float16 clamps each block's sums, which is not modelled; bfloat16 and "
       "float32 "
       "are"},
      {"stages", "parallel={pipeline: 2, micro_batches: 2}",
       "s.yaml: error: transformer: an encoder-decoder is not cut into stages"},
      {"a target without a decoder",
       "model={family: transformer, model_type: llama, layers: 1, hidden: 16, heads: 2, ffn_hidden: 32, vocab: 40}",
       "s.yaml:3:39: error: 'target' has no meaning for model_type 'llama'"},
      {"a decoder of another type",
       "model={family: transformer, model_type: llama, layers: 1, hidden: 16, heads: 2, ffn_hidden: 32, vocab: 40, "
       "decoder_layers: 2}",
       "--set model={family: transformer, model_type: ll...:1:118: error: 'decoder_layers' has no meaning for "
       "model_type "
       "'llama'"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    CHECK(error_of(t5, {row.set}) == row.error);
  }
}
