// Units of parameters that are gathered where they run: how many bytes, from when to when?
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/life.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/program/transformer.hpp"
#include "tidemark/report/summary.hpp"
#include "tidemark/step/fsdp_units.hpp"
#include "tidemark/study/facts.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;
using namespace tidemark::test;

namespace {

// A block has 9280 parameters: q, o of 1024, k, v of 512, three products of 2048, two norms of 32. The root has 6176:
// table and head of 96 x 32, a norm. All are stored in fp32, gathered and computed in bf16.
const std::string llama =
    "model: {family: transformer, model_type: llama, layers: 3, hidden: 32, heads: 4, kv_heads: 2, ffn_hidden: 64,\n"
    "        vocab: 96, attention: flash}\n"
    "batch: {size: 2, sequence: 8}\n"
    "dtype: {parameters: float32, compute: bfloat16}\n"
    "optimizer: adamw\n"
    "steps: 1\n"
    "parallel: {data: 4, sharding: fsdp1, fsdp: {parameter_dtype: bfloat16}}\n";
const std::string fsdp2 = "parallel.sharding=fsdp2";
const std::string reduce32 = "parallel.fsdp.reduce_dtype=float32";
const std::string no_prefetch = "parallel.fsdp.backward_prefetch=0";
const std::string reentrant = "policy={kind: full, checkpointing: reentrant}";
const std::string lora = "lora={rank: 4, targets: [q_proj]}";

using Sets = std::vector<std::string>;
Scenario scenario_of(const Sets& sets) { return parse_scenario(llama, "s.yaml", sets); }

/// Ops on the comm stream, in the order in which the host issues them.
std::string collectives(const Step& step) {
  std::string out;
  for (const StepOp& op : step.ops) {
    if (op.stream != Stream::comm) continue;
    std::string name(step.names[op.name]);
    name.replace(0, name.starts_with("layers.") ? 7 : 0, "");
    name = name.substr(0, name.find('.')) + (name.ends_with("reduce_scatter") ? "r" : "g");
    out += (out.empty() ? "" : " ") + name;
  }
  return out;
}

}  // namespace

