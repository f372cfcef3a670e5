// Does one rank hold its shard of every tensor, and does it meet the others where the framework says?
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tidemark/engine/referee.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/program/transformer.hpp"
#include "tidemark/step/state_shards.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;

namespace {

const std::string gpt =
    "profile: megatron\n"
    "model: {family: transformer, model_type: gpt2, layers: 2, hidden: 64, heads: 8, vocab: 1000, max_positions: 32,\n"
    "        dropout: 0.1, activation: gelu, attention: eager}\n"
    "batch: {size: 2, sequence: 32}\n"
    "dtype: {parameters: bfloat16, compute: bfloat16, main_gradients: float32, master: float32}\n"
    "optimizer: {kind: adam, fused: true}\n";
const std::string llama =
    "profile: megatron\n"
    "model: {family: transformer, model_type: llama, layers: 2, hidden: 64, heads: 8, kv_heads: 4, ffn_hidden: 96,\n"
    "        vocab: 1000, attention: flash}\n"
    "batch: {size: 2, sequence: 32}\n"
    "dtype: {parameters: bfloat16, compute: bfloat16, main_gradients: float32, master: float32}\n"
    "optimizer: {kind: adam, fused: true}\n";

Program program_of(const std::string& text) {
  const Scenario scenario = parse_scenario(text, "s.yaml");
  return make_transformer(std::get<TransformerSpec>(scenario.model), scenario.training);
}

std::map<std::string, Shape> shapes(const Program& program) {
  std::map<std::string, Shape> out;
  for (const Tensor& tensor : program.tensors) out[tensor.name] = tensor.shape;
  return out;
}

/// "name bytes over the link", of the collectives in forward and backward of one step.
std::vector<std::string> exchanges(const std::string& text, const std::string& layer) {
  const Run result = run(parse_scenario(text + "steps: 1\n", "s.yaml"));
  std::vector<std::string> out;
  for (const StepOp& op : result.step.ops)
    if (op.kind == OpKind::collective && op.layer >= 0 &&
        result.step.layers[static_cast<std::size_t>(op.layer)] == layer)
      out.push_back(result.step.names[op.name].substr(layer.size() + 1) + " " + std::to_string(op.moved.count));
  return out;
}

}  // namespace

TEST_CASE("shards: a tensor rank has its columns, rows and words; norms and row biases are on all") {
  std::map<std::string, Shape> of = shapes(program_of(gpt + "parallel: {tensor: 4}\n"));
  CHECK(of["layers.0.attention.qkv_proj.weight"] == Shape{48, 64});
  CHECK(of["layers.0.attention.qkv_proj.bias"] == Shape{48});
  CHECK(of["layers.0.attention.o_proj.weight"] == Shape{64, 16});
  CHECK(of["layers.0.attention.o_proj.bias"] == Shape{64});
  CHECK(of["layers.0.mlp.up_proj.weight"] == Shape{64, 64});
  CHECK(of["layers.0.mlp.down_proj.weight"] == Shape{64, 64});
  CHECK(of["layers.0.attention_norm.weight"] == Shape{64});
  CHECK(of["layers.0.attention.core_attn.scores"] == Shape{2, 2, 32, 32});
  // 1000 words padded to 1024, a multiple of 128 x 4
  CHECK(of["embedding.tokens.weight"] == Shape{256, 64});
  CHECK(of["embedding.positions.weight"] == Shape{32, 64});
  CHECK(of["head.lm_head"] == Shape{32, 2, 256});
  of = shapes(program_of(llama + "parallel: {tensor: 4}\n"));
  CHECK(of["layers.0.attention.qkv_proj.weight"] == Shape{32, 64});  // two heads of queries, one of keys, one of values
  CHECK(of["layers.0.mlp.gate_up_proj.weight"] == Shape{48, 64});
  CHECK(of["head.lm_head.weight"] == Shape{256, 64});
}

TEST_CASE("shards: tokens between products are divided too") {
  std::map<std::string, Shape> of = shapes(program_of(gpt + "parallel: {tensor: 4, sequence: true}\n"));
  CHECK(of["embedding.dropout"] == Shape{8, 2, 64});
  CHECK(of["layers.0.attention_norm"] == Shape{8, 2, 64});
  CHECK(of["layers.0.attention.qkv_proj"] == Shape{32, 2, 48});
  CHECK(of["layers.0.attention.o_proj"] == Shape{8, 2, 64});
  CHECK(of["layers.0.mlp.up_proj"] == Shape{32, 2, 64});
  CHECK(of["layers.0.mlp_residual"] == Shape{8, 2, 64});
  CHECK(of["head.lm_head"] == Shape{32, 2, 256});
}

