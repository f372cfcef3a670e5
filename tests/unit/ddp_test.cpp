// Replicas under DistributedDataParallel: what do the buckets take, and when is each of them reduced?
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/life.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/report/summary.hpp"
#include "tidemark/study/facts.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;
using namespace tidemark::test;

namespace {

// In fp32: table and head 393,216 elements (1.5 MiB) each; a block has norms of 128, q, k, v, o of 16,384 and three
// products of 131,072: 459,008 elements, of which a product is half a MiB.
const std::string llama =
    "profile: pytorch-cuda\n"
    "model: {family: transformer, model_type: llama, layers: 2, hidden: 128, heads: 2, ffn_hidden: 1024, vocab: 3072,\n"
    "        attention: flash}\n"
    "batch: {size: 1, sequence: 8}\n"
    "optimizer: {kind: adamw, fused: true}\n"
    "steps: 2\n"
    "parallel: {data: 4, ddp: {bucket_cap_mb: 1}}\n";
const std::string view = "parallel.ddp.gradient_as_bucket_view=true";
constexpr std::int64_t all = 4 * (2 * 393216 + 2 * 459008 + 128);

using Sets = std::vector<std::string>;

/// "bytes" of the buckets, in the order of their reduction.
std::vector<std::string> reductions(const Step& step, int step_number) {
  std::vector<std::string> out;
  for (const StepOp& op : step.ops)
    if (op.kind == OpKind::collective && op.step == step_number)
      out.push_back(std::string(step.names[op.name]) + " " + std::to_string(op.moved.count));
  return out;
}

}  // namespace

TEST_CASE("ddp: one bucket in the first step, then cut as gradients came") {
  using Names = std::vector<std::string>;
  const Step step = step_of(llama, {});
  CHECK(reductions(step, 0) == Names{"ddp.bucket.0.all_reduce " + std::to_string(2 * all * 3 / 4)});
  // Backward: head 1572864 B; norm 512, down 524288, up 524288: 1049088; gate 524288, norm, o, v, k, q of 65536, norm,
  // down 524288: 1311744; up, gate 1048576: exactly a MiB; norm, four of 65536, norm, table 1572864: 1836032.
  const std::int64_t sizes[] = {1572864, 1049088, 1311744, 1048576, 1836032};
  Names expected;
  std::int64_t sum = 0;
  for (std::size_t b = 0; b < 5; ++b) {
    expected.push_back("ddp.bucket." + std::to_string(b) + ".all_reduce " + std::to_string(2 * (sizes[b] * 3 / 4)));
    sum += sizes[b];
  }
  CHECK(sum == all);
  CHECK(reductions(step, 1) == expected);
  // 25 MiB: a first bucket of 1 MiB, the head, and all the rest
  CHECK(reductions(step_of(llama, {"parallel.ddp={}"}), 1) ==
        Names{"ddp.bucket.0.all_reduce " + std::to_string(2 * (1572864 * 3 / 4)),
              "ddp.bucket.1.all_reduce " + std::to_string(2 * ((all - 1572864) * 3 / 4))});
}

TEST_CASE("ddp: micro-batches under no_sync") {
  CHECK(reductions(step_of(llama, {"batch.accumulate=3"}), 1).size() == 5);
  CHECK(reductions(step_of(llama, {"batch.accumulate=3", "parallel.ddp.no_sync=false"}), 1).size() == 15);
}

