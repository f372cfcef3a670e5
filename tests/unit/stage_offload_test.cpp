// Copies to the host inside a pipeline's stages.
#include <doctest/doctest.h>

#include "tidemark/base/errors.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/report/offload.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;
using Rows = std::vector<std::string>;

namespace {

// A layer's 100 B and its output take 11 ns over a link of 10 GB/s; a pass takes 20 or 40.
const std::string chain =
    "model: {family: chain, layers: 16, layer_activation: 100 B, boundary: 10 B, gradient: 10 B, forward_time: 20 ns, "
    "backward_time: 40 ns}\n";
const std::string gpt =
    "profile: pytorch-cuda\n"
    "model: {family: transformer, model_type: gpt2, layers: 8, hidden: 32, heads: 2, ffn_hidden: 64, vocab: 100, "
    "max_positions: 16, attention: eager}\nbatch: {size: 2, sequence: 16}\noptimizer: adamw\n";

std::string link(const std::string& rate) {
  return "device: {flops: {float32: 1 GFLOP/s}, memory_bandwidth: 1 GB/s, copy_bandwidth: {to_host: " + rate +
         ", to_device: " + rate + "}}\n";
}

Run run_text(const std::string& text) { return run(parse_scenario(text, "t.yaml")); }

/// "12 +saved0 10 F1", of one rank.
Rows of_rank(const Run& result, std::int16_t rank) {
  Rows out;
  for (const MemoryEvent& event : result.timeline.events) {
    const StepStorage& storage = result.step.storages[event.storage];
    if (storage.rank != rank) continue;
    out.push_back(to_string(event.time) + (event.is_alloc() ? " +" : " -") + result.step.names[storage.name] + " " +
                  to_string(storage.bytes) + " " +
                  (event.op() == no_id ? "" : result.step.names[result.step.ops[event.op()].name]));
  }
  for (const HostEvent& event : host_events(result.step, result.timeline)) {
    const HostBlock& block = result.step.host[event.block];
    if (result.step.ops[block.out].rank != rank) continue;
    out.push_back(to_string(event.time) + (event.is_alloc ? " host +" : " host -") + result.step.names[block.name] +
                  " " + to_string(event.held));
  }
  const OffloadFigures figures = offload_figures(result.step, result.timeline, rank);
  out.push_back(std::to_string(figures.copies) + " copies, " + to_string(figures.moved_out) + " out, " +
                to_string(figures.moved_in) + " back, waits " + to_string(figures.waits));
  return out;
}

Bytes peak(const Run& result, std::size_t stage) { return result.pipeline->stages[stage].peak.bytes; }

}  // namespace

TEST_CASE("stage offload: what happens can have happened, and one stage's view is that stage among all") {
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved"})
    for (const bool is_chain : {true, false})
      for (const std::string policy :
           {"{kind: offload}", "{kind: offload, wait_after: 1}", "{kind: offload, fraction: 0.5, prefetch: 0}",
            "{kind: block, layers: 1, offload: {layers: 1-1}}"}) {
        CAPTURE(schedule);
        CAPTURE(is_chain);
        CAPTURE(policy);
        std::string moved = policy;  // all of a small model's tensors are small
        moved.insert(moved.find("offload: {") != std::string::npos ? moved.find("offload: {") + 10 : moved.size() - 1,
                     moved.find("offload: {") != std::string::npos ? "min_size: 1 B, " : ", min_size: 1 B");
        const std::string text =
            (is_chain ? chain : gpt) + link("10 GB/s") + "policy: " + moved +
            "\nparallel: {pipeline: 2, micro_batches: 4, transfer_time: 5 ns, schedule: " + schedule +
            (schedule == "interleaved" ? ", virtual: 2" : "");
        const Run all = run_text(text + "}\n");
        const std::optional<Violation> violation = referee(all.step, all.timeline);
        CHECK((violation ? violation->message : "") == "");
        CHECK(all.step.host.size() >= 8);
        for (std::int16_t stage = 0; stage < 2; ++stage) {
          const Run one = run_text(text + ", stage: " + std::to_string(stage) + "}\n");
          CHECK(of_rank(one, stage) == of_rank(all, stage));
          CHECK(one.pipeline->bubble_rate == all.pipeline->bubble_rate);
        }
      }
}

// One stage and its micro-batches are one device that accumulates gradients.
TEST_CASE("stage offload: one stage is one device") {
  for (const std::string policy : {"{kind: offload, min_size: 1 B}", "{kind: full, offload: {min_size: 1 B}}"}) {
    CAPTURE(policy);
    const std::string text = gpt + link("1 GB/s") + "policy: " + policy + "\n";
    Run accumulated = [&] {
      std::string with = text;
      with.replace(with.find("sequence: 16}"), 13, "sequence: 16, accumulate: 3}");
      return run_text(with);
    }();
    const Run staged = run_text(text + "parallel: {micro_batches: 3}\n");
    CHECK(staged.timeline.peak == accumulated.timeline.peak);
    const OffloadFigures a = offload_figures(accumulated.step, accumulated.timeline, 0);
    const OffloadFigures b = offload_figures(staged.step, staged.timeline, 0);
    CHECK(a.copies == b.copies);
    CHECK(a.moved_out == b.moved_out);
    CHECK(a.host_peak == b.host_peak);
    CHECK(a.waits == b.waits);
    CHECK(a.moved_out > Bytes{});
  }
}

// Stage 0 holds two micro-batches of four layers: 840 B at most. The last layer of a chunk stays.
TEST_CASE("stage offload: a fast link lowers the peak of the stage that holds most, a slow one does not hide") {
  const std::string parallel = "parallel: {pipeline: 2, micro_batches: 8, transfer_time: 5 ns}\n";
  const Run none = run_text(chain + link("10 GB/s") + parallel);
  const Run fast = run_text(chain + link("100 GB/s") + "policy: {kind: offload, min_size: 1 B}\n" + parallel);
  const Run slow = run_text(chain + link("1 GB/s") + "policy: {kind: offload, min_size: 1 B}\n" + parallel);
  CHECK(peak(fast, 0) < peak(none, 0));
  CHECK(fast.pipeline->stages[0].without_copies == peak(none, 0));
  CHECK_FALSE(none.pipeline->stages[0].without_copies);
  const Nanos waits_fast = offload_figures(fast.step, fast.timeline, 0).waits;
  const Nanos waits_slow = offload_figures(slow.step, slow.timeline, 0).waits;
  CHECK(waits_slow > waits_fast);
  CHECK(slow.timeline.end > fast.timeline.end);
  CHECK(peak(slow, 0) > peak(fast, 0));
}

TEST_CASE("stage offload: what is refused") {
  struct Case {
    std::string name, policy, parallel, message;
  };
  const Case cases[] = {
      {"weights apart", "{kind: offload, min_size: 1 B}", "{pipeline: 2, micro_batches: 4, schedule: zb_h1}",
       "a stage that runs the weights' backward apart copies nothing to the host; expected another schedule, or a "
       "policy "
       "without copies"},
      {"hooks", "{kind: full, checkpointing: offload}", "{pipeline: 2, micro_batches: 4}",
       "a pipeline's stages have no saved-tensor hooks; expected policy.offload, or no copies"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    std::string message;
    try {
      (void)run_text(chain + link("1 GB/s") + "policy: " + c.policy + "\nparallel: " + c.parallel + "\n");
    } catch (const InputError& error) {
      message = error.message();
    }
    CHECK(message == c.message);
  }
}
