// What does the backward of weights, run apart, hold until then, and does it change what is computed?
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "tidemark/base/errors.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/program/transformer_chunk.hpp"
#include "tidemark/step/kernel.hpp"
#include "tidemark/step/lower_pipeline.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;

namespace {

std::string scenario(const std::string& profile, const std::string& schedule, const std::string& more = "") {
  return "profile: " + profile +
         "\nmodel: {family: transformer, model_type: llama, layers: 4, hidden: 32, heads: 2, ffn_hidden: 64, vocab: "
         "100, attention: flash}\nbatch: {size: 2, sequence: 16}\nsteps: 2\n"
         "device: {flops: {float32: 1 GFLOP/s, bfloat16: 1 GFLOP/s}}\nparallel: {pipeline: 2, micro_batches: 6, "
         "schedule: " +
         schedule + "}\n" + more;
}

Flops total(const Step& step) {
  Flops sum;
  for (const StepOp& op : step.ops) sum += Flops{op.flops};
  return sum;
}

/// By rank.
std::vector<Bytes> last_levels(const Run& result) {
  std::vector<Bytes> out(static_cast<std::size_t>(result.step.ranks));
  for (const MemoryEvent& event : result.timeline.events)
    out[static_cast<std::size_t>(result.step.storages[event.storage].rank)] = event.live;
  return out;
}

}  // namespace

TEST_CASE("weights apart: held are the products' inputs and the gradients of their outputs") {
  const Scenario made = parse_scenario(scenario("ideal", "zb_h1"), "t.yaml");
  Training training = made.training;
  training.batch.accumulate = 2;
  const TransformerChunk chunk = make_transformer_chunk(std::get<TransformerSpec>(made.model), training, {1, 1});
  const KernelSet kernels(training.profile.kernels);
  const ChunkStep lowered = lower_chunk(chunk, make_plan({}, outline(chunk.program, kernels)), training, true);
  REQUIRE(lowered.weights_begin.size() == 4);  // steps x micro-batches

  std::set<std::int32_t> storages;
  Bytes expected;
  int products = 0;
  const auto tensor = [&](TensorId t) { return chunk.program.tensors[static_cast<std::size_t>(t)]; };
  const auto bytes = [&](std::int32_t s) { return chunk.program.storages[static_cast<std::size_t>(s)].bytes; };
  for (const ProgramOp& op : chunk.program.ops) {
    if (op.kind != OpKind::linear) continue;
    ++products;
    if (storages.insert(tensor(op.inputs[0]).storage).second) expected += bytes(tensor(op.inputs[0]).storage);
    expected += bytes(tensor(op.outputs[0]).storage);
  }
  // The last product's output is added to the chunk's own: its gradient is the one that the next chunk sent.
  expected -= lowered.output_bytes;
  CHECK(products == 7);

  Bytes level, at_weights;
  const Step& step = lowered.step;
  for (const Instruction& at : step.instructions) {
    if (step.ops[at.op].step > 0 || step.ops[at.op].micro_batch == 0) continue;
    if (at.op == lowered.weights_begin[1] && at_weights.count == 0) at_weights = level;
    if (at.what == Do::alloc) level += step.storages[at.index].bytes;
    if (at.what == Do::free) level -= step.storages[at.index].bytes;
  }
  CHECK(at_weights == expected);
}

TEST_CASE("weights apart: the same work, and every timeline can have happened") {
  for (const std::string profile : {"ideal", "pytorch-cuda", "megatron", "torchtitan"})
    for (const std::string schedule : {"zb_h1", "zb_h2", "zb_1p", "zb_2p"})
      for (const std::string policy : {"none", "full", "{kind: selective, recompute: [attention]}"}) {
        CAPTURE(profile);
        CAPTURE(schedule);
        CAPTURE(policy);
        const Run split = run(parse_scenario(scenario(profile, schedule, "policy: " + policy + "\n"), "t.yaml"));
        const std::optional<Violation> violation = referee(split.step, split.timeline);
        CHECK((violation ? violation->message : "") == "");
        const Run both = run(parse_scenario(scenario(profile, "1f1b", "policy: " + policy + "\n"), "t.yaml"));
        CHECK(total(split.step) == total(both.step));
        CHECK(last_levels(split) == last_levels(both));
      }
}

TEST_CASE("weights apart: not with reentrant checkpointing") {
  std::string message;
  try {
    (void)run(parse_scenario(scenario("pytorch-cuda", "zb_h1", "policy: {kind: full, checkpointing: reentrant}\n"),
                             "t.yaml"));
  } catch (const InputError& error) {
    message = error.message();
  }
  CHECK(message.find("checkpointing that is not reentrant") != std::string::npos);
}
