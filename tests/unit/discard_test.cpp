// Megatron's modules that drop their output: what goes, what is made again, when, and how often is it there?
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/life.hpp"
#include "tidemark/plan/discards.hpp"

using namespace tidemark;
using namespace tidemark::test;

namespace {

// 2 sequences of 16 tokens, 64 wide: a row of the residual stream is 4,096 B in 16 bit. 128 expert rows of 32: 4,096 B.
const std::string training =
    "profile: megatron\n"
    "batch: {size: 2, sequence: 16}\n"
    "dtype: {parameters: bfloat16, compute: bfloat16, main_gradients: float32, master: float32}\n";
const std::string experts = training +
                            "model: {family: transformer, model_type: qwen2_moe, layers: 2, hidden: 64, heads: 4,\n"
                            "        kv_heads: 4, ffn_hidden: 64, vocab: 128, experts: 4, experts_per_token: 2,\n"
                            "        expert_hidden: 32, shared_expert_hidden: 0, attention: flash}\n";
const std::string latent = training +
                           "model: {family: transformer, model_type: deepseek_v3, layers: 1, hidden: 64, heads: 4,\n"
                           "        ffn_hidden: 64, vocab: 128, experts: 4, experts_per_token: 2, expert_hidden: 32,\n"
                           "        kv_rank: 16, query_rank: 24, nope_dim: 8, rope_dim: 8, value_dim: 16,\n"
                           "        attention: flash}\n";

/// Births and deaths by op of every storage of that name, in order: "norm>o_proj norm>norm*", a star for backward.
std::string lives(const Step& step, const std::string& name) {
  std::string out;
  const auto op_of = [&](OpId id) {
    const StepOp& op = step.ops[id];
    const std::string& full = step.names[op.name];
    return full.substr(full.find("layers.0.") == 0 ? 9 : 0) + (op.phase == Phase::backward    ? "*"
                                                               : op.phase == Phase::recompute ? "'"
                                                                                              : "");
  };
  for (StorageId id = 0; id < step.storages.size(); ++id) {
    if (step.names[step.storages[id].name] != name) continue;
    for (const Instruction& at : step.instructions) {
      if (at.index != id || (at.what != Do::alloc && at.what != Do::free)) continue;
      out += (at.what == Do::alloc ? (out.empty() ? "" : " ") : ">") + op_of(at.op);
    }
  }
  return out;
}

std::string discarding(const std::string& modules) { return "policy={kind: selective, discard: [" + modules + "]}"; }

}  // namespace

TEST_CASE("discard: the output goes after use, comes back on a later gradient, and is there twice") {
  struct Case {
    std::string name, model;
    std::vector<std::string> sets;
    std::string tensor, lives;
  };
  const std::string norm = "layers.0.attention_norm", act = "layers.0.mlp.experts.swiglu",
                    v = "layers.0.attention.kv_b_proj";
  const Case cases[] = {
      {"kept without it", experts, {}, norm, "attention_norm>attention.qkv_proj*"},
      {"a norm's, on the gradient of attention's output",
       experts,
       {discarding("layernorm")},
       norm,
       "attention_norm>attention.o_proj attention_norm'>attention_norm*"},
      {"its second copy is what the product reads",
       experts,
       {discarding("layernorm")},
       norm + ".refilled",
       "attention_norm.refill'>attention.qkv_proj*"},
      {"statistics are made again too",
       experts,
       {discarding("layernorm")},
       norm + ".rstd",
       "attention_norm>attention_norm attention_norm'>attention_norm*"},
      {"the other norm before the experts",
       experts,
       {discarding("layernorm")},
       "layers.0.mlp_norm",
       "mlp_norm>mlp.unpermuted mlp_norm'>mlp_norm*"},
      {"an activation, on the gradient of fc2's output",
       experts,
       {discarding("moe_act")},
       act,
       "mlp.experts.swiglu>mlp.experts.down_proj mlp.experts.swiglu'>mlp.experts.swiglu*"},
      {"and its copy",
       experts,
       {discarding("moe_act")},
       act + ".refilled",
       "mlp.experts.swiglu.refill'>mlp.experts.down_proj*"},
      {"what the activation reads stays",
       experts,
       {discarding("moe_act")},
       "layers.0.mlp.experts.gate_up_proj",
       "mlp.experts.gate_up_proj>mlp.experts.swiglu*"},
      {"both in one list",
       experts,
       {discarding("layernorm, moe_act")},
       act + ".refilled",
       "mlp.experts.swiglu.refill'>mlp.experts.down_proj*"},
      {"beside a checkpointed module",
       experts,
       {"policy={kind: selective, recompute: [core_attn], discard: [layernorm]}"},
       norm + ".refilled",
       "attention_norm.refill'>attention.qkv_proj*"},
      {"what runs again whole is not discarded besides",
       experts,
       {"policy={kind: selective, recompute: [mlp], discard: [moe_act]}"},
       act + ".refilled",
       ""},
      {"latent rows up to heads",
       latent,
       {discarding("mla_up_proj")},
       v,
       "attention.kv_b_proj>attention.core_attn.v_copy attention.kv_b_proj'>attention.q_a_norm*"},
      {"the narrow rows stay",
       latent,
       {discarding("mla_up_proj")},
       "layers.0.attention.q_a_proj",
       "attention.q_a_proj>attention.q_a_norm*"},
      {"of some blocks",
       experts,
       {"policy={kind: selective, discard: [layernorm], layers: \"1\"}"},
       norm + ".refilled",
       ""},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(lives(step_of(c.model, c.sets), c.tensor) == c.lives);
  }
}