TEST_CASE("fsdp: a unit's storages") {
  struct Case {
    std::string name;
    Sets sets;
    std::string tensor, lives;
  };
  const std::string backward_of_1 = "backward of layers.1.flat_param.split";
  const Case cases[] = {
      {"FSDP1: a shard is a quarter, in fp32", {}, "layers.1.flat_param.shard", "9280 B, start to end"},
      {"cast, then gathered, and gone",
       {},
       "layers.1.shard_cast",
       "4640 B, layers.1.all_gather to layers.1.all_gather | 4640 B, layers.1.all_gather to layers.1.all_gather"},
      {"whole in forward and in backward",
       {},
       "layers.1.flat_param",
       "18560 B, layers.1.all_gather to layers.1.mlp_residual | 18560 B, layers.1.all_gather to " + backward_of_1},
      {"the root stays whole", {}, "root.flat_param", "12352 B, root.all_gather to backward of root.flat_param.split"},
      {"a unit that is not resharded",
       {"parallel.fsdp.reshard_after_forward=false"},
       "layers.1.flat_param",
       "18560 B, layers.1.all_gather to " + backward_of_1},
      {"a weight's gradient goes into the flat one",
       {},
       "layers.1.attention.q_proj.weight.grad",
       "2048 B, backward of layers.1.attention.q_proj to " + backward_of_1},
      {"that goes with its reduction",
       {},
       "layers.1.flat_param.grad",
       "18560 B, " + backward_of_1 + " to layers.1.reduce_scatter"},
      {"no cast without a reduce dtype", {}, "layers.1.flat_param.grad_cast", "never"},
      {"reduced in fp32",
       {reduce32},
       "layers.1.flat_param.grad_cast",
       "37120 B, layers.1.reduce_scatter to layers.1.reduce_scatter"},
      {"a gradient's shard in the stored type",
       {},
       "layers.1.grad.shard_cast",
       "9280 B, layers.1.reduce_scatter to end"},
      {"moments of a shard", {}, "layers.1.mlp.down_proj.weight.exp_avg", "never"},  // on the last rank
      {"moments of the first rank's", {}, "layers.1.attention.q_proj.weight.exp_avg", "4096 B, optimizer.state to end"},
      {"FSDP2: a shard for each parameter", {fsdp2}, "layers.1.mlp.down_proj.weight.shard", "2048 B, start to end"},
      {"FSDP2: a buffer, until the next gather has come",
       {fsdp2},
       "layers.0.all_gather_output",
       "18560 B, layers.0.all_gather to layers.1.all_gather | 18560 B, layers.0.all_gather to layers.0.copy_out"},
      {"FSDP2: parameters copied out",
       {fsdp2},
       "layers.1.mlp.down_proj.weight.unsharded",
       "4096 B, layers.1.copy_out to layers.1.mlp_residual | 4096 B, layers.1.copy_out to "
       "backward of layers.1.attention_norm.float"},
      {"FSDP2: packed gradients, until the next reduction",
       {fsdp2, reduce32},
       "layers.1.reduce_scatter_input",
       "37120 B, layers.1.copy_in to backward of layers.0.attention_norm.float"},
      {"FSDP2: a gradient is born reduced in the stored type",
       {fsdp2, reduce32},
       "layers.1.grad.shard",
       "9280 B, layers.1.reduce_scatter to zero_grad"},
      {"FSDP2 among two after forward",
       {fsdp2, "parallel.fsdp.reshard_after_forward=2"},
       "layers.1.partial",
       "9280 B, layers.1.reshard to layers.1.copy_out"},
      {"the last block stays whole",
       {fsdp2, "parallel.fsdp.reshard_last_block=false"},
       "layers.2.mlp.down_proj.weight.unsharded",
       "4096 B, layers.2.copy_out to backward of layers.2.attention_norm.float"},
      {"a reentrant region runs forward twice",
       {reentrant},
       "layers.1.flat_param",
       "18560 B, layers.1.all_gather to layers.1.mlp_residual | 18560 B, layers.1.all_gather to recompute of "
       "layers.1.mlp_residual | 18560 B, layers.1.all_gather to " +
           backward_of_1},
      {"frozen units hold what their hooks wait for",
       {reentrant, lora},
       "layers.1.mlp_residual",
       "1024 B, layers.1.mlp_residual to backward of layers.0.attention_norm.float | 1024 B, recompute of "
       "layers.1.mlp_residual to backward of layers.1.attention_norm.float"},
      {"an adapter is a unit of its own",
       {lora},
       "layers.1.attention.q_proj.lora_A.weight.flat_param.shard",
       "128 B, start to end"},
      {"ignored modules are whole",
       {lora, "parallel.fsdp.ignored_modules=[lora_A, lora_B]"},
       "layers.1.attention.q_proj.lora_A.weight",
       "256 B, start to end"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(every_life(step_of(llama, c.sets), c.tensor) == c.lives);
  }
}

TEST_CASE("fsdp: the order of the collectives") {
  struct Case {
    std::string name;
    Sets sets;
    std::string order;  // g gathers a unit, r reduces its gradients
  };
  const Case cases[] = {
      {"BACKWARD_PRE gathers one ahead", {}, "rootg 0g 1g 2g 2g 1g 2r 0g 1r 0r rootr"},
      {"none ahead", {no_prefetch}, "rootg 0g 1g 2g 2g 2r 1g 1r 0g 0r rootr"},
      {"without a limiter all of a pass",
       {"parallel.fsdp.limit_all_gathers=false"},
       "rootg 0g 1g 2g 2g 1g 0g 2r 1r 0r rootr"},
      {"nothing is gathered twice", {"parallel.fsdp.reshard_after_forward=false"}, "rootg 0g 1g 2g 2r 1r 0r rootr"},
      {"FSDP2", {fsdp2}, "rootg 0g 1g 2g 2g 1g 2r 0g 1r 0r rootr"},
      {"a reentrant region's hooks know no order", {reentrant}, "rootg 0g 1g 2g 2g 2g 2r 1g 1g 1r 0g 0g 0r rootr"},
      {"frozen units reduce nothing",
       {lora, "parallel.fsdp.ignored_modules=[lora_A, lora_B]"},
       "rootg 0g 1g 2g 2g 1g 0g"},
      {"each micro-batch reduces",
       {no_prefetch, "batch.accumulate=2"},
       "rootg 0g 1g 2g 2g 2r 1g 1r 0g 0r rootr rootg 0g 1g 2g 2g 2r 1g 1r 0g 0r rootr"},
      {"no_sync: the last one does",
       {no_prefetch, "batch.accumulate=2", "parallel.fsdp.no_sync=true"},
       "rootg 0g 1g 2g 2g 1g 0g rootg 0g 1g 2g 2g 2r 1g 1r 0g 0r rootr"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(collectives(step_of(llama, c.sets)) == c.order);
  }
}

TEST_CASE("fsdp: runs are valid, and shards add up") {
  const std::string bandwidth = "device={name: d, link_bandwidth: 1 MB/s}";
  const Sets cases[] = {{},
                        {fsdp2},
                        {fsdp2, reduce32, "steps=3"},
                        {reentrant, lora, "steps=2"},
                        {bandwidth, "steps=2"},
                        {fsdp2, bandwidth, reduce32, "policy.kind=full"},
                        {fsdp2, "batch.accumulate=3", "parallel.fsdp.no_sync=true", reduce32, "steps=2"},
                        {"parallel.data=5", "model.tied_embeddings=true"},
                        {fsdp2, "parallel.data=5", "steps=2"},
                        {"parallel.fsdp.limit_all_gathers=false", bandwidth}};
  for (const Sets& sets : cases) {
    CAPTURE(sets);
    const Scenario scenario = scenario_of(sets);
    const Run result = run(scenario);
    CHECK(referee(result.step, result.timeline) == std::nullopt);
    const auto& spec = std::get<TransformerSpec>(scenario.model);
    const Program program = make_transformer(spec, scenario.training);
    const Shards& shards = scenario.training.shards;
    std::int64_t elements = 0, whole = 0;
    for (const Unit& unit : fsdp_units(program, scenario.training)) {
      CHECK(unit.padded_elements % shards.data == 0);
      for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
        whole += unit.parameters[i].elements;
        for (int rank = 0; rank < shards.data; ++rank)
          elements += elements_on_rank(unit, i, shards.sharding, shards.data, rank);
      }
    }
    CHECK(elements == whole);
    CHECK(whole == parameter_count(program));
  }
}

TEST_CASE("fsdp: what is exposed") {
  // 4 ranks: a rank receives 3 of 4 parts. A block has 18560 B, so 13920 B, or ns; the root 12352 B, so 9264 B. A block
  // computes for milliseconds. Nothing hides the first two gathers and the last two reductions.
  constexpr std::int64_t block = 13920, root = 9264, ends = 2 * root + 2 * block;
  const std::string slow = "device={name: d, link_bandwidth: 1 GB/s, flops: {bfloat16: 100 MFLOP/s}}";
  struct Case {
    std::string name;
    Sets sets;
    std::int64_t exposed;
  };
  const Case cases[] = {
      {"no computation to hide behind", {"device={name: d, link_bandwidth: 1 GB/s}"}, 9 * block + 2 * root},
      {"backward's gathers hide", {slow}, ends + 2 * block},
      {"forward's too", {slow, "parallel.fsdp.forward_prefetch=1"}, ends},
      // A gather in backward queues behind the reduction of the block before.
      {"neither do", {slow, no_prefetch}, ends + 7 * block},
      {"a pass issued at once", {slow, "parallel.fsdp.limit_all_gathers=false"}, ends},
      {"nothing is gathered again", {slow, no_prefetch, "parallel.fsdp.reshard_after_forward=false"}, ends + 2 * block},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Scenario scenario = scenario_of(c.sets);
    const Run result = run(scenario);
    const CollectiveFigures figures = summarize(result.step, result.timeline, plain_facts(scenario)).collectives;
    const bool again = c.name != "nothing is gathered again";
    CHECK(figures.count == (again ? 11 : 8));
    CHECK(figures.received == Bytes{(again ? 9 : 6) * block + 2 * root});
    CHECK(figures.busy == Nanos{figures.received.count});
    CHECK(figures.exposed == Nanos{c.exposed});
  }
}

TEST_CASE("fsdp: what is refused") {
  struct Case {
    std::string name;
    Sets sets;
    std::string error;
  };
  const Case cases[] = {
      {"one rank", {"parallel.data=1"}, "sharding 'fsdp1' divides among data-parallel ranks; expected data above 1"},
      {"settings of nothing", {"parallel.sharding=none"}, "'fsdp' is for sharding fsdp1 and fsdp2, not none"},
      {"a runtime without hooks", {"profile=ideal"}, "'fsdp1' is PyTorch's; expected a runtime of PyTorch, not ideal"},
      {"another framework", {"profile=megatron"}, "'fsdp1' is for model code huggingface and torchtitan, not megatron"},
      {"main gradients",
       {"dtype.main_gradients=float32"},
       "'fsdp1' shards parameters, gradients and states, but no main_gradients; expected dtype.main_gradients none"},
      {"a part that does not divide",
       {fsdp2, "parallel.fsdp.reshard_after_forward=3"},
       "'reshard_after_forward' must be true, false, or a number of ranks from 2 on that divides the 4 of 'data', not "
       "'3'"},
      {"FSDP1 among some",
       {"parallel.fsdp.reshard_after_forward=2"},
       "fsdp1 reshards among all ranks or not at all; expected true or false"},
      {"updates in backward",
       {"optimizer={kind: adamw, in_backward: true}"},
       "'in_backward' frees each gradient as it comes and does not go with 'parallel'"},
      {"another degree", {"parallel.tensor=2"}, "'tensor' above 1 is not simulated for model_code huggingface"},
      {"a pipeline", {"parallel.pipeline=3"}, "'pipeline' is not simulated together with sharding fsdp1"},
      {"several types in a flat tensor",
       {"parallel.fsdp={}", "dtype={parameters: bfloat16, compute: bfloat16, norms: float32}"},
       "parallel.sharding: fsdp1 lays the parameters of a unit into one tensor, but 'head.norm.weight' is float32 and "
       "'embedding.tokens.weight' bfloat16; expected one type"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const std::string error = error_of(llama, c.sets);
    CAPTURE(error);
    CHECK(error.find(c.error) != error.npos);
  }
}
