// Do simulated pipeline stages take the bytes that published runs took on theirs?
#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "support/csv.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;
using test::Row;

namespace {

/// Of all stages: what the last one leaves, as even as it goes.
std::string layers(const Row& row) {
  const int stages = std::stoi(row.at("stages")), last = std::stoi(row.at("layers"));
  int left = 12 - last;
  std::string out;
  for (int s = stages - 1; s > 0; --s) {
    out += std::to_string((left + s - 1) / s) + ", ";
    left -= (left + s - 1) / s;
  }
  return out + std::to_string(last);
}

Run last_stage(const Row& row) {
  return run(parse_scenario(
      "profile: megatron\n"
      "model: {family: transformer, model_type: gpt2, layers: 12, hidden: 512, heads: 8,\n"
      "        ffn_hidden: 2048, vocab: 50304, max_positions: 1024, dropout: 0.1,\n"
      "        tied_embeddings: true, activation: gelu, attention: eager}\n"
      "batch: {size: 4, sequence: 1024}\n"
      "dtype: {parameters: bfloat16, compute: bfloat16, main_gradients: float32, master: float32}\n"
      "optimizer: {kind: adam, fused: true}\n"
      "parallel: {pipeline: " +
          row.at("stages") + ", layers_per_chunk: [" + layers(row) + "], micro_batches: " + row.at("micro_batches") +
          ", stage: " + std::to_string(std::stoi(row.at("stages")) - 1) + "}\n",
      "row.yaml"));
}

/// In blocks of 512 bytes, as torch.cuda counts: the last step's peak over the level at its end.
std::int64_t rise(const Run& result) {
  std::int64_t level = 0, peak = 0;
  for (const MemoryEvent& event : result.timeline.events) {
    const std::int64_t blocks = (result.step.storages[event.storage].bytes.count + 511) / 512 * 512;
    level += event.is_alloc() ? blocks : -blocks;
    const bool in_last_step = event.op() != no_id && result.step.ops[event.op()].step == 1;
    if (in_last_step) peak = std::max(peak, level);
  }
  return peak - level;
}

}  // namespace

// At the last micro-batch's loss the loop keeps a block of each earlier micro-batch, the loss it will report, and two more
// in variables: the tokens and the loss of the one before.
TEST_CASE("Megatron's CI model in stages: the last stage's rise, to the byte") {
  std::map<std::string, std::int64_t> simulated, published;
  for (const Row& row : test::table("tests/oracle/data/megatron_pipeline_runs.csv")) {
    CAPTURE(row.at("case"));
    const Run result = last_stage(row);
    const Timeline whole = simulate(result.step, {});
    CHECK_FALSE(referee(result.step, whole));
    simulated[row.at("case")] = rise(result);
    published[row.at("case")] = std::stoll(row.at("max_last")) - std::stoll(row.at("allocated_last"));
    CHECK(simulated[row.at("case")] == published[row.at("case")]);
  }
  const auto difference = [](std::map<std::string, std::int64_t>& of) { return of.at("pp4") - of.at("pp4_uneven"); };
  CHECK(difference(simulated) == difference(published));
  CHECK(difference(published) == 239'140'864);
}

TEST_CASE("pipelines of transformers: every stage's timeline can have happened") {
  for (const std::string parallel :
       {"{pipeline: 2, micro_batches: 4}", "{pipeline: 2, virtual: 2, micro_batches: 4}",
        "{pipeline: 4, schedule: gpipe, micro_batches: 3}", "{pipeline: 2, micro_batches: 1}",
        "{pipeline: 2, micro_batches: 3, free_outputs: false, stage_policies: [full, none]}", "{micro_batches: 3}"})
    for (const std::string profile : {"megatron", "pytorch-cuda", "pytorch-2.6-cpu", "pytorch-1.13-cpu", "ideal"}) {
      CAPTURE(parallel);
      CAPTURE(profile);
      const Run result = run(parse_scenario(
          "profile: " + std::string(profile) +
              "\nmodel: {family: transformer, model_type: gpt2, layers: 4, hidden: 32, heads: 2, ffn_hidden: 64,\n"
              "        vocab: 100, max_positions: 16, dropout: 0.1, tied_embeddings: true, activation: gelu,\n"
              "        attention: eager}\n"
              "batch: {size: 2, sequence: 16}\noptimizer: adamw\nparallel: " +
              parallel + "\n",
          "row.yaml"));
      const std::optional<Violation> violation = referee(result.step, result.timeline);
      CHECK((violation ? violation->message : "") == "");
    }
}

// One stage and its micro-batches are one device that accumulates gradients; the received tensors aside.
TEST_CASE("pipelines of transformers: one stage is one device") {
  const std::string model =
      "model: {family: transformer, model_type: gpt2, layers: 4, hidden: 32, heads: 2, ffn_hidden: 64,\n"
      "        vocab: 100, max_positions: 16, dropout: 0.1, tied_embeddings: true, activation: gelu,\n"
      "        attention: eager}\nbatch: {size: 2, sequence: 16, accumulate: 5}\noptimizer: adamw\n";
  for (const std::string profile : {"megatron", "pytorch-cuda", "pytorch-2.6-cpu"}) {
    CAPTURE(profile);
    const Run alone = run(parse_scenario(model + "profile: " + profile, "a.yaml"));
    const Run woven = run(parse_scenario(model + "profile: " + profile + "\nparallel: {schedule: 1f1b}", "b.yaml"));
    CHECK(woven.pipeline);
    CHECK(woven.timeline.peak == alone.timeline.peak);
    CHECK(woven.timeline.events.size() == alone.timeline.events.size());
    for (std::size_t i = 0; i < std::min(woven.timeline.events.size(), alone.timeline.events.size()); ++i)
      if (woven.timeline.events[i].live != alone.timeline.events[i].live) {
        CHECK(i == 0);
        break;
      }
  }
}