TEST_CASE("shards: what ranks exchange, and how many bytes pass a link") {
  // 2 sequences of 32 tokens of 64 in 16 bit: 8192 B; of 4 ranks each sends 3/4 of them, twice in an all-reduce
  CHECK(exchanges(gpt + "parallel: {tensor: 4}\n", "layers.1") ==
        std::vector<std::string>{"attention.o_proj.all_reduce 12288", "mlp.down_proj.all_reduce 12288",
                                 "mlp.up_proj.all_reduce 12288", "attention.qkv_proj.all_reduce 12288"});
  CHECK(exchanges(gpt + "parallel: {tensor: 4, sequence: true}\n", "layers.1") ==
        std::vector<std::string>{"attention.qkv_proj.all_gather 6144", "attention.o_proj.reduce_scatter 6144",
                                 "mlp.up_proj.all_gather 6144", "mlp.down_proj.reduce_scatter 6144",
                                 "mlp.down_proj.all_gather 6144", "mlp.up_proj.all_gather 6144",
                                 "mlp.up_proj.reduce_scatter 6144", "attention.o_proj.all_gather 6144",
                                 "attention.qkv_proj.all_gather 6144", "attention.qkv_proj.reduce_scatter 6144"});
  // 64 losses in fp32
  CHECK(exchanges(gpt + "parallel: {tensor: 4}\n", "loss") ==
        std::vector<std::string>(3, "cross_entropy.all_reduce 384"));
  CHECK(exchanges(gpt + "parallel: {tensor: 4}\n", "embedding") == std::vector<std::string>{"tokens.all_reduce 12288"});
  CHECK(exchanges(gpt + "parallel: {tensor: 4, sequence: true}\n", "embedding") ==
        std::vector<std::string>{"tokens.all_reduce 12288", "scatter.all_gather 6144"});
  CHECK(exchanges(llama + "parallel: {tensor: 4, sequence: true}\n", "embedding") ==
        std::vector<std::string>{"tokens.reduce_scatter 6144", "tokens.reduce_scatter.all_gather 6144"});
}

TEST_CASE("shards: exchanges take their bytes over the link's bandwidth, and nothing without one") {
  const auto time_of = [](const std::string& device) {
    const Run result =
        run(parse_scenario(gpt + "parallel: {tensor: 4}\nsteps: 1\ndevice: {" + device + "}\n", "s.yaml"));
    Nanos time{};
    for (OpId op = 0; op < result.step.ops.size(); ++op)
      if (result.step.names[result.step.ops[op].name] == "layers.1.mlp.down_proj.all_reduce")
        time = result.timeline.ops[op].end - result.timeline.ops[op].start;
    return time.count;
  };
  CHECK(time_of("name: d, link_bandwidth: 1 GB/s") == 12288);
  CHECK(time_of("name: d") == 0);
}

TEST_CASE("shards: every timeline of a rank can have happened") {
  for (const std::string& model : {gpt, llama})
    for (const std::string parallel :
         {"{data: 4}", "{data: 4, distributed_optimizer: true}", "{data: 3, sharding: zero1}",
          "{data: 2, distributed_optimizer: true, tensor: 2, pipeline: 2, micro_batches: 3}", "{tensor: 2}",
          "{tensor: 4, sequence: true}", "{tensor: 2, sequence: true, pipeline: 2, micro_batches: 4}",
          "{tensor: 4, pipeline: 2, virtual: 1, schedule: gpipe, micro_batches: 3}"})
      for (const std::string policy : {"none", "full", "{kind: selective, recompute: [core_attn]}"}) {
        CAPTURE(parallel);
        CAPTURE(policy);
        const Run result =
            run(parse_scenario(model + "parallel: " + parallel + "\npolicy: " + policy + "\n", "s.yaml"));
        const std::optional<Violation> violation = referee(result.step, result.timeline);
        CHECK((violation ? violation->message : "") == "");
      }
}

TEST_CASE("shards: parameters of all ranks are the model's, but for what each has whole") {
  const auto parameters = [](const std::string& parallel) {
    return parameter_count(program_of(gpt + "parallel: " + parallel + "\n"));
  };
  // two norms and two row biases a layer, the last norm, positions; and 24 words of padding
  const std::int64_t whole = 2 * (4 * 64 + 2 * 64) + 2 * 64 + 32 * 64;
  CHECK(4 * (parameters("{tensor: 4}") - whole) == parameters("{}") - whole + 24 * 64);
  CHECK(parameters("{tensor: 4, sequence: true}") == parameters("{tensor: 4}"));
}

