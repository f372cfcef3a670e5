// Does a rank of a tensor-parallel group hold the bytes that published formulas and estimators say?
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "support/csv.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;
using test::Row;

namespace {

std::string gpt(const std::string& heads, const std::string& hidden, const std::string& layers,
                const std::string& micro_batch, const std::string& sequence) {
  return "profile: megatron\nmodel: {family: transformer, model_type: gpt2, heads: " + heads + ", hidden: " + hidden +
         ", layers: " + layers + ", vocab: 51200, max_positions: " + sequence +
         ", dropout: 0.1, activation: gelu, attention: eager}\nbatch: {size: " + micro_batch +
         ", sequence: " + sequence + "}\ndtype: {parameters: bfloat16, compute: bfloat16}\n";
}

/// What a layer leaves behind in forward: the middle one of three.
std::int64_t layer_bytes(const std::string& scenario) {
  const Run result = run(parse_scenario(scenario, "layer.yaml"));
  const auto after = [&](const std::string& name) {
    for (OpId op = 0; op < result.step.ops.size(); ++op)
      if (result.step.names[result.step.ops[op].name] == name) return result.timeline.ops[op].after.count;
    FAIL("no op " << name);
    return std::int64_t{0};
  };
  return after("layers.1.mlp_residual") - after("layers.0.mlp_residual");
}

/// Two norms keep a mean and a reciprocal deviation a row, in fp32.
std::int64_t statistics(const Row& row) {
  if (row.at("policy") == "full") return 0;
  const std::int64_t tokens = std::stoll(row.at("micro_batch")) * std::stoll(row.at("sequence"));
  return 2 * 2 * 4 * tokens / (row.at("tokens") == "true" ? 8 : 1);
}

std::string policy_of_kind(const std::string& name) {
  return name == "selective" ? "{kind: selective, recompute: [core_attn]}" : name;
}

/// Of the first stage: what of its activations was saved.
std::int64_t held_at_most(const Run& result) {
  std::int64_t level = 0, most = 0;
  for (const MemoryEvent& event : result.timeline.events) {
    const StepStorage& storage = result.step.storages[event.storage];
    if (storage.category != Category::activation) continue;
    level += event.is_alloc() ? storage.bytes.count : -storage.bytes.count;
    most = std::max(most, level);
  }
  return most;
}

}  // namespace

TEST_CASE("Korthikanti et al. 2022, table 2: a layer's activations, to the byte") {
  int rows = 0;
  for (const Row& row : test::table("tests/oracle/data/korthikanti_layers.csv")) {
    const std::string name = row.at("model") + ", tokens " + row.at("tokens") + ", " + row.at("policy");
    CAPTURE(name);
    const std::int64_t layer = layer_bytes(
        gpt(row.at("heads"), row.at("hidden"), "3", row.at("micro_batch"), row.at("sequence")) +
        "policy: " + policy_of_kind(row.at("policy")) + "\nparallel: {tensor: 8, sequence: " + row.at("tokens") + "}\n");
    CHECK(layer - statistics(row) == std::stoll(row.at("all_layers")) / std::stoll(row.at("layers")));
    ++rows;
  }
  CHECK(rows == 10);
}

TEST_CASE("tensor ranks that share tokens too hold 1/t of a layer, to the byte") {
  for (const std::string settings : {"none", "selective"})
    for (const std::string attention : {"eager", "flash", "fused"})
      for (const int ranks : {2, 4, 8}) {
        CAPTURE(settings);
        CAPTURE(attention);
        CAPTURE(ranks);
        const std::string model = gpt("8", "512", "3", "4", "1024") + "policy: " + policy_of_kind(settings) + "\n";
        const auto with = [&](const std::string& parallel) {
          std::string text = model + "parallel: " + parallel + "\n";
          return layer_bytes(text.replace(text.find("eager"), 5, attention));
        };
        const std::string t = std::to_string(ranks);
        // The generator's state of a fused kernel is each rank's own.
        const std::int64_t state = attention == "eager" || settings == "selective" ? 0 : 16;
        CHECK((with("{tensor: " + t + ", sequence: true}") - state) * ranks == with("{}") - state);
      }
}

TEST_CASE("full recompute keeps a layer's whole input on every tensor rank unless they share tokens") {
  const std::string model = gpt("8", "512", "3", "4", "1024") + "policy: full\nparallel: ";
  const std::int64_t whole = 2 * 1024 * 4 * 512;
  CHECK(layer_bytes(model + "{}") == whole);
  CHECK(layer_bytes(model + "{tensor: 8}") == whole);
  CHECK(layer_bytes(model + "{tensor: 8, sequence: true}") == whole / 8);
}

// Korthikanti et al. 2022, figure 1, as Calculon has it: s b h (10 + 24/t + 5 a s / (h t)) L (1 + (p - 1) / (p v)) of
// GPT-3 175B with 8 tensor ranks, 8 stages and 3 chunks a stage: 66.84375 GiB, and 12.3515625 GiB when ranks share
// tokens and attention is recomputed. Layers alone: twice the layers in each chunk hold twice as much and the same
// besides.
TEST_CASE("Calculon's figure 1: the first stage of GPT-3 175B and the 22B model") {
  const auto of_layers = [](const std::string& heads, const std::string& hidden, int layers,
                            const std::string& micro_batch, const std::string& more) {
    const auto held = [&](int n) {
      return held_at_most(
          run(parse_scenario(gpt(heads, hidden, std::to_string(n), micro_batch, "2048") + more, "c.yaml")));
    };
    return held(2 * layers) - held(layers);
  };
  const std::int64_t gib = 1 << 30;
  const std::string stages = "parallel: {pipeline: 8, virtual: 3, micro_batches: 16, stage: 0, tensor: 8, sequence: ";
  const std::string selective = "policy: {kind: selective, recompute: [core_attn]}\n";
  // 31 micro-batches of 4 layers are in flight.
  const std::int64_t statistics = std::int64_t{31} * 4 * 2 * 2 * 4 * 2048;
  CHECK(of_layers("96", "12288", 96, "1", stages + "false}\n") - statistics == gib * 6684375 / 100000);
  CHECK(of_layers("96", "12288", 96, "1", selective + stages + "true}\n") - statistics / 8 ==
        gib * 123515625 / 10000000);
}
