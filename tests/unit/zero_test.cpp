// DeepSpeed's ZeRO stages 2 and 3: how many bytes has a rank of gradients, buckets and parameters, from when to when?
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/life.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/program/transformer.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;
using namespace tidemark::test;

namespace {

// 34016 parameters: a block has 9280 (norm 32, q 1024, k and v 512, o 1024, norm 32, gate, up, down 2048 each), table
// and head have 3072, the last norm 32. The flat tensor begins with the table, then the blocks. A quarter of it is
// 8504, in which the table and all of the first block but its down product begin: 10304 elements.
const std::string llama =
    "profile: {preset: pytorch-cuda, loop: deepspeed}\n"
    "model: {family: transformer, model_type: llama, layers: 3, hidden: 32, heads: 4, kv_heads: 2, ffn_hidden: 64,\n"
    "        vocab: 96, attention: flash}\n"
    "batch: {size: 2, sequence: 8}\n"
    "dtype: {parameters: bfloat16, compute: bfloat16, master: float32}\n"
    "optimizer: {kind: adamw, fused: true}\n"
    "steps: 1\n"
    "parallel: {data: 4, sharding: zero2, zero_optimization: {reduce_bucket_size: 10000}}\n";
const std::string zero3 = "parallel.sharding=zero3";
const std::string overlap = "parallel.zero_optimization.overlap_comm=true";
const std::string apart = "parallel.zero_optimization.contiguous_gradients=false";

const std::string fp32 = "parallel.zero_optimization.grad_accum_dtype=float32";
const std::string large = "parallel.zero_optimization.stage3_param_persistence_threshold=100";  // only norms are small
const std::string no_prefetch = "parallel.zero_optimization.stage3_prefetch_bucket_size=0";
const std::string ahead = "parallel.zero_optimization.stage3_prefetch_bucket_size=1000";
const std::string far = "parallel.zero_optimization.stage3_max_reuse_distance=0";

using Sets = std::vector<std::string>;

/// Sum of the storages that are there before the first op.
std::int64_t bytes_at_start(const Step& step, Category category) {
  std::int64_t sum = 0;
  for (const StorageId id : step.initial)
    if (step.storages[id].category == category) sum += step.storages[id].bytes.count;
  return sum;
}

/// Bytes over the link, of all collectives whose name ends so.
std::vector<std::int64_t> moved(const Step& step, const std::string& end) {
  std::vector<std::int64_t> out;
  for (const StepOp& op : step.ops)
    if (std::string(step.names[op.name]).ends_with(end)) out.push_back(op.moved.count);
  return out;
}

}  // namespace

TEST_CASE("zero: what a rank has from the start is the paper's closed form") {
  // Rajbhandari et al. 2020, figure 1: 2 + 2 + 12 bytes a parameter; 34016 divides by 4 ranks and their padding.
  constexpr std::int64_t all = 34016;
  for (const std::string policy : {"policy=none", "policy=full"}) {
    const Step second = step_of(llama, {policy});
    CHECK(bytes_at_start(second, Category::parameter) == 2 * all);
    CHECK(bytes_at_start(second, Category::optimizer_state) == 12 * all / 4);
    const Step third = step_of(llama, {policy, zero3, "parallel.zero_optimization.reduce_bucket_size=1"});
    CHECK(bytes_at_start(third, Category::parameter) == 2 * all / 4);
    CHECK(bytes_at_start(third, Category::gradient) == 2 * all / 4 + 2);  // and a bucket of one element
    CHECK(bytes_at_start(third, Category::optimizer_state) == 12 * all / 4);
  }
}

