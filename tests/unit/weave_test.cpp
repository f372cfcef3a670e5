#include "tidemark/step/weave.hpp"

#include <doctest/doctest.h>

#include "support/hand_step.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/input/schedule_file.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/step/lower_pipeline.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;
using Rows = std::vector<std::string>;

namespace {

Run run_chain(const std::string& model, const std::string& parallel, const std::string& more = "") {
  return run(parse_scenario("model: {family: chain, " + model + "}\nparallel: {" + parallel + "}\n" + more, "t.yaml"));
}

/// "0:12 +saved0 10" a line: rank, time, alloc or free, the level after it.
Rows events(const Run& result) {
  Rows out;
  for (const MemoryEvent& event : result.timeline.events) {
    const StepStorage& storage = result.step.storages[event.storage];
    out.push_back(std::to_string(storage.rank) + ":" + to_string(event.time) + (event.is_alloc() ? " +" : " -") +
                  result.step.names[storage.name] + " " + to_string(event.live));
  }
  return out;
}

const std::string two_layers =
    "layers: 2, layer_activation: 10 B, boundary: [1 B, 2 B, 0 B], gradient: [0 B, 3 B, 4 B], "
    "forward_time: 10 ns, backward_time: 20 ns";

}  // namespace

// rank 0  | F0 |               | B0 |        a transfer takes 5; the buffer of rank 1 is there from the start, when the
// rank 1       > | F0 | B0 | >               host posts the receive, and so is that of rank 0 for the gradient
TEST_CASE("weave: two stages, one micro-batch") {
  const Run result = run_chain(two_layers, "pipeline: 2, transfer_time: 5 ns");
  CHECK(events(result) == Rows{"0:0 +boundary0 1",    // the batch
                               "0:0 +saved0 11",      //
                               "1:0 +boundary1 2",    // the receive is posted
                               "0:10 +gradient1 14",  // likewise
                               "1:15 +saved1 12",     // 10 + 5
                               "1:25 +gradient2 16",  // the loss
                               "1:25 +gradient1 19",  // B1
                               "1:45 -boundary1 17", "1:45 -gradient2 13", "1:45 -saved1 3",
                               "1:50 -gradient1 0",   // once it has been sent
                               "0:70 -boundary0 13",  // 50 + 20
                               "0:70 -gradient1 10", "0:70 -saved0 0"});
  CHECK_FALSE(referee(result.step, result.timeline));
  CHECK(result.timeline.end == Nanos{70});
}

// Four stages of one layer, two a node: forwards end at 10, 10 + 5 + 10 = 25, 25 + 30 + 10 = 65, 65 + 5 + 10 = 80.
TEST_CASE("weave: a transfer between nodes takes its own time") {
  const std::string model = "layers: 4, boundary: 100 B, forward_time: 10 ns, backward_time: 20 ns";
  struct Case {
    std::string name, transfers;
    std::int64_t end;  // of the last stage's forward, which begins backward
  };
  const Case cases[] = {
      {"all on one node", "transfer_time: 5 ns", 55},
      {"two nodes of two", "transfer_time: 5 ns, stages_per_node: 2, node_transfer_time: 30 ns", 80},
      {"a node a stage", "transfer_time: 5 ns, stages_per_node: 1, node_transfer_time: 30 ns", 130},
      {"by bytes", "transfer_time: 5 ns, stages_per_node: 2, node_transfer_bandwidth: 10 GB/s", 65},
      {"as within nodes, where nothing is given", "transfer_time: 5 ns, stages_per_node: 2", 55},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Run result = run_chain(model, "pipeline: 4, " + c.transfers);
    CHECK_FALSE(referee(result.step, result.timeline));
    CHECK(result.timeline.end == Nanos{2 * c.end + 4 * 10});  // and the same way back, 20 instead of 10 each
  }
  const Transfers transfers{.time = Nanos{6}, .per_node = 2, .node_time = Nanos{30}};
  CHECK(mean_transfer(transfers, 4, Bytes{}) == Nanos{(6 + 30 + 6) / 3});
  CHECK(mean_transfer(transfers, 1, Bytes{}) == Nanos{6});
}

TEST_CASE("weave: what weights still need goes with their backward") {
  const Run result =
      run_chain(two_layers + ", weight_time: 8 ns, weight_activation: 6 B", "pipeline: 2, schedule: zb_h1, stage: 1");
  CHECK(events(result) == Rows{"1:0 +boundary1 2", "1:10 +saved1 6", "1:10 +saved1.for_weights 12",
                               "1:20 +gradient2 16", "1:20 +gradient1 19", "1:32 -boundary1 17", "1:32 -gradient2 13",
                               "1:32 -saved1 9", "1:32 -gradient1 6", "1:40 -saved1.for_weights 0"});
}

