// What do adapters, 4-bit weights, autocast and a release of transformers change, tensor by tensor?
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/life.hpp"

using namespace tidemark;
using test::life;

namespace {

// 2 sequences of 8 tokens: 16 rows. 32 columns, 64 inside, 96 words; 4 query heads of 8, 2 of keys.
const std::string llama =
    "model: {family: transformer, model_type: llama, layers: 2, hidden: 32, heads: 4, kv_heads: 2, ffn_hidden: 64,\n"
    "        vocab: 96, attention: flash}\n"
    "batch: {size: 2, sequence: 8}\n"
    "dtype: {parameters: bfloat16, compute: bfloat16}\n"
    "optimizer: adamw\n"
    "policy: {kind: full, checkpointing: reentrant}\n";
const std::string lora = "lora={rank: 4, targets: [q_proj]}";
const std::string autocast = "dtype={parameters: bfloat16, autocast: bfloat16}";
const std::string q = "layers.0.attention.q_proj";

Step step_of(const std::vector<std::string>& sets) { return test::step_of(llama, sets); }
std::string error_of(const std::vector<std::string>& sets) { return test::error_of(llama, sets); }

}  // namespace

TEST_CASE("fine-tuning: what lives how long") {
  struct Case {
    std::string name;
    std::vector<std::string> sets;
    std::string tensor, life;
  };
  const Case cases[] = {
      {"LoRA freezes the base", {lora}, q + ".weight.grad", "never"},
      {"without it the base is trained", {}, q + ".weight.grad", "2048 B, backward of " + q + " to zero_grad"},
      {"A has a gradient, in its own type",
       {lora},
       q + ".lora_A.weight.grad",
       "512 B, backward of " + q + ".lora_A to zero_grad"},
      {"a product without a target has no adapter", {lora}, "layers.0.attention.k_proj.lora_A.weight", "never"},
      {"trained besides",
       {"lora={rank: 4, targets: [q_proj], trained: [lm_head]}"},
       "head.lm_head.weight.grad",
       "6144 B, backward of head.lm_head to zero_grad"},
      {"PEFT keeps the original beside what it trains",
       {"lora={rank: 4, targets: [q_proj], trained: [lm_head]}"},
       "head.lm_head.weight.original",
       "6144 B, start to end"},
      {"a frozen weight has no second copy", {lora}, "head.lm_head.weight.original", "never"},
      {"moments of the weight's type",
       {"lora={rank: 4, targets: [q_proj], trained: [lm_head]}"},
       "head.lm_head.weight.exp_avg",
       "6144 B, optimizer.state to end"},
      {"and of the adapter's beside",
       {"lora={rank: 4, targets: [q_proj], trained: [lm_head]}"},
       q + ".lora_A.weight.exp_avg",
       "512 B, optimizer.state to end"},
      {"moments of one type",
       {"lora={rank: 4, targets: [q_proj], trained: [lm_head]}", "dtype.moments=float32"},
       "head.lm_head.weight.exp_avg",
       "12288 B, optimizer.state to end"},
      {"a master copy for adapters only", {lora, "dtype.master=float32"}, q + ".weight.master", "never"},
      {"an adapter's master copy", {lora, "dtype.master=float32"}, q + ".lora_A.weight.master", "512 B, start to end"},
      {"moments for adapters only", {lora}, "head.lm_head.weight.exp_avg", "never"},
      {"the leaf is held through backward",
       {lora},
       "embedding.tokens",
       "1024 B, embedding.tokens to backward of layers.0.attention_norm.float"},
      {"x is cast to A's type, and dies with the layer's forward",
       {lora},
       q + ".lora.input",
       "2048 B, " + q + ".lora.input to " + q + ".lora.output"},
      {"under autocast the cast of A lives until the loss is there",
       {lora, autocast},
       q + ".lora_A.weight_cast",
       "256 B, " + q + ".lora_A.weight_cast to loss.nll_loss"},
      {"a frozen weight needs no cast in its own type", {lora, autocast}, q + ".weight_cast", "never"},
      {"Granite scales what a branch adds; the unscaled one is a variable until the sum is there",
       {"model.model_type=granite"},
       "layers.0.attention.o_proj",
       "1024 B, layers.0.attention.o_proj to layers.0.attention_residual"},
      {"Granite's scaled branch dies with the sum",
       {"model.model_type=granite"},
       "layers.0.attention_multiplier",
       "1024 B, layers.0.attention_multiplier to layers.0.attention_residual"},
      {"Granite scales the logits, and forgets those before",
       {"model.model_type=granite"},
       "head.lm_head",
       "3072 B, head.lm_head to head.multiplier"},
      {"Qwen's adapter sits on the product of all three",
       {"model.model_type=qwen", "model.kv_heads=4", "lora={rank: 4, targets: [qkv_proj]}"},
       "layers.0.attention.qkv_proj.lora_B.weight",
       "1536 B, start to end"},
      {"norms of their own type",
       {lora, "dtype.norms=float32"},
       "layers.0.attention_norm.weight",
       "128 B, start to end"},
      {"nf4: half a byte a weight", {lora, "quantization=nf4"}, q + ".weight", "512 B, start to end"},
      {"nf4: fp32 scales of 64 weights", {lora, "quantization=nf4"}, q + ".scales", "64 B, start to end"},
      {"nf4 twice: scales of a byte",
       {lora, "quantization=nf4_double"},
       "layers.0.mlp.up_proj.scales",
       "32 B, start to end"},
      {"4 bits: 16-bit for the call", {lora, "quantization=nf4"}, q + ".dequantized", "2048 B, " + q + " to " + q},
      {"4 bits: the result is cloned",
       {lora, "quantization=nf4"},
       q + ".lora.clone",
       "1024 B, " + q + ".lora.clone to " + q + ".lora.add"},
      {"gptq adds in place", {lora, "quantization=gptq"}, q + ".lora.clone", "never"},
      {"gptq: scales by groups of 128 rows", {lora, "quantization=gptq"}, q + ".scales", "64 B, start to end"},
      {"the head stays as it is", {lora, "quantization=gptq"}, "head.lm_head.weight", "6144 B, start to end"},
      {"4.45: half-precision logits go when they are cast", {}, "head.lm_head", "3072 B, head.lm_head to loss.float"},
      {"4.46: they stay until the model returns",
       {"profile.transformers='4.46'"},
       "head.lm_head",
       "3072 B, head.lm_head to loss.nll_loss"},
      {"4.46: the shifted copy is still there",
       {"profile.transformers='4.46'"},
       "loss.shift_copy",
       "5376 B, loss.shift_copy to loss.nll_loss"},
      {"4.49: labels are shifted, not logits", {"profile.transformers='4.49'"}, "loss.shift_copy", "never"},
      {"4.49: the padded labels",
       {"profile.transformers='4.49'"},
       "loss.labels_padded",
       "144 B, loss.labels_padded to loss.nll_loss"},
      {"4.29: llama's loss takes half-precision logits", {"profile.transformers='4.29'"}, "loss.float", "never"},
      {"4.29: the masked scores are kept beside the softmax",
       {"profile.transformers='4.29'", "model.attention=eager", "policy=none"},
       "layers.0.attention.core_attn.mask",
       "1024 B, layers.0.attention.core_attn.mask to backward of layers.0.attention.core_attn.max"},
      {"4.45: nothing is kept of them",
       {"model.attention=eager", "policy=none"},
       "layers.0.attention.core_attn.mask",
       "1024 B, layers.0.attention.core_attn.mask to layers.0.attention.core_attn.softmax_float"},
      {"4.29: a norm keeps its row beside the fp32 copy",
       {"profile.transformers='4.29'", "policy=none"},
       "layers.0.mlp_residual",
       "1024 B, layers.0.mlp_residual to backward of layers.1.attention_norm.normalize"},
      {"a loop's variable holds the outputs, and they the keys",
       {"policy=none", "loop={logits_held: true, cache_held: true}"},
       "layers.0.attention.k_rotary.sum",
       "512 B, layers.0.attention.k_rotary.sum to backward of embedding.tokens"},
      {"without it they go with what reads them",
       {"policy=none", "loop={logits_held: true}"},
       "layers.0.attention.k_rotary.sum",
       "512 B, layers.0.attention.k_rotary.sum to backward of layers.0.attention.core_attn.attention"},
      {"PyTorch 1.10's softmax keeps what it reads",
       {"profile.pytorch='1.10'", "model.attention=eager", "policy=none"},
       "layers.0.attention.core_attn.softmax_float",
       "2048 B, layers.0.attention.core_attn.softmax_float to backward of layers.0.attention.core_attn.softmax"},
      {"2.6's does not",
       {"model.attention=eager", "policy=none"},
       "layers.0.attention.core_attn.softmax_float",
       "2048 B, layers.0.attention.core_attn.softmax_float to layers.0.attention.core_attn.softmax"},
      {"PyTorch 2.0's AdamW makes a second list",
       {"profile.pytorch='2.0'"},
       q + ".weight.denominator",
       "2048 B, optimizer.bfloat16 to optimizer.bfloat16"},
      {"2.6's does not", {}, q + ".weight.denominator", "never"},
      {"gpt2 takes half-precision logits as they are",
       {"model={family: transformer, model_type: gpt2, layers: 1, "
        "hidden: 32, heads: 4, vocab: 96, max_positions: 8}"},
       "loss.float",
       "never"},
      {"mistral repeats its heads for flash",
       {"model.model_type=mistral"},
       "layers.0.attention.core_attn.k_repeat",
       "1024 B, layers.0.attention.core_attn.k_repeat to layers.0.attention.o_proj"},
      {"llama does not", {}, "layers.0.attention.core_attn.k_repeat", "never"},
      {"from 4.49 on mistral does not",
       {"model.model_type=mistral", "profile.transformers='4.49'"},
       "layers.0.attention.core_attn.k_repeat",
       "never"},
      {"a fused norm has no fp32 copy", {"profile.fused=[norm]"}, "layers.0.attention_norm.float", "never"},
      {"a fused rotation is in place", {"profile.fused=[rotary]"}, "layers.0.attention.q_rotary", "never"},
      {"a fused loss writes over its logits", {"profile.fused=[loss]"}, "loss.log_softmax", "never"},
      {"a fused adapter keeps x after dropout",
       {"profile.fused=[lora]", "lora={rank: 4, targets: [q_proj], dropout: 0.1}"},
       q + ".dropped",
       "1024 B, " + q + " to " + q},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(life(step_of(c.sets), c.tensor) == c.life);
  }
}