TEST_CASE("zero: a storage's life") {
  struct Case {
    std::string name;
    Sets sets;
    std::string tensor, lives;
  };
  const std::string reduce = "gradients.all_reduce", scatter = "gradients.reduce_scatter";
  const std::string down = "layers.1.mlp.down_proj.weight";
  const std::string to_bucket = "backward of " + down + ".grad.to_bucket", came = "backward of " + down + ".grad.came";
  const auto times = [](int n, const std::string& life) {
    std::string out = life;
    for (int i = 1; i < n; ++i) out += " | " + life;
    return out;
  };
  // Reduced are 3072 + 32 + 3 x 2048 + 32 = 9280 elements, before the o product would make it 10304; twice more the
  // same of a block behind; and 6176 at the end, which are all the first rank's.
  const std::string flattened = "18560 B, " + reduce + " to " + reduce;
  const Case cases[] = {
      {"a bucket has its whole size",
       {},
       "gradients.bucket",
       "20000 B, backward of gradients.setup_buckets to " + reduce},
      {"two of them",
       {overlap},
       "gradients.bucket",
       times(2, "20000 B, backward of gradients.setup_buckets to " + reduce)},
      {"none", {apart}, "gradients.bucket", "never"},
      {"a gradient goes into it", {}, down + ".grad", "4096 B, backward of layers.1.mlp.down_proj to " + to_bucket},
      {"or stays until it is reduced",
       {apart},
       down + ".grad",
       "4096 B, backward of layers.1.mlp.down_proj to " + reduce},
      {"reduced together", {}, "gradients.flattened", times(3, flattened)},
      {"without a buffer always side by side",
       {apart},
       "gradients.flattened",
       times(3, flattened) + " | 12352 B, " + reduce + " to " + reduce},
      {"what begins in the part is kept whole",
       {},
       "gradients.partition",
       "20608 B, " + reduce + " to optimizer.gradients"},
      {"a later backward is added",
       {"batch.accumulate=2"},
       "gradients.partition",
       "20608 B, " + reduce + " to optimizer.gradients | 20608 B, " + reduce + " to backward of gradients.accumulate"},
      {"added up in fp32",
       {fp32},
       "gradients.accumulated",
       "34016 B, backward of gradients.accumulate to optimizer.gradients"},
      {"a copy for the update", {}, "gradients.flat", "17008 B, optimizer.gradients to optimizer.gradients"},
      {"and one in fp32", {}, "gradients.float", "34016 B, optimizer.gradients to optimizer.bfloat16"},
      {"which is the only one then", {fp32}, "gradients.flat", "never"},
      {"stage 3: the bucket is there from the start", {zero3}, "gradients.bucket", "20000 B, start to end"},
      {"and the part", {zero3}, "gradients.partition", "17008 B, start to end"},
      {"a part of each parameter", {zero3}, down + ".shard", "1024 B, start to end"},
      {"padded to the ranks", {zero3, "parallel.data=5"}, down + ".shard", "820 B, start to end"},
      {"stage 3: parts side by side",
       {zero3},
       "gradients.flattened",
       times(3, "18560 B, " + scatter + " to " + scatter) + " | 12352 B, " + scatter + " to " + scatter},
      {"whole where it is used, the order not known",
       {zero3},
       down + ".whole",
       "4096 B, " + down + ".all_gather to layers.1.mlp.down_proj | 4096 B, " + down + ".all_gather to " + came +
           " | 4096 B, parameters.persistent.all_gather to end"},
      {"a large one is divided again",
       {zero3, large},
       down + ".whole",
       "4096 B, " + down + ".all_gather to layers.1.mlp.down_proj | 4096 B, " + down + ".all_gather to " + came},
      {"used again soon, it stays",
       {zero3, large, "batch.accumulate=2", no_prefetch},
       down + ".whole",
       "4096 B, " + down + ".all_gather to layers.1.mlp.down_proj | 4096 B, " + down + ".all_gather to " + came +
           " | 4096 B, " + down + ".all_gather to " + came},
      {"not soon",
       {zero3, large, "batch.accumulate=2", no_prefetch, far},
       down + ".whole",
       "4096 B, " + down + ".all_gather to layers.1.mlp.down_proj | 4096 B, " + down + ".all_gather to " + came +
           " | 4096 B, " + down + ".all_gather to layers.1.mlp.down_proj | 4096 B, " + down + ".all_gather to " + came},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(every_life(step_of(llama, c.sets), c.tensor) == c.lives);
  }
}

TEST_CASE("zero: what is fetched ahead waits in its buffer") {
  const Step step = step_of(llama, {zero3, large, far, "batch.accumulate=2",
                                    "parallel.zero_optimization"
                                    ".stage3_prefetch_bucket_size=1050"});
  // While the table is in use: the norm of 32, which is away before the first step ends, and q. Both are copied out for
  // the norm, and the buffer goes when q is asked for.
  const std::vector<std::string> lives = lives_of(step, "all_gather.buffer");
  REQUIRE(!lives.empty());
  CHECK(lives.front() == "2112 B, layers.0.attention_norm.weight.all_gather to layers.0.attention_norm.scale");
  CHECK(lives_of(step, "layers.0.attention.q_proj.weight.whole")
            .at(2)
            .starts_with("2048 B, layers.0.attention_norm.weight.copy_out to "));
}

TEST_CASE("zero: what is exchanged") {
  // All but a rank's quarter passes its link, twice in an all-reduce.
  constexpr std::int64_t bucket = 18560 * 3 / 4, last = 12352 * 3 / 4, all = 2 * 34016 * 3 / 4;
  const Step second = step_of(llama, {});
  CHECK(moved(second, "gradients.all_reduce") ==
        std::vector<std::int64_t>{2 * bucket, 2 * bucket, 2 * bucket, 2 * last});
  CHECK(moved(second, "parameters.all_gather") == std::vector<std::int64_t>{all});
  const Step third = step_of(llama, {zero3, large});
  CHECK(moved(third, "gradients.reduce_scatter") == std::vector<std::int64_t>{bucket, bucket, bucket, last});
  std::int64_t gathered = 0;
  for (const std::int64_t bytes : moved(third, ".weight.all_gather")) gathered += bytes;
  CHECK(gathered == 2 * all);  // in forward and in backward
  CHECK(moved(third, "persistent.all_gather") == std::vector<std::int64_t>{7 * 64 * 3 / 4});  // seven norms
}