TEST_CASE("weave: stages under policies of their own, and steps that follow each other") {
  struct Case {
    std::string name, model, parallel, more;
    std::string peaks;  // by stage
  };
  const std::string four =
      "layers: 4, layer_activation: 10 B, boundary: 1 B, gradient: 1 B, forward_time: 1 ns, backward_time: 2 ns";
  const Case cases[] = {
      // 2 layers of 10 B and an input of 1 B a micro-batch; while backward runs, the gradients of a layer's output and
      // input, but the loss's has 0 B
      {"1f1b holds 2 and 1 micro-batches", four, "pipeline: 2, micro_batches: 4", "", "44 22"},
      {"gpipe holds all 4", four, "pipeline: 2, micro_batches: 4, schedule: gpipe", "", "86 85"},
      {"the last stage recomputes: two inputs, one layer", four,
       "pipeline: 2, micro_batches: 4, stage_policies: [none, full]", "", "44 13"},
      {"so do all", four, "pipeline: 2, micro_batches: 4", "policy: full\n", "17 13"},
      {"a second step is as the first", four, "pipeline: 2, micro_batches: 4", "steps: 2\n", "44 22"},
      {"one stage, several micro-batches", four, "micro_batches: 3", "", "42"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Run result = run_chain(c.model, c.parallel, c.more);
    CHECK_FALSE(referee(result.step, result.timeline));
    std::string peaks;
    for (const StageFigures& stage : result.pipeline->stages)
      peaks += (peaks.empty() ? "" : " ") + to_string(stage.peak.bytes);
    CHECK(peaks == c.peaks);
  }
}

TEST_CASE("weave: every schedule is a timeline that can have happened") {
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2", "zb_1p", "zb_2p", "zb_v"})
    for (const std::string steps : {"1", "3"})
      for (const std::string policy : {"none", "full", "whole"}) {
        CAPTURE(schedule);
        CAPTURE(steps);
        CAPTURE(policy);
        const bool two = schedule == "interleaved" || schedule == "zb_v";
        const Run result = run_chain(
            "layers: 16, layer_activation: 10 B, weight_activation: 4 B, boundary: 2 B, "
            "gradient: 3 B, forward_time: 7 ns, backward_time: 13 ns, weight_time: 6 ns",
            "pipeline: 4, virtual: " + std::string(two ? "2" : "1") + ", schedule: " + schedule +
                ", micro_batches: 8, transfer_time: 2 ns",
            "policy: " + policy + "\nsteps: " + steps + "\n");
        const std::optional<Violation> violation = referee(result.step, result.timeline);
        CHECK((violation ? violation->message : "") == "");
        CHECK(result.timeline.events.back().live == Bytes{});
      }
}

/// What one rank of a run did: "12 +saved0 10 F1" a line, and all stages' figures.
Rows of_rank(const Run& result, std::int16_t rank) {
  Rows out;
  for (const MemoryEvent& event : result.timeline.events) {
    const StepStorage& storage = result.step.storages[event.storage];
    if (storage.rank != rank) continue;
    out.push_back(to_string(event.time) + (event.is_alloc() ? " +" : " -") + result.step.names[storage.name] + " " +
                  to_string(event.live) + " " +
                  (event.op() == no_id ? "" : result.step.names[result.step.ops[event.op()].name]));
  }
  for (const StageFigures& stage : result.pipeline->stages)
    out.push_back(to_string(stage.peak.bytes) + " " + stage.peak.op + " " + to_string(stage.peak.time) + " " +
                  std::to_string(stage.in_flight) + " " + to_string(stage.span) + " " + to_string(stage.busy));
  out.push_back(to_string(result.timeline.end));
  return out;
}

const std::string small_transformer =
    "model: {family: transformer, model_type: gpt2, layers: 8, hidden: 32, heads: 2, ffn_hidden: 64, vocab: 100, "
    "max_positions: 16, attention: eager}\nbatch: {size: 2, sequence: 16}\noptimizer: adamw\n"
    "device: {flops: {float32: 1 GFLOP/s}, memory_bandwidth: 1 GB/s, launch_time: 1 us}\n";

TEST_CASE("weave: one rank's view is that rank among all") {
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2", "zb_1p", "zb_2p", "zb_v"})
    for (const bool is_chain : {true, false})
      for (const std::string more : {"", ", blocking_transfers: true"}) {
        CAPTURE(schedule);
        CAPTURE(is_chain);
        CAPTURE(more);
        const bool two = schedule == "interleaved" || schedule == "zb_v";
        const std::string model =
            is_chain ? "model: {family: chain, layers: 8, layer_activation: 10 B, weight_activation: 4 B, "
                       "boundary: 2 B, gradient: 3 B, forward_time: 7 ns, backward_time: 13 ns, weight_time: 6 ns}\n"
                     : small_transformer;
        const std::string parallel = "parallel: {pipeline: 4, virtual: " + std::string(two ? "2" : "1") +
                                     ", schedule: " + schedule + ", micro_batches: 8, transfer_time: 2 ns" + more;
        const Run all = run(parse_scenario(model + parallel + "}\n", "t.yaml"));
        const std::optional<Violation> violation = referee(all.step, all.timeline);
        CHECK((violation ? violation->message : "") == "");
        for (std::int16_t stage = 0; stage < 4; ++stage) {
          const Run one = run(parse_scenario(model + parallel + ", stage: " + std::to_string(stage) + "}\n", "t.yaml"));
          CHECK(of_rank(one, stage) == of_rank(all, stage));
        }
      }
}

TEST_CASE("weave: waiting that transfers explain") {
  struct Case {
    std::string name, parallel, exposed;  // by stage
  };
  const Case cases[] = {
      // Rank 0 waits from 10 to 50 for a gradient, 5 of which is its transfer; rank 1 only waits before it starts.
      {"what comes late is not all transfer", "pipeline: 2, transfer_time: 5 ns", "5 0"},
      {"no time, nothing exposed", "pipeline: 2", "0 0"},
      // Now rank 0 stands still while its output leaves, too; rank 1 has nothing more to do when its gradient leaves.
      {"blocking", "pipeline: 2, transfer_time: 5 ns, blocking_transfers: true", "10 0"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    std::string exposed;
    const auto pipeline = run_chain(two_layers, c.parallel).pipeline;
    REQUIRE(pipeline);
    for (const StageFigures& stage : pipeline->stages)
      exposed += (exposed.empty() ? "" : " ") + to_string(stage.exposed);
    CHECK(exposed == c.exposed);
  }
}

TEST_CASE("weave: the embedding and the head as chunks of their own") {
  const auto parameters = [](const std::string& chunks) {
    const Run result = run(parse_scenario(
        "model: {family: transformer, model_type: llama, layers: 2, hidden: 32, heads: 2, ffn_hidden: 64, vocab: 100, "
        "attention: flash}\nbatch: {size: 2, sequence: 16}\nparallel: {pipeline: 4, layers_per_chunk: " +
            chunks + ", micro_batches: 4}\n",
        "t.yaml"));
    CHECK_FALSE(referee(result.step, result.timeline));
    return result.step.parameters;
  };
  const Run whole = run(parse_scenario(
      "model: {family: transformer, model_type: llama, layers: 2, hidden: 32, heads: 2, ffn_hidden: 64, vocab: 100, "
      "attention: flash}\nbatch: {size: 2, sequence: 16}\n",
      "t.yaml"));
  CHECK(parameters("[0, 1, 1, 0]") == whole.step.parameters);
}

TEST_CASE("weave: blocking transfers are waited for by who sends") {
  const Run result = run_chain(two_layers, "pipeline: 2, transfer_time: 5 ns, blocking_transfers: true");
  // As above; rank 1 starts its backward at 25 and has ended all when its gradient has been sent.
  CHECK(result.timeline.end == Nanos{70});
  const Run more =
      run_chain(two_layers, "pipeline: 2, micro_batches: 2, transfer_time: 5 ns, blocking_transfers: true");
  const Run fewer = run_chain(two_layers, "pipeline: 2, micro_batches: 2, transfer_time: 5 ns");
  // Rank 1 waits 5 for its first gradient before its second forward; that forward's data came long before.
  CHECK(more.timeline.end - fewer.timeline.end == Nanos{5});
}

TEST_CASE("weave: parameters' gradients are made once a step") {
  LayerGraph chain;
  chain.is_chain = true;
  for (int i = 0; i < 4; ++i)
    chain.layers.push_back({.layer_activation = {10}, .parameters = {100}, .forward_time = {1}, .backward_time = {2}});
  std::vector<ChunkStep> chunks;
  for (int c = 0; c < 2; ++c) {
    const LayerGraph part = part_of_chain(chain, 2 * c, 2);
    chunks.push_back(lower_chunk(part, make_plan({}, outline(part)), 2, false));
  }
  const Step step = weave(chunks, one_forward_one_backward(2, 7), {});
  const Timeline timeline = simulate(step, {});
  CHECK_FALSE(referee(step, timeline));
  const auto made = std::ranges::count_if(timeline.events, [&](const MemoryEvent& event) {
    return event.is_alloc() && step.storages[event.storage].category == Category::gradient;
  });
  CHECK(made == 2 * 4);  // steps x layers
}

TEST_CASE("weave: micro-batches that run backward in another order") {
  LayerGraph chain;
  chain.is_chain = true;
  chain.layers.push_back({.layer_activation = {10}});
  ChunkStep chunk = lower_chunk(chain, make_plan({}, outline(chain)), 1, false);
  const PipelineSchedule turned = parse_schedule("0F0,0F1,0B1,0B0", "s.csv");
  CHECK_NOTHROW(weave({chunk}, turned, {}));  // all micro-batches are alike
}

// Both chunks wait for each other, then half of the table's gradient goes each way, twice.
TEST_CASE("weave: the first and the last stage add up the gradients of the table that they share") {
  const std::string model =
      "model: {family: transformer, model_type: gpt2, layers: 4, hidden: 64, heads: 4, ffn_hidden: 256, vocab: 512, "
      "max_positions: 128, activation: gelu, attention: eager, tied_embeddings: TIED}\n"
      "batch: {size: 2, sequence: 128}\noptimizer: adamw\ndevice: a100-80gb\n";
  struct Case {
    std::string name, profile, tied, parallel;
    std::vector<int> ranks;  // that exchange
    std::int64_t bytes, time;
  };
  const std::string megatron = "profile: megatron\ndtype: {parameters: bfloat16, main_gradients: float32}\n";
  const Case cases[] = {
      {"in the type of the weights",
       "",
       "true",
       "pipeline: 2, transfer_time: 1 us, transfer_bandwidth: 1 GB/s",
       {0, 1},
       131'072,
       2'000 + 131'072},
      {"Megatron's main gradients, four stages",
       megatron,
       "true",
       "pipeline: 4, transfer_time: 1 us, transfer_bandwidth: 1 GB/s",
       {0, 3},
       131'072,
       2'000 + 131'072},
      {"between nodes",
       "",
       "true",
       "pipeline: 2, transfer_time: 1 us, stages_per_node: 1, node_transfer_time: 5 us",
       {0, 1},
       131'072,
       10'000},
      {"a head of its own", "", "false", "pipeline: 2, transfer_time: 1 us", {}, 0, 0},
      {"both on one stage", "", "true", "pipeline: 2, schedule: zb_v, transfer_time: 1 us", {}, 0, 0},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    std::string text = c.profile + model;
    text.replace(text.find("TIED"), 4, c.tied);
    const Run result = run(parse_scenario(text + "parallel: {" + c.parallel + ", micro_batches: 4}\n", "t.yaml"));
    CHECK_FALSE(referee(result.step, result.timeline));
    std::vector<int> ranks;
    std::vector<Nanos> starts, ends;
    for (std::size_t i = 0; i < result.step.ops.size(); ++i) {
      const StepOp& op = result.step.ops[i];
      if (result.step.names[op.name] != "embedding.gradient.all_reduce" || op.step != 1) continue;
      ranks.push_back(op.rank);
      starts.push_back(result.timeline.ops[i].start);
      ends.push_back(result.timeline.ops[i].end);
      CHECK(op.moved == Bytes{c.bytes});
      CHECK(op.read_end - op.read_begin == 1);
    }
    CHECK(ranks == c.ranks);
    if (ranks.size() != 2) continue;
    CHECK(starts[0] == starts[1]);
    CHECK(ends[0] - starts[0] == Nanos{c.time});
    // Nobody updates before: the optimizer of both ranks comes behind.
    for (std::size_t i = 0; i < result.step.ops.size(); ++i) {
      const StepOp& op = result.step.ops[i];
      if (op.step == 1 && op.phase == Phase::optimizer && std::ranges::find(ranks, op.rank) != ranks.end())
        CHECK(result.timeline.ops[i].start >= ends[0]);
    }
  }
}
