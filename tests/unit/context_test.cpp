// Does a rank of a context-parallel group hold its tokens of each sequence, and what does the ring hold meanwhile?
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tidemark/engine/referee.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/program/transformer.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;

namespace {

/// 2 sequences of 64 tokens, of 8 query and 4 key heads of 8: q takes 64 B a token, k and v 32 B each in 16 bit.
std::string llama(const std::string& attention = "flash") {
  return "profile: megatron\n"
         "model: {family: transformer, model_type: llama, layers: 3, hidden: 64, heads: 8, kv_heads: 4,\n"
         "        ffn_hidden: 96, vocab: 1000, attention: " +
         attention +
         "}\nbatch: {size: 2, sequence: 64}\n"
         "dtype: {parameters: bfloat16, compute: bfloat16, main_gradients: float32, master: float32}\n"
         "optimizer: {kind: adam, fused: true}\nsteps: 1\n";
}

std::string gpt(const std::string& attention) {
  std::string text = llama(attention);
  text.replace(text.find("llama"), 5, "gpt2");
  text.replace(text.find(" kv_heads: 4,"), 13, " max_positions: 64,");
  return text;
}

Run run_of(const std::string& text) { return run(parse_scenario(text, "s.yaml")); }
std::string context(int ranks, const std::string& more = "") {
  return "parallel: {context: " + std::to_string(ranks) + more + "}\n";
}

std::map<std::string, Shape> shapes(const std::string& text) {
  const Scenario scenario = parse_scenario(text, "s.yaml");
  std::map<std::string, Shape> out;
  for (const Tensor& t : make_transformer(std::get<TransformerSpec>(scenario.model), scenario.training).tensors)
    out[t.name] = t.shape;
  return out;
}

/// What a layer leaves behind in forward: the middle one of three.
std::int64_t layer_bytes(const std::string& scenario) {
  const Run result = run_of(scenario);
  const auto after = [&](const std::string& name) {
    for (OpId op = 0; op < result.step.ops.size(); ++op)
      if (result.step.names[result.step.ops[op].name] == name) return result.timeline.ops[op].after.count;
    FAIL("no op " << name);
    return std::int64_t{0};
  };
  return after("layers.1.mlp_residual") - after("layers.0.mlp_residual");
}

constexpr std::int64_t tokens = 2 * 64;
constexpr std::int64_t query = 64 * 2, key_value = 2 * 32 * 2;  // bytes a token

}  // namespace

TEST_CASE("context: a rank has its tokens of each sequence, and all weights") {
  const std::map<std::string, Shape> of = shapes(llama() + context(4));
  CHECK(of.at("input_ids") == Shape{2, 16});
  CHECK(of.at("attention_mask") == Shape{2, 1, 16, 64});
  CHECK(of.at("rotary_cos") == Shape{16, 8});
  CHECK(of.at("layers.1.mlp_residual") == Shape{16, 2, 64});
  CHECK(of.at("head.lm_head") == Shape{16, 2, 1024 - 24});
  CHECK(of.at("layers.1.attention.qkv_proj.weight") == Shape{128, 64});
  CHECK(shapes(llama() + context(2, ", tensor: 2, sequence: true")).at("layers.1.mlp_residual") == Shape{16, 2, 64});
  CHECK(shapes(gpt("flash") + context(2)).at("embedding.positions.weight") == Shape{64, 64});
}

// The generator's state (16 B) is kept of each of the ring's steps.
TEST_CASE("context: a layer takes 1/c of what it takes on one device, to the byte") {
  for (const std::string& model : {llama(), gpt("flash")})
    for (const std::string policy : {"none", "{kind: selective, recompute: [core_attn]}", "full"})
      for (const int ranks : {2, 4, 8}) {
        CAPTURE(policy);
        CAPTURE(ranks);
        const std::int64_t states = policy == "none" ? 16 : 0;
        const std::string text = model + "policy: " + policy + "\n";
        CHECK((layer_bytes(text + context(ranks)) - ranks * states) * ranks == layer_bytes(text) - states);
      }
}

// cuDNN's kernel reads views of the fused projection, which one device keeps whole. The ring copies k and v out of it:
// they are kept a second time where q is a view, and v is not kept by it where rotation has copied q and k.
TEST_CASE(
    "context: with attention fused, the ring's copy of keys and values comes beside the projection or in its place") {
  const auto whole = [](const std::string& model) { return layer_bytes(model) - 16; };
  const auto part = [](const std::string& model) { return layer_bytes(model + context(4)) - 4 * 16; };
  const std::int64_t multi_head_kv = 2 * query;
  CHECK(part(gpt("fused")) == (whole(gpt("fused")) + tokens * multi_head_kv) / 4);
  // rotated q and k and the projection on one device; rotated q and the ring's buffer on a rank
  CHECK(part(llama("fused")) == (whole(llama("fused")) - tokens * (query + key_value / 2)) / 4);
}