TEST_CASE("zero: runs are valid") {
  const std::string slow = "device={name: d, link_bandwidth: 1 MB/s}";
  const Sets cases[] = {{},
                        {overlap, slow},
                        {apart, overlap, slow, "batch.accumulate=2"},
                        {fp32, "batch.accumulate=3", "steps=2"},
                        {"parallel.zero_optimization.reduce_bucket_size=500", overlap, slow},
                        {"optimizer.fused=false", "parallel.data=3", "model.tied_embeddings=true"},
                        {zero3, slow, "steps=3"},
                        {zero3, large, ahead, far, slow, "batch.accumulate=2", "steps=2", "policy.kind=full"},
                        {zero3, large, ahead, slow, "steps=2", "policy={kind: full, checkpointing: nonreentrant}"},
                        {zero3, large, "steps=2", "policy={kind: full, checkpointing: reentrant}"},
                        {zero3, "parallel.zero_optimization.reduce_bucket_size=500", slow, "steps=2"},
                        {zero3, "parallel.zero_optimization.sub_group_size=1000", "parallel.data=5", "steps=2"},
                        {zero3, "model.tied_embeddings=true", "lora={rank: 4, targets: [q_proj]}", "steps=2"}};
  for (const Sets& sets : cases) {
    CAPTURE(sets);
    const Run result = run(parse_scenario(llama, "s.yaml", sets));
    const std::optional<Violation> violation = referee(result.step, result.timeline);
    CHECK((violation ? violation->message : "") == "");
  }
}

TEST_CASE("zero: a part is updated in groups") {
  // 8504 elements: groups end with the parameter that brings them to 3000.
  const Step step = step_of(llama, {zero3, "parallel.zero_optimization.sub_group_size=3000"});
  std::int64_t sum = 0;
  const std::vector<std::string> lives = lives_of(step, "gradients.float");
  for (const std::string& life : lives) sum += std::stoll(life);
  CHECK(lives.size() == 3);
  CHECK(sum == 4 * 8504);
}

TEST_CASE("zero: counts as DeepSpeed's files write them") {
  const auto size = [](const std::string& written) {
    std::string text = llama;
    text.replace(text.find("10000}"), 5, written);
    return parse_scenario(text, "s.yaml").training.shards.zero.reduce_bucket_size;
  };
  CHECK(size("5e8") == 500'000'000);
  CHECK(size("12e0") == 12);
  CHECK(size("1e12") == 1'000'000'000'000);
  for (const std::string written :
       {"5e", "e8", "0e3", "2e12", "1e13", "5e-3", "1.5e8", "\"5e8\"", "5e99999999999999999999"})
    CHECK_THROWS_WITH_AS(size(written), doctest::Contains("'reduce_bucket_size' must be a positive integer"),
                         InputError);
}

TEST_CASE("zero: what is refused") {
  struct Case {
    std::string name;
    Sets sets;
    std::string error;
  };
  const Case cases[] = {
      {"settings of nothing",
       {"parallel.sharding=zero1"},
       "'zero_optimization' is for sharding zero2 and zero3, not zero1"},
      {"stage 3's in stage 2",
       {"parallel.zero_optimization.stage3_max_live_parameters=5"},
       "'stage3_max_live_parameters' is for sharding zero3, whose parameters are divided"},
      {"a bucket of nothing",
       {"parallel.zero_optimization.reduce_bucket_size=0"},
       "'reduce_bucket_size' must be a positive integer"},
      {"groups of nothing",
       {zero3, "parallel.zero_optimization.sub_group_size=0"},
       "'sub_group_size' must be a positive integer"},
      {"no fp32 copy",
       {"dtype={parameters: bfloat16, compute: bfloat16}"},
       "'zero2' updates an fp32 copy of a rank's part; expected dtype.master float32"},
      {"main gradients",
       {"dtype.main_gradients=float32"},
       "'zero2' has its own buffers of gradients; leave dtype.main_gradients out"},
      {"a pipeline", {"parallel.pipeline=3"}, "'pipeline' is not simulated together with sharding zero2"},
      {"another framework's code",
       {zero3, "profile=megatron-deepspeed"},
       "'zero3' is for model code huggingface and torchtitan, not megatron"},
      {"a runtime without hooks",
       {"profile=ideal"},
       "'zero2' is DeepSpeed's; expected a runtime of PyTorch, not ideal"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const std::string error = error_of(llama, c.sets);
    CAPTURE(error);
    CHECK(error.find(c.error) != error.npos);
  }
}