TEST_CASE("fine-tuning: the generator's state is copied on a CPU only") {
  CHECK(life(step_of({}), "checkpoint.rng_state") == "never");
  CHECK(life(step_of({"profile=pytorch-2.6-cpu"}), "checkpoint.rng_state") != "never");
}

TEST_CASE("fine-tuning: mistakes have a place") {
  struct Case {
    std::string name;
    std::vector<std::string> sets;
    std::string error;
  };
  const Case cases[] = {
      {"rank 0",
       {"lora={rank: 0, targets: [q_proj]}"},
       "--set lora={rank: 0, targets: [q_proj]}:1:8: error: 'rank' must be a positive integer, not '0'"},
      {"no target", {"lora={rank: 4}"}, "--set lora={rank: 4}: error: missing key 'targets' in 'lora'"},
      {"an unknown target",
       {"lora={rank: 4, targets: [c_attn]}"},
       "s.yaml: error: transformer: lora.targets: 'c_attn' is no product of a block; there are down_proj, gate_proj, "
       "k_proj, o_proj, q_proj, up_proj, v_proj"},
      {"targets that are none",
       {"lora={rank: 4, targets: []}"},
       "s.yaml: error: transformer: lora.targets is empty; there are down_proj, gate_proj, k_proj, o_proj, q_proj, "
       "up_proj, v_proj"},
      {"a trained weight that is not there",
       {"lora={rank: 4, targets: [q_proj], trained: [lm_head, wpe]}"},
       "s.yaml: error: transformer: lora.trained: 'wpe' is no part of a weight's name; there are attention_norm, "
       "down_proj, gate_proj, k_proj, lm_head, mlp_norm, norm, o_proj, q_proj, tokens, up_proj, v_proj"},
      {"4 bits without an adapter",
       {"quantization=nf4"},
       "--set quantization=nf4: error: 'quantization' freezes the products; it needs 'lora' to train"},
      {"a release for another code",
       {"profile={preset: megatron, transformers: '4.46'}"},
       "--set profile={preset: megatron, transformers: '...:1:34: error: 'transformers' is for model_code huggingface, "
       "not megatron"},
      {"a PyTorch for other kernels",
       {"profile={preset: pytorch-2.6-cpu, pytorch: '2.0'}"},
       "--set profile={preset: pytorch-2.6-cpu, pytorch:...:1:36: error: 'pytorch' is for kernels of CUDA, not "
       "cpu-2.6"},
      {"a cache under checkpointing",
       {"loop={logits_held: true, cache_held: true}"},
       "--set loop={logits_held: true, cache_held: true}:1:33: error: 'cache_held' is for a transformer of model_code "
       "huggingface with 'logits_held' and without a policy: checkpointing turns the cache off"},
      {"an unknown fused part",
       {"profile.fused=[mlp]"},
       "--set profile.fused=[mlp]: error: 'fused' has parts of norm, rotary, loss, lora, not 'mlp'"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(error_of(c.sets) == c.error);
  }
}