// Four steps on the first rank: on its own keys with all queries, then with the second half of them.
//   kv     |--------------------------|        copied
//   kv_received  |--------------------------   the third of them is kept
//   step_output  |--|  all, then halves, until the output has been corrected
TEST_CASE("context: the ring holds every buffer it received until its outputs are corrected") {
  const Run result = run_of(llama() + context(4));
  std::map<std::string, std::map<std::int64_t, int>> made;
  for (const MemoryEvent& event : result.timeline.events) {
    const StepStorage& storage = result.step.storages[event.storage];
    const std::string& name = result.step.names[storage.name];
    const std::string prefix = "layers.1.attention.core_attn.attention.";
    if (event.is_alloc() && name.starts_with(prefix)) ++made[name.substr(prefix.size())][storage.bytes.count];
  }
  const std::int64_t own = tokens / 4, kv = own * key_value, out = own * query, row = own * 8 * 4;
  using Sizes = std::map<std::int64_t, int>;
  CHECK(made["kv"] == Sizes{{kv, 1}});
  CHECK(made["kv_received"] == Sizes{{kv, 3}});
  CHECK(made["step_output"] == Sizes{{out, 1}, {out / 2, 3}});
  CHECK(made["step_logsumexp"] == Sizes{{row, 1}, {row / 2, 3}});
  CHECK(made["logsumexp"] == Sizes{{row, 1}});
  CHECK(made["rng_state"] == Sizes{{16, 4}});
  CHECK(made["logsumexp_half"] == Sizes{{row / 2, 1}});
  CHECK(made["kv_and_gradients"] == Sizes{{2 * kv, 1}});
  CHECK(made["step_dq"] == Sizes{{out, 1}, {out / 2, 3}});
  CHECK(made["step_dkv"] == Sizes{{kv, 4}});
  // 16 sequences x heads of rows rounded to 128
  CHECK(made["softmax_d"] == Sizes{{16 * 128 * 4, 4}});
}

TEST_CASE("context: what passes a rank's link") {
  const auto exchanges = [](const std::string& text, const std::string& part) {
    const Run result = run_of(text);
    std::vector<std::int64_t> out;
    for (const StepOp& op : result.step.ops)
      if (op.kind == OpKind::collective && result.step.names[op.name] == part) out.push_back(op.moved.count);
    return out;
  };
  const std::string ring = "layers.1.attention.core_attn.attention.send_receive";
  const std::int64_t kv = tokens / 4 * key_value;
  // keys and values c - 1 times forward; in backward their gradients too, but for the first and the last step
  CHECK(exchanges(llama() + context(4), ring) == std::vector<std::int64_t>{kv, kv, kv, kv, 2 * kv, 2 * kv, kv});
  CHECK(exchanges(llama() + context(2), ring) == std::vector<std::int64_t>{2 * kv, 2 * kv, 2 * kv});
  // gradients go over data x context ranks: 3/4 of fp32, twice
  const std::int64_t n = run_of(llama()).step.parameters;
  CHECK(exchanges(llama() + context(2, ", data: 2"), "gradients.all_reduce") ==
        std::vector<std::int64_t>{2 * (4 * n - n)});
}

TEST_CASE("context: a distributed optimizer divides states over data and context ranks alike") {
  const auto settled = [](const std::string& parallel) {
    const std::string text = gpt("flash") + "parallel: {distributed_optimizer: true, " + parallel + "}\n";
    return run_of(text).timeline.events.back().live.count;
  };
  CHECK(settled("context: 2, data: 2") == settled("data: 4"));
  CHECK(settled("context: 4") == settled("data: 4"));
  CHECK(settled("context: 2") > settled("data: 4"));
}

TEST_CASE("context: ranks share the work evenly") {
  const auto flops = [](const std::string& text) {
    Flops sum{};
    const Run result = run_of(text);
    for (const StepOp& op : result.step.ops)
      if (result.step.names[op.name].find("core_attn") != std::string::npos) sum = sum + Flops{op.flops};
    return sum.count;
  };
  CHECK(flops(llama() + context(4)) * 4 == flops(llama()));
}

TEST_CASE("context: every timeline of a rank can have happened") {
  for (const std::string& model : {llama(), llama("fused"), gpt("flash")})
    for (const std::string parallel :
         {"{context: 2}", "{context: 4, tensor: 2, sequence: true, data: 2, distributed_optimizer: true}",
          "{context: 2, pipeline: 3, micro_batches: 4}", "{context: 8, tensor: 4}"})
      for (const std::string policy : {"none", "full", "{kind: selective, recompute: [core_attn]}"}) {
        CAPTURE(parallel);
        CAPTURE(policy);
        const Run result = run_of(model + "parallel: " + parallel + "\npolicy: " + policy + "\n");
        const std::optional<Violation> violation = referee(result.step, result.timeline);
        CHECK((violation ? violation->message : "") == "");
      }
}