TEST_CASE("shards: where one rank's part of the states lies") {
  struct Case {
    std::string name;
    Shards shards;
    FlatParameters expected;
  };
  const Case cases[] = {
      // from the last on: 100 at 0, 10 at 128, 500 at 192; 692 padded to 768, of which a rank has 192
      {"Megatron-LM's, each from a multiple of 64 on",
       {.data = 4, .distributed_optimizer = true},
       {768, 158, {0, 10, 100}}},
      {"the same of 3 ranks: a multiple of 384", {.data = 3, .distributed_optimizer = true}, {768, 158, {64, 10, 100}}},
      {"context ranks have the same parameters",
       {.context = 2, .data = 2, .distributed_optimizer = true},
       {768, 158, {0, 10, 100}}},
      // in order, 610 padded to 616, of which a rank has 154
      {"DeepSpeed's, in order", {.data = 4, .sharding = Sharding::zero1}, {616, 6, {154, 0, 0}}},
      {"one rank has all", {.data = 1, .sharding = Sharding::zero1}, {610, 0, {500, 10, 100}}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(flat_parameters({500, 10, 100}, c.shards) == c.expected);
  }
}

TEST_CASE("shards: replicas add up gradients, and gather the parameters that each has updated") {
  const auto at_the_end = [](const std::string& parallel) {
    const Run result = run(parse_scenario(gpt + "steps: 1\nparallel: " + parallel + "\n", "s.yaml"));
    std::vector<std::string> out;
    for (const StepOp& op : result.step.ops)
      if (op.kind == OpKind::collective && op.layer < 0)
        out.push_back(result.step.names[op.name] + " " + std::to_string(op.moved.count));
    return out;
  };
  const std::int64_t n = parameter_count(program_of(gpt));
  const auto bytes = [&](std::int64_t each) { return std::to_string(n * each - n * each / 4); };
  CHECK(at_the_end("{data: 4}") ==
        std::vector<std::string>{"gradients.all_reduce " + std::to_string(2 * std::stoll(bytes(4)))});
  for (const std::string divided : {"distributed_optimizer: true", "sharding: zero1"})
    CHECK(at_the_end("{data: 4, " + divided + "}") ==
          std::vector<std::string>{"gradients.reduce_scatter " + bytes(4), "parameters.all_gather " + bytes(2)});
  CHECK(at_the_end("{}").empty());
}

TEST_CASE("shards: gathered tokens and partial sums are whole, and go once they have been used") {
  const Run result = run(parse_scenario(gpt + "steps: 1\nparallel: {tensor: 4, sequence: true}\n", "s.yaml"));
  std::map<std::string, int> made;  // "phase of the op name bytes"
  for (const MemoryEvent& event : result.timeline.events) {
    const StepStorage& storage = result.step.storages[event.storage];
    const std::string& name = result.step.names[storage.name];
    const bool whole = name.ends_with(".gathered") || name.find(".partial_") != std::string::npos;
    if (!whole || !name.starts_with("layers.1.mlp")) continue;
    made[name.substr(13) + " " + std::to_string(storage.bytes.count)] += event.is_alloc() ? 1 : 100;
  }
  // 32 tokens of 2 sequences of 64 in 16 bit; the second product's are of its output
  CHECK(made == std::map<std::string, int>{{"up_proj.gathered 8192", 202},          // forward, and again in backward
                                           {"up_proj.partial_gradient 8192", 101},  // until it is scattered
                                           {"down_proj.partial_sums 8192", 101},    // the same in forward
                                           {"down_proj.gathered 8192", 101}});      // gradients of the result
  const auto is_buffer = [&](const StepStorage& s) { return result.step.names[s.name] == "global_memory_buffer"; };
  CHECK(std::ranges::count_if(result.step.storages, is_buffer) == 1);
}

// Every rank has these vectors whole, and of its own tokens (or heads) their gradients: 4 B each, 3/4 of them twice.
TEST_CASE("shards: gradients of norms and row biases are added up over tensor ranks") {
  struct Case {
    std::string name, model, parallel;
    std::int64_t bytes;  // side by side; 0: nothing is exchanged
  };
  const Case cases[] = {
      {"two layers of two norms and two row biases, the last norm", gpt, "{tensor: 4, sequence: true}",
       4 * (2 * (2 * 2 + 2) + 2) * 64},
      {"norms without biases", llama, "{tensor: 4, sequence: true}", 4 * (2 * 2 + 1) * 64},
      {"whole tokens on every rank", gpt, "{tensor: 4}", 0},
      {"one rank", gpt, "{}", 0},
      {"before replicas divide the states", gpt, "{tensor: 4, sequence: true, data: 2, distributed_optimizer: true}",
       4 * (2 * (2 * 2 + 2) + 2) * 64},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Run result = run(parse_scenario(c.model + "steps: 1\nparallel: " + c.parallel + "\n", "s.yaml"));
    CHECK_FALSE(referee(result.step, result.timeline));
    std::vector<std::string> exchanges, buffers;
    for (const StepOp& op : result.step.ops)
      if (op.layer < 0 && op.kind == OpKind::collective)
        exchanges.push_back(result.step.names[op.name] + " " + std::to_string(op.moved.count));
    for (const StepStorage& storage : result.step.storages)
      if (result.step.names[storage.name] == "norm_gradients.flat") buffers.push_back(to_string(storage.bytes));
    const auto found = std::ranges::find(exchanges, "norm_gradients.all_reduce " + std::to_string(c.bytes * 2 * 3 / 4));
    CHECK((found != exchanges.end()) == (c.bytes > 0));
    CHECK(buffers == (c.bytes > 0 ? std::vector<std::string>{std::to_string(c.bytes)} : std::vector<std::string>{}));
    if (exchanges.size() > 1) CHECK(exchanges.front().starts_with("gradients.reduce_scatter"));
  }
}
