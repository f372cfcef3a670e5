// Is a pipeline whose repeating middle was left out the whole one in every figure?
#include "tidemark/study/steady_schedule.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/report/json.hpp"
#include "tidemark/report/summary.hpp"
#include "tidemark/study/facts.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;

namespace {

/// All that the summary's JSON says, but for how much was simulated and the sentence about that.
std::string figures(const Scenario& scenario, const Run& result) {
  Summary summary = summarize(result.step, result.timeline, scenario_facts(scenario, result));
  summary.events = summary.ops = 0;
  std::erase_if(summary.warnings, [](const std::string& text) { return text.starts_with("steady"); });
  std::string out = summary_json(summary);
  for (const StageFigures& stage : summary.pipeline->stages)
    out += to_string(stage.span) + " " + to_string(stage.busy) + " " + to_string(stage.peak.time) + "\n";
  return out + to_string(result.timeline.end);
}

bool was_folded(const Run& result) {
  return std::ranges::any_of(result.notes,
                             [](const std::string& note) { return note.find("are simulated") != std::string::npos; });
}

const std::string device =
    "device: {flops: {float32: 1 GFLOP/s, bfloat16: 2 GFLOP/s}, memory_bandwidth: 1 GB/s, launch_time: 1 us}\n";

}  // namespace

TEST_CASE("steady: every figure is the whole run's") {
  struct Case {
    std::string name, model, parallel;
    bool folds = true;
  };
  const std::string chain =
      "model: {family: chain, layers: 8, layer_activation: 10 B, weight_activation: 4 B, boundary: 2 B, gradient: 3 B, "
      "forward_time: 7 ns, backward_time: 13 ns, weight_time: 6 ns}\nsteps: 2\n";
  const std::string uneven =
      "model: {family: chain, layers: 8, layer_activation: [9 B, 8 B, 7 B, 30 B, 5 B, 4 B, 3 B, 2 B], boundary: 2 B, "
      "gradient: 3 B, forward_time: [7 ns, 1 ns, 9 ns, 4 ns, 8 ns, 8 ns, 2 ns, 3 ns], backward_time: 13 ns}\n";
  const std::string transformer =
      "model: {family: transformer, model_type: gpt2, layers: 8, hidden: 32, heads: 2, ffn_hidden: 64, vocab: 100, "
      "max_positions: 16, attention: eager}\nbatch: {size: 2, sequence: 16}\noptimizer: adamw\n" +
      device;
  const std::string megatron = "profile: megatron\n" + transformer +
                               "dtype: {parameters: bfloat16, compute: bfloat16, main_gradients: float32}\n";
  const Case cases[] = {
      {"1f1b", chain, "micro_batches: 60"},
      {"1f1b, slow transfers", chain, "micro_batches: 60, transfer_time: 50 ns"},
      {"1f1b, blocking transfers", chain, "micro_batches: 60, transfer_time: 5 ns, blocking_transfers: true"},
      {"1f1b, one stage", chain, "micro_batches: 60, stage: 2, transfer_time: 5 ns"},
      {"1f1b, layers of all lengths", uneven, "micro_batches: 90, transfer_time: 3 ns"},
      {"1f1b, stages under policies of their own", chain,
       "micro_batches: 60, stage_policies: [none, full, none, full], transfer_time: 1 ns"},
      {"interleaved", chain, "virtual: 2, micro_batches: 120, transfer_time: 2 ns"},
      {"interleaved, one stage", chain, "virtual: 2, micro_batches: 120, transfer_time: 2 ns, stage: 3"},
      {"interleaved, layers of all lengths", uneven, "virtual: 2, micro_batches: 160, transfer_time: 2 ns"},
      {"zb_h1", chain, "schedule: zb_h1, micro_batches: 60, transfer_time: 2 ns"},
      {"zb_h2", chain, "schedule: zb_h2, micro_batches: 60, transfer_time: 2 ns"},
      {"zb_1p", chain, "schedule: zb_1p, micro_batches: 60, transfer_time: 2 ns"},
      {"zb_2p", chain, "schedule: zb_2p, micro_batches: 60, transfer_time: 2 ns"},
      {"zb_v", chain, "schedule: zb_v, virtual: 2, micro_batches: 60, transfer_time: 2 ns"},
      {"gpipe holds all: nothing repeats", chain, "schedule: gpipe, micro_batches: 30", false},
      {"too few micro-batches to leave any out", chain, "micro_batches: 5", false},
      {"a transformer under 1f1b", transformer, "micro_batches: 24, transfer_time: 2 us"},
      {"a transformer under zb_h1, one stage", transformer, "schedule: zb_h1, micro_batches: 24, stage: 1"},
      {"Megatron-LM's loop, interleaved, a stage", megatron,
       "virtual: 2, micro_batches: 120, transfer_bandwidth: 1 GB/s, stage: 0"},
      {"Megatron-LM's loop keeps the loss of each micro-batch: its last stage does not repeat", megatron,
       "micro_batches: 20", false},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const std::string text = c.model + "parallel: {pipeline: 4, " + c.parallel;
    const Scenario whole = parse_scenario(text + "}\n", "t.yaml");
    const Scenario steady = parse_scenario(text + ", steady: true}\n", "t.yaml");
    const Run all = run(whole), folded = run(steady);
    CHECK(was_folded(folded) == c.folds);
    if (c.folds) CHECK(folded.step.ops.size() < all.step.ops.size());
    CHECK(figures(steady, folded) == figures(whole, all));
  }
}

TEST_CASE("steady: an allocator's figures are not the live bytes'") {
  std::string message;
  try {
    (void)parse_scenario(
        "model: {family: chain, layers: 4, layer_activation: 1 MB}\nparallel: {pipeline: 2, micro_batches: 9, steady: "
        "true}\nallocator: cuda_caching\n",
        "t.yaml");
  } catch (const InputError& error) {
    message = error.what();
  }
  CHECK(message ==
        "t.yaml:3:12: error: an allocator does not repeat because the live bytes do; expected kind live, or no "
        "parallel.steady");
}
