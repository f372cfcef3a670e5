// What do clipping, 8-bit states and updates within backward hold, and until when?
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/life.hpp"

using namespace tidemark;
using namespace tidemark::test;

namespace {

// 96 words of 64: tables of 6,144; a feed-forward weight has 4,096 elements, a key weight 2,048, a norm 64. 18 weights.
const std::string llama =
    "model: {family: transformer, model_type: llama, layers: 2, hidden: 64, heads: 4, kv_heads: 2, ffn_hidden: 64,\n"
    "        vocab: 96, attention: flash}\n"
    "batch: {size: 2, sequence: 8}\n"
    "dtype: {parameters: bfloat16, compute: bfloat16}\n";
const std::string head = "head.lm_head.weight", up = "layers.0.mlp.up_proj", key = "layers.0.attention.k_proj";

struct Case {
  std::string name;
  std::vector<std::string> sets;
  std::string tensor, life;
};

void check_lives(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(life(step_of(llama, c.sets), c.tensor) == c.life);
  }
}

int count_of(const Step& step, const std::string& name) {
  int count = 0;
  for (const StepStorage& storage : step.storages) count += step.names[storage.name] == name ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("clipping: what the norm of all gradients allocates") {
  const std::string torch = "optimizer={kind: sgd, clip_grad_norm: 1.0}";
  const std::vector<std::string> lora = {torch, "lora={rank: 4, targets: [q_proj], trained: [lm_head]}"};
  const std::vector<std::string> large = {torch, "model.vocab=3000"};  // 192,000 elements: 3 chunks of 65,536
  const std::string megatron = "profile=megatron";
  check_lives({
      {"without it", {"optimizer=sgd"}, "clip.total_norm", "never"},
      {"one sum a tensor and chunk, in fp32", {torch}, "clip.chunk_sums", "84 B, clip.norm to clip.norm"},
      {"as many chunks as the largest needs", large, "clip.chunk_sums", "252 B, clip.norm to clip.norm"},
      {"a tensor of just one chunk", {torch, "model.vocab=1024"}, "clip.chunk_sums", "84 B, clip.norm to clip.norm"},
      {"a norm in the gradient's type", {torch}, "clip.tensor_norm", "2 B, clip.norm to clip.total_norm"},
      {"all norms", {torch}, "clip.stacked_norms", "42 B, clip.total_norm to clip.total_norm"},
      {"two types stack in the wider", lora, "clip.stacked_norms", "20 B, clip.total_norm to clip.total_norm"},
      {"one norm", {torch}, "clip.total_norm", "2 B, clip.total_norm to clip.scale"},
      {"max / norm", {torch}, "clip.reciprocal", "2 B, clip.coefficient to clip.coefficient"},
      {"at most 1", {torch}, "clip.clamped", "2 B, clip.coefficient to clip.scale"},
      {"on a CPU no chunks", {torch, "profile=pytorch-2.6-cpu"}, "clip.chunk_sums", "never"},
      {"Megatron: one kernel for all", {torch, megatron}, "clip.block_sums", "1280 B, clip.norm to clip.norm"},
      {"Megatron: no norm a tensor", {torch, megatron}, "clip.tensor_norm", "never"},
      {"gradients stay where they are", {torch}, head + ".grad", "12288 B, backward of head.lm_head to zero_grad"},
  });
  CHECK(count_of(step_of(llama, {torch, "steps=1"}), "clip.tensor_norm") == 21);
  CHECK(count_of(step_of(llama, {torch, "steps=1", "batch.accumulate=3"}), "clip.total_norm") == 1);
}

TEST_CASE("optimizer state has the type that the framework gives it") {
  const std::string adamw = "optimizer=adamw", adam = "optimizer={kind: adam, fused: true}";
  const std::string megatron = "profile=megatron", fp16 = "dtype={parameters: float16, compute: float16}";
  const std::string state = head + ".exp_avg_sq";
  check_lives({
      // torch/optim: torch.zeros_like(p); 6,144 elements of 2 bytes
      {"PyTorch: the weight's", {adamw}, state, "12288 B, optimizer.state to end"},
      {"and that of its temporaries", {adamw}, head + ".sqrt", "12288 B, optimizer.bfloat16 to optimizer.bfloat16"},
      {"torchtitan's too", {adamw, "profile=torchtitan"}, state, "12288 B, optimizer.state to end"},
      {"fp32 weights under autocast",
       {adamw, "dtype={parameters: float32, autocast: bfloat16}"},
       state,
       "24576 B, optimizer.state to end"},
      {"of the master copy, where it is that one that is updated",
       {adamw, "dtype.master=float32"},
       state,
       "24576 B, optimizer.state to end"},
      {"as asked", {adamw, "dtype.moments=float32"}, state, "24576 B, optimizer.state to end"},
      {"each weight's own: an adapter in fp32",
       {adamw, "lora={rank: 2, targets: [q_proj], trained: [lm_head]}"},
       "layers.0.attention.q_proj.lora_A.weight.exp_avg",
       "512 B, optimizer.state to end"},
      {"beside a trained weight of the base in bf16",
       {adamw, "lora={rank: 2, targets: [q_proj], trained: [lm_head]}"},
       state,
       "12288 B, optimizer.state to end"},
      // FusedAdam; arguments.py: accumulate_allreduce_grads_in_fp32 with bf16
      {"Megatron: fp32", {megatron, adam}, state, "24576 B, optimizer.state to end"},
      {"a master copy", {megatron, adam}, head + ".master", "24576 B, start to end"},
      {"main gradients", {megatron, adam}, head + ".main_grad", "24576 B, start to end"},
      {"with fp16 of that type", {megatron, adam, fp16}, head + ".main_grad", "12288 B, start to end"},
      {"fp32 weights need no copy", {megatron, adam, "dtype={parameters: float32}"}, head + ".master", "never"},
      {"but have the buffer of gradients",
       {megatron, adam, "dtype={parameters: float32}"},
       head + ".main_grad",
       "24576 B, start to end"},
      {"none leaves it out", {megatron, adam, "dtype.master=none"}, head + ".master", "never"},
      {"and so with gradients", {megatron, adam, "dtype.main_gradients=none"}, head + ".main_grad", "never"},
      {"without an optimizer none of them", {megatron}, head + ".main_grad", "never"},
  });
}

TEST_CASE("8-bit states: a byte, and a scale a block") {
  const std::string adam = "optimizer={kind: adamw, states: 8bit}";
  check_lives({
      {"a byte an element", {adam}, head + ".state1", "6144 B, optimizer." + head + " to end"},
      {"from 4,096 elements on", {adam}, up + ".weight.state2", "4096 B, optimizer." + up + ".weight to end"},
      {"below, fp32", {adam}, key + ".weight.state2", "8192 B, optimizer." + key + ".weight to end"},
      {"and no scale", {adam}, key + ".weight.absmax1", "never"},
      {"an fp32 scale for 256", {adam}, head + ".absmax1", "96 B, optimizer." + head + " to end"},
      {"a block that is not full",
       {"optimizer={kind: adamw, states: 8bit, block_size: 2048}", "model.vocab=97"},
       head + ".absmax2",
       "16 B, optimizer." + head + " to end"},
      {"256 values that bytes stand for", {adam}, "optimizer.map2", "1024 B, optimizer.embedding.tokens.weight to end"},
      {"momentum has one", {"optimizer={kind: momentum, states: 8bit}"}, head + ".state2", "never"},
      {"no temporaries", {adam}, head + ".sqrt", "never"},
      {"nor plain moments", {adam}, head + ".exp_avg", "never"},
  });
  const Step step = step_of(llama, {adam});
  CHECK(count_of(step, "optimizer.map1") == 1);  // one for all weights
  CHECK(count_of(step, head + ".state1") == 1);  // born in the first step of two
  CHECK(count_of(step, "optimizer.map2") == 1);
}

TEST_CASE("updates within backward: a gradient dies with its update") {
  const std::string sgd = "optimizer={kind: sgd, in_backward: true}";
  const std::string adam = "optimizer={kind: adamw, in_backward: true}";
  check_lives({
      {"the update frees it", {sgd}, head + ".grad", "12288 B, backward of head.lm_head to optimizer.bfloat16"},
      {"state is born at the first one", {adam}, head + ".exp_avg", "12288 B, optimizer.state to end"},
      {"a list of one", {adam}, head + ".sqrt", "12288 B, optimizer.bfloat16 to optimizer.bfloat16"},
      {"single-tensor form",
       {"optimizer={kind: adamw, in_backward: true, multi_tensor: false}"},
       head + ".denominator",
       "12288 B, optimizer." + head + " to optimizer." + head},
      {"8-bit states",
       {"optimizer={kind: adamw, in_backward: true, states: 8bit}"},
       head + ".grad",
       "12288 B, backward of head.lm_head to optimizer." + head},
  });
  // A tied table is updated when both gradients have met: after the last op of backward.
  const Step tied = step_of(llama, {sgd, "model.tied_embeddings=true", "steps=1"});
  CHECK(tied.names[tied.ops[tied.ops.size() - 3].name] == "embedding.tokens");
  CHECK(tied.names[tied.ops[tied.ops.size() - 2].name] == "optimizer.bfloat16");
  CHECK(count_of(tied, head + ".grad") == 0);
  // Two steps, an update a weight in each; without it one a step.
  const auto updates = [](const Step& step) {
    int count = 0;
    for (const StepOp& op : step.ops) count += step.names[op.name] == "optimizer.bfloat16" ? 1 : 0;
    return count;
  };
  CHECK(updates(step_of(llama, {sgd})) == 42);
  CHECK(updates(step_of(llama, {"optimizer=sgd"})) == 2);
}

TEST_CASE("optimizer: settings that contradict each other have a place") {
  struct Row {
    std::string name, optimizer, error;
    std::vector<std::string> sets = {};
  };
  const std::string frees = "'in_backward' frees each gradient as it comes and does not go with ";
  const std::string base = "optimizer={kind: sgd, in_backward: true}";
  const Row rows[] = {
      {"paged states", "{kind: adam, states: paged_8bit}",
       "--set optimizer={kind: adam, states: paged_8bit}:1:22: error: 'states' must be one of plain, 8bit, not "
       "'paged_8bit'"},
      {"states of SGD", "{kind: sgd, states: 8bit}",
       "--set optimizer={kind: sgd, states: 8bit}:1:21: error: 8-bit states are for the kinds momentum, adam and "
       "adamw, "
       "which have states"},
      {"a block of plain states", "{kind: adam, block_size: 256}",
       "--set optimizer={kind: adam, block_size: 256}:1:26: error: 'block_size' is for states: 8bit"},
      {"a norm of 0", "{kind: sgd, clip_grad_norm: 0.0}",
       "--set optimizer={kind: sgd, clip_grad_norm: 0.0}:1:29: error: 'clip_grad_norm' must be a decimal above 0, not "
       "'0.0'"},
      {"a norm needs all gradients", "{kind: sgd, in_backward: true, clip_grad_norm: 1}",
       "--set optimizer={kind: sgd, in_backward: true, c...:1:26: error: " + frees + "'clip_grad_norm'"},
      {"zeroed gradients", "{kind: sgd, in_backward: true, zero_grad: zero}",
       "--set optimizer={kind: sgd, in_backward: true, z...:1:26: error: " + frees + "'zero_grad: zero'"},
      {"nothing to update by", "{kind: none, in_backward: true}",
       "--set optimizer={kind: none, in_backward: true}:1:27: error: " + frees + "'kind: none'"},
      {"several micro-batches",
       "{kind: sgd, in_backward: true}",
       "--set " + base + ":1:26: error: " + frees + "'batch.accumulate'",
       {"batch.accumulate=2"}},
      {"main gradients",
       "{kind: sgd, in_backward: true}",
       "--set " + base + ":1:26: error: " + frees + "'dtype.main_gradients'",
       {"dtype.main_gradients=float32"}},
      {"stages",
       "{kind: sgd, in_backward: true}",
       "--set " + base + ":1:26: error: " + frees + "'parallel'",
       {"parallel={pipeline: 2, micro_batches: 2}"}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    std::vector<std::string> sets = row.sets;
    sets.push_back("optimizer=" + row.optimizer);
    CHECK(error_of(llama, sets) == row.error);
  }
}