TEST_CASE("ddp: a storage's life") {
  struct Case {
    std::string name;
    Sets sets;
    std::string tensor, lives;
  };
  const std::string head = "head.lm_head.weight.grad", first = "ddp.bucket.0", one = std::to_string(all) + " B, ";
  const std::string to_bucket = "backward of head.lm_head.weight.grad.to_bucket";
  const Case cases[] = {
      {"a bucket is there from construction, and cut anew",
       {},
       first,
       one + "start to ddp.rebuild_buckets | 1572864 B, ddp.rebuild_buckets to end"},
      {"a gradient of its own beside it", {"steps=1"}, head, "1572864 B, backward of head.lm_head to zero_grad"},
      {"goes into it", {view, "steps=1"}, head, "1572864 B, backward of head.lm_head to " + to_bucket},
      {"views: the bucket stays when gradients are dropped", {view, "steps=1"}, first, one + "start to end"},
      {"no_sync: gradients of their own until the last micro-batch",
       {view, "steps=1", "batch.accumulate=2"},
       head,
       "1572864 B, backward of head.lm_head to " + to_bucket +
           " | 1572864 B, backward of head.lm_head to backward of "
           "head.lm_head"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(every_life(step_of(llama, c.sets), c.tensor) == c.lives);
  }
}

TEST_CASE("ddp: buckets are a second copy of the gradients, views are none") {
  const auto gradients = [](const Sets& sets) {
    const Run result = run(parse_scenario(llama, "s.yaml", sets));
    std::int64_t live = 0, most = 0;
    for (const Instruction& at : result.step.instructions) {
      if (at.what != Do::alloc && at.what != Do::free) continue;
      const StepStorage& storage = result.step.storages[at.index];
      if (storage.category != Category::gradient) continue;
      live += at.what == Do::alloc ? storage.bytes.count : -storage.bytes.count;
      most = std::max(most, live);
    }
    return most;
  };
  CHECK(gradients({"steps=1"}) == all + 4);  // the loss's own gradient is held until backward ends
  CHECK(gradients({"steps=1", view}) < all / 2);
}

TEST_CASE("ddp: what backward hides") {
  // Buckets 0 to 3 are reduced while backward runs for milliseconds; of the last nothing is hidden.
  const std::string slow = "device={name: d, link_bandwidth: 1 GB/s, flops: {float32: 1 GFLOP/s}}";
  const Scenario scenario = parse_scenario(llama, "s.yaml", {slow});
  const Run result = run(scenario);
  const CollectiveFigures figures = summarize(result.step, result.timeline, plain_facts(scenario)).collectives;
  CHECK(figures.count == 5);
  CHECK(figures.received == Bytes{2 * all * 3 / 4});
  CHECK(figures.exposed >= Nanos{2 * 1836032 * 3 / 4});
  CHECK(figures.exposed < figures.busy);
}

TEST_CASE("ddp: runs are valid") {
  const std::string slow = "device={name: d, link_bandwidth: 100 MB/s}";
  const Sets cases[] = {
      {},
      {view, slow},
      {slow, "batch.accumulate=3", "steps=3"},
      {view, slow, "batch.accumulate=3", "steps=3"},
      {slow, "batch.accumulate=2", "parallel.ddp.no_sync=false"},
      {view, "optimizer.zero_grad=zero", "steps=3"},
      {"optimizer.zero_grad=zero", slow},
      {"model.tied_embeddings=true", "policy.kind=full", slow},
      {view, "policy={kind: full, checkpointing: reentrant}", slow},
      {"lora={rank: 4, targets: [q_proj]}", slow},
      {"profile=torchtitan", "dtype={parameters: bfloat16, compute: bfloat16, norms: float32}", slow}};
  for (const Sets& sets : cases) {
    CAPTURE(sets);
    const Run result = run(parse_scenario(llama, "s.yaml", sets));
    const std::optional<Violation> violation = referee(result.step, result.timeline);
    CHECK((violation ? violation->message : "") == "");
  }
}

TEST_CASE("ddp: what is refused") {
  struct Case {
    std::string name;
    Sets sets;
    std::string error;
  };
  const Case cases[] = {
      {"one rank", {"parallel.data=1"}, "'ddp' is for whole replicas of model code huggingface and torchtitan"},
      {"another sharding", {"parallel.sharding=fsdp2"}, "'ddp' is for whole replicas"},
      {"another framework", {"profile=megatron"}, "'ddp' is for whole replicas"},
      {"a bucket of nothing", {"parallel.ddp.bucket_cap_mb=0"}, "'bucket_cap_mb' must be a positive integer"},
      {"a pipeline", {"parallel.pipeline=2"}, "'pipeline' is not simulated together with DistributedDataParallel"},
      {"main gradients", {"dtype.main_gradients=float32"}, "DistributedDataParallel has no main gradients"},
      {"a runtime without hooks",
       {"profile.runtime=ideal", "profile.preset=pytorch-cuda"},
       "expected a runtime of PyTorch, not ideal"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const std::string error = error_of(llama, c.sets);
    CAPTURE(error);
    CHECK(error.find(c.error) != error.npos);
  }
}