TEST_CASE("discard: what is recomputed counts as such, once") {
  const Step plain = step_of(experts, {});
  const auto matmuls = [](const Step& step) {
    Int128 total = 0;
    for (const StepOp& op : step.ops) total += op.phase == Phase::recompute ? op.flops : 0;
    return total;
  };
  CHECK(matmuls(plain) == 0);
  CHECK(matmuls(step_of(experts, {discarding("layernorm, moe_act")})) == 0);  // norms and activations are no products
  // 32 rows: 24 x 64 to queries, 16 x (4 x 24) to keys and values.
  CHECK(matmuls(step_of(latent, {discarding("mla_up_proj")})) == 2 * 32 * (24 * 64 + 16 * 96));
}

TEST_CASE("discard: which ops, and on whose gradient") {
  OutlineLayer layer;
  for (const char* name : {"attention_norm", "attention.qkv_proj", "attention.core_attn.attention", "attention.o_proj",
                           "attention_residual", "mlp_norm", "mlp.router", "mlp.experts.gate_up_proj",
                           "mlp.experts.swiglu", "mlp.experts.down_proj", "mlp.merged", "mlp_residual"})
    layer.ops.push_back(
        {.name = name, .kind = "custom", .output_bytes = {}, .forward_flops = {}, .saved_bytes = {}, .inputs = {}});
  CHECK(discards("layernorm", layer) == std::vector<Discard>{{{0}, 3}, {{5}, 10}});
  CHECK(discards("moe_act", layer) == std::vector<Discard>{{{8}, 9}});
  CHECK(discards("mla_up_proj", layer).empty());
}

TEST_CASE("discard: mistakes") {
  struct Row {
    std::string name, model, policy, error;
  };
  const Row rows[] = {
      {"an unknown module", experts, "{kind: selective, discard: [norm]}",
       "--set policy={kind: selective, discard: [norm]}:1:28: error: 'norm' is no module that discards its output; "
       "known "
       "are: layernorm, moe_act, mla_up_proj"},
      {"a module that no block has", experts, "{kind: selective, discard: [mla_up_proj]}",
       "s.yaml: error: 'discard': no block has the module 'mla_up_proj'"},
      {"neighbours as one", experts, "{kind: selective, discard: [moe_act], interval: 2}",
       "s.yaml: error: modules that discard their output are a block's own; expected no 'interval'"},
      {"another schedule", experts, "{kind: selective, discard: [moe_act], schedule: up_front}",
       "s.yaml: error: 'discard' says itself when a module runs again; expected schedule per_segment and checkpointing "
       "direct"},
      {"another way of checkpointing", experts, "{kind: selective, discard: [moe_act], checkpointing: nonreentrant}",
       "s.yaml: error: 'discard' says itself when a module runs again; expected schedule per_segment and checkpointing "
       "direct"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    CHECK(error_of(row.model, {"policy=" + row.policy}) == row.error);
  }
}
