// What is other in Megatron-DeepSpeed than in Megatron-LM: ALiBi, a norm after the embedding, states before a step.
#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <string>

#include "tidemark/input/scenario.hpp"
#include "tidemark/program/transformer.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;

namespace {

std::string bloom(const std::string& profile, const std::string& model) {
  return "profile: " + profile +
         "\nmodel: {family: transformer, model_type: gpt2, layers: 2, hidden: 64, heads: 8, vocab: 1024,\n"
         "        max_positions: 32, dropout: 0.1, activation: gelu, attention: eager" +
         model +
         "}\nbatch: {size: 2, sequence: 32}\n"
         "dtype: {parameters: float16, compute: float16, gradients: float16, master: float32}\n"
         "optimizer: {kind: adam, fused: true}\n"
         "parallel: {tensor: 2, data: 4, sharding: zero1}\n";
}

TransformerSpec spec_of(const std::string& text) {
  return std::get<TransformerSpec>(parse_scenario(text, "s.yaml").model);
}

/// What is alive of a category before the first op.
std::int64_t at_start(const std::string& text, Category category) {
  const Run result = run(parse_scenario(text, "s.yaml"));
  std::set<StorageId> made;
  for (const Instruction& instruction : result.step.instructions)
    if (instruction.what == Do::alloc) made.insert(instruction.index);
  std::int64_t bytes = 0;
  for (StorageId id = 0; id < result.step.storages.size(); ++id)
    if (result.step.storages[id].category == category && !made.contains(id))
      bytes += result.step.storages[id].bytes.count;
  return bytes;
}

}  // namespace

TEST_CASE("megatron-deepspeed: ALiBi has no table, the norm after the embedding two rows") {
  const std::string megatron = "megatron-deepspeed";
  const std::int64_t table = parameter_count(spec_of(bloom(megatron, "")));
  CHECK(parameter_count(spec_of(bloom(megatron, ", positions: alibi"))) == table - 32 * 64);
  CHECK(parameter_count(spec_of(bloom(megatron, ", embedding_norm: true"))) == table + 2 * 64);
}

TEST_CASE("megatron-deepspeed: the norm keeps the words' rows and two numbers a token") {
  const auto kept = [](const std::string& model) {
    const Run result = run(parse_scenario(bloom("megatron-deepspeed", model), "s.yaml"));
    std::int64_t bytes = 0;
    for (const StepStorage& storage : result.step.storages)
      if (storage.category == Category::activation) bytes += storage.bytes.count;
    return bytes;
  };
  // 64 tokens of 64 numbers in 16 bit, and the mean and the deviation in fp32; both steps
  CHECK(kept(", positions: alibi, embedding_norm: true") - kept(", positions: alibi") ==
        2 * (64 * 64 * 2 + 64 * 2 * 4));
}

TEST_CASE("megatron-deepspeed: states are there before the first step") {
  const std::int64_t all = 4 * 3;  // master copy and moments
  const std::int64_t megatron = at_start(bloom("megatron", ""), Category::optimizer_state);
  CHECK(at_start(bloom("megatron-deepspeed", ""), Category::optimizer_state) * 4 == megatron * all);
}

TEST_CASE("megatron-deepspeed: what only Megatron's code has is refused elsewhere") {
  struct Case {
    std::string name, profile, model, shards, message;
  };
  for (const Case& c :
       {Case{"ALiBi", "torchtitan", ", attention: eager, positions: alibi", "",
             "s.yaml:3:88: error: 'alibi' is simulated for model_code megatron, not torchtitan"},
        Case{"the norm", "torchtitan", ", attention: eager, embedding_norm: true", "",
             "s.yaml:3:93: error: 'embedding_norm' is simulated for model_code megatron, not torchtitan"},
        Case{"ALiBi without scores", "megatron", ", positions: alibi, attention: flash", "",
             "s.yaml:3:88: error: positions 'alibi' need attention: eager, as scores have biases"},
        Case{"the norm among ranks that share tokens", "megatron", ", attention: eager, embedding_norm: true",
             "parallel: {tensor: 2, sequence: true}\n",
             "s.yaml:5:33: error: shared tokens of a model with 'embedding_norm' are not simulated"}}) {
    CAPTURE(c.name);
    const std::string text = "profile: " + c.profile +
                             "\nmodel: {family: transformer, model_type: gpt2, layers: 2, hidden: 64, heads: 8,\n"
                             "        vocab: 1024, max_positions: 32, activation: gelu" +
                             c.model + "}\nbatch: {size: 2, sequence: 32}\n" + c.shards;
    CHECK_THROWS_WITH_AS(parse_scenario(text, "s.yaml"), c.message.c_str(), InputError);
  }
}
