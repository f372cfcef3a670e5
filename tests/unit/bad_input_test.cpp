// Does each mistake in a scenario get one line with its place, the fault and what was expected?
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/scenario.hpp"

using namespace tidemark;

namespace {

std::string error_of(const std::string& yaml, const std::vector<std::string>& sets = {}) {
  try {
    parse_scenario(yaml, "s.yaml", sets);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

struct Case {
  std::string name;
  std::string yaml;
  std::string error;
};

void check_all(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(error_of(c.yaml) == c.error);
  }
}

const std::string chain = "model: {family: chain, layers: 3}\n";
const std::string gpt2 =
    "model: {family: transformer, model_type: gpt2, layers: 2, hidden: 64, heads: 4, vocab: 100, max_positions: 32}\n";

}  // namespace

TEST_CASE("bad input: integers") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"0", "a positive integer, not '0'"},
      {"-1", "a positive integer, not '-1'"},
      {"1.5", "a positive integer, not '1.5'"},
      {"12abc", "a positive integer, not '12abc'"},
      {"010", "a positive integer, not '010'"},
      {"nan", "a positive integer, not 'nan'"},
      {".nan", "a positive integer, not '.nan'"},
      {".inf", "a positive integer, not '.inf'"},
      {"two", "a positive integer, not 'two'"},
      {"1e3", "a positive integer, not '1e3'"},
      {"0x10", "a positive integer, not '0x10'"},
      {"+5", "a positive integer, not '+5'"},
      {"1_000", "a positive integer, not '1_000'"},
      {"true", "a positive integer, not 'true'"},
      {"'8'", "a positive integer, not \"8\""},
      {"[8]", "a positive integer, not a list"},
      {"{a: 8}", "a positive integer, not a map"},
      {"1000001", "a positive integer up to 1000000, not '1000001'"},
      {"99999999999999999999", "a positive integer up to 1000000, not '99999999999999999999'"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.first);
    CHECK(error_of("model:\n  family: chain\n  layers: " + c.first) ==
          "s.yaml:3:11: error: 'layers' must be " + c.second);
  }
  CHECK(error_of("model: {family: chain, layers: }") ==
        "s.yaml:1:24: error: 'layers' must be a positive integer, not nothing");
  CHECK(error_of(chain + "policy: {kind: interval, interval: two}") ==
        "s.yaml:2:36: error: 'interval' must be a positive integer, not 'two'");
}

TEST_CASE("bad input: quantities without their unit, or not whole") {
  const std::string size = "a size of whole bytes with its unit, such as '40 GiB', not ";
  const std::string flops = "a whole number of FLOPs with its unit, such as '20 GFLOP', not ";
  const std::string time = "a time of whole nanoseconds with its unit, such as '3.5 ms', not ";
  const std::vector<std::vector<std::string>> cases = {
      {"layer_activation", "100", size + "'100'"},
      {"layer_activation", "0", size + "'0'"},
      {"layer_activation", "100 mb", size + "'100 mb'"},
      {"layer_activation", "100  MB", size + "'100  MB'"},
      {"layer_activation", "-1 MB", size + "'-1 MB'"},
      {"layer_activation", "010 MB", size + "'010 MB'"},
      {"layer_activation", "1.5 B", size + "'1.5 B'"},
      {"layer_activation", "1.0000001 MB", size + "'1.0000001 MB'"},
      {"layer_activation", "nan MB", size + "'nan MB'"},
      {"layer_activation", "1e3 MB", size + "'1e3 MB'"},
      {"layer_activation", "9999999999 TiB", size + "'9999999999 TiB'"},
      {"layer_activation", "3 FLOP", size + "'3 FLOP'"},
      {"forward_flops", "5", flops + "'5'"},
      {"forward_flops", "5 GB", flops + "'5 GB'"},
      {"forward_flops", "1.5 FLOP", flops + "'1.5 FLOP'"},
      {"forward_time", "3", time + "'3'"},
      {"forward_time", "1.5 ns", time + "'1.5 ns'"},
      {"attention_fraction", "1.5", "a decimal number from 0 to 1, not '1.5'"},
      {"attention_fraction", "-0.1", "a decimal number from 0 to 1, not '-0.1'"},
      {"attention_fraction", ".15", "a decimal number from 0 to 1, not '.15'"},
      {"attention_fraction", "00.15", "a decimal number from 0 to 1, not '00.15'"},
      {"attention_fraction", "nan", "a decimal number from 0 to 1, not 'nan'"},
      {"type", "attn", "one of attention, ffn, other, not 'attn'"},
  };
  for (const auto& c : cases) {
    CAPTURE(c[0]);
    CAPTURE(c[1]);
    CHECK(error_of("model:\n  family: chain\n  layers: 3\n  " + c[0] + ": " + c[1]) ==
          "s.yaml:4:" + std::to_string(c[0].size() + 5) + ": error: '" + c[0] + "' must be " + c[2]);
  }
}

TEST_CASE("bad input: keys") {
  check_all({
      {"an unknown key, near a known one", chain + "polcy: none",
       "s.yaml:2:1: error: unknown key 'polcy' in 'scenario'; did you mean 'policy'?"},
      {"an unknown key, near none", chain + "loss: {}\nzzzzzzzz: 1",
       "s.yaml:3:1: error: unknown key 'zzzzzzzz' in 'scenario'; expected one of: name, model, profile, batch, dtype, "
       "optimizer, loss, lora, quantization, loop, policy, parallel, device, allocator, steps, convention, budget, "
       "flops_convention"},
      {"an unknown key of a family", "model: {family: chain, layer: 3}",
       "s.yaml:1:24: error: unknown key 'layer' in model 'chain'; did you mean 'layers'?"},
      {"a key of another family", "model: {family: chain, layers: 3, hidden: 8}",
       "s.yaml:1:35: error: 'hidden' has no meaning for model 'chain'; its keys are: family, layers, file, "
       "layer_activation, boundary, forward_flops, backward_flops, attention_fraction, forward_time, backward_time, "
       "weight_time, weight_activation, "
       "forward_workspace, backward_workspace, gradient, type, loss_time, loss_workspace"},
      {"a key of another policy", chain + "policy: {kind: full, interval: 3}",
       "s.yaml:2:22: error: 'interval' has no meaning for policy 'full'; its keys are: kind, schedule, boundaries, "
       "nested, checkpointing, offload"},
      {"a repeated key", chain + chain, "s.yaml:2:1: error: repeated key 'model'; first given on line 1"},
      {"no model", "name: x", "s.yaml:1:1: error: missing key 'model' in 'scenario'"},
      {"a model that is a word", "model: chain",
       "s.yaml:1:8: error: 'model' must be a map such as {family: chain, layers: 36}, not 'chain'"},
      {"a model without family", "model: {layers: 3}", "s.yaml:1:8: error: missing key 'family' in 'model'"},
      {"an unknown family", "model: {family: chian}",
       "s.yaml:1:17: error: 'family' must be one of chain, graph, mlp, transformer, program, not 'chian'; did you mean "
       "'chain'?"},
      {"a program without layers", "model: {family: program}",
       "s.yaml:1:8: error: missing key 'layers' in model 'program'"},
      {"a chain without layers", "model: {family: chain}", "s.yaml:1:8: error: missing key 'layers' in model 'chain'"},
      {"a list instead of a map", "- model",
       "s.yaml:1:1: error: 'scenario' must be a map of keys such as 'name: ...', "
       "not a list"},
      {"a text instead of a map", "hello world",
       "s.yaml:1:1: error: 'scenario' must be a map of keys such as 'name: ...', not 'hello world'"},
      {"only a comment", "# nothing\n",
       "s.yaml:1:1: error: 'scenario' must be a map of keys such as 'name: ...', not nothing"},
      {"an empty name", chain + "name: ''", "s.yaml:2:7: error: 'name' must be a text, not \"\""},
  });
}

TEST_CASE("bad input: keys that this family cannot use") {
  check_all({
      {"a batch for a chain", chain + "batch: {size: 8}",
       "s.yaml:2:8: error: 'batch' has no meaning for family 'chain'"},
      {"an optimizer for a chain", chain + "optimizer: adamw",
       "s.yaml:2:12: error: 'optimizer' has no meaning for family 'chain'"},
      {"a profile for a chain", chain + "profile: pytorch-cuda",
       "s.yaml:2:10: error: 'profile' has no meaning for family 'chain', whose layers are given as numbers; only ideal "
       "holds"},
      {"a batch size for an mlp", "model: {family: mlp}\nbatch: {size: 8}",
       "s.yaml:2:15: error: 'size' has no meaning for family 'mlp'"},
      {"loss chunks for an mlp", "model: {family: mlp}\nloss: {chunks: 8}",
       "s.yaml:2:7: error: 'loss' has no meaning for family 'mlp'"},
      {"a convention for a transformer", gpt2 + "convention: rotor",
       "s.yaml:2:13: error: convention 'rotor' is for family 'chain'"},
      {"a gradient under rotor", "model: {family: chain, layers: 1, gradient: 1 B}\nconvention: rotor",
       "s.yaml:1:45: error: convention 'rotor' takes each boundary as its gradient; leave 'gradient' out"},
      {"a convention of later", chain + "convention: revolve",
       "s.yaml:2:13: error: 'convention' 'revolve' is not available yet; available are: framework, rotor, checkmate, "
       "dtr"},
      {"a convention of graphs for a chain", chain + "convention: checkmate",
       "s.yaml:2:13: error: convention 'checkmate' is for family 'graph'"},
      {"an allocator's key without that allocator", chain + "allocator: {capacity: 1 GiB}",
       "s.yaml:2:23: error: 'capacity' is for kind 'cuda_caching'"},
      {"a split size that PyTorch refuses", chain + "allocator: {kind: cuda_caching, max_split_size_mb: 20}",
       "s.yaml:2:52: error: 'max_split_size_mb' must be a whole number above 20, not '20'"},
      {"an unknown profile", gpt2 + "profile: pytorch_cuda",
       "s.yaml:2:10: error: 'preset' must be one of ideal, reference, pytorch-1.13-cpu, pytorch-2.6-cpu, pytorch-cuda, "
       "megatron, megatron-deepspeed, torchtitan, llm.c, not 'pytorch_cuda'; did "
       "you mean 'pytorch-cuda'?"},
      {"a pipeline of an mlp", "model: {family: mlp}\nparallel: {pipeline: 2}",
       "s.yaml:2:11: error: 'parallel' is for the families chain and transformer so far, not 'mlp'"},
      {"a chunk without layers in the middle", gpt2 + "parallel: {pipeline: 3, layers_per_chunk: [6, 0, 6]}",
       "s.yaml:2:47: error: 'layers_per_chunk' must be a positive integer, not '0'"},
      {"turns of a schedule without groups", gpt2 + "parallel: {pipeline: 2, schedule: zb_h1, turn_waits: first}",
       "s.yaml:2:54: error: 'turn_waits' is about groups of micro-batches; expected schedule interleaved"},
      {"two numbers of micro-batches", gpt2 + "batch: {accumulate: 4}\nparallel: {micro_batches: 8}",
       "s.yaml:3:27: error: 'micro_batches' is 8, but batch.accumulate is 4; leave one of them out"},
      {"weights above the whole", "model: {family: chain, layers: 1, backward_time: 1 ns, weight_time: 2 ns}",
       "s.yaml:1:69: error: layer 0: 'weight_time' is above 'backward_time', of which it is a part"},
      {"a planner's name", chain + "policy: {kind: rotor}",
       "s.yaml:2:16: error: 'rotor' is a planner; expected a rule, or the plan that tidemark plan --method rotor "
       "writes"},
  });
  CHECK(error_of(chain + "parallel: {}\nallocator: live\nconvention: framework\nprofile: ideal") == "");
}

TEST_CASE("bad input: degrees that do not divide what they should") {
  const std::string grouped =
      "model: {family: transformer, model_type: llama, layers: 2, hidden: 64, heads: 8, kv_heads: 2, ffn_hidden: 96, "
      "vocab: 100}\nbatch: {sequence: 64}\n";
  const std::string routed =
      "model: {family: transformer, model_type: mixtral, layers: 2, hidden: 64, heads: 8, kv_heads: 8, ffn_hidden: 64, "
      "vocab: 100, "
      "experts: 6, experts_per_token: 2, expert_hidden: 36}\nbatch: {sequence: 64}\n";
  const std::string megatron = "profile: megatron\n";
  check_all({
      {"no degree", gpt2 + "parallel: {tensor: 0}", "s.yaml:2:20: error: 'tensor' must be a positive integer, not '0'"},
      {"layers without shapes", chain + "parallel: {tensor: 2}",
       "s.yaml:2:20: error: 'tensor' is for family transformer, whose tensors have shapes to divide"},
      {"heads", gpt2 + "parallel: {tensor: 3}", "s.yaml:2:20: error: 4 heads do not divide by tensor 3"},
      {"heads of keys", grouped + "parallel: {tensor: 4}", "s.yaml:3:20: error: 2 kv_heads do not divide by tensor 4"},
      {"columns",
       "model: {family: transformer, model_type: llama, layers: 2, hidden: 64, heads: 8, ffn_hidden: 100, "
       "vocab: 128}\nparallel: {tensor: 8}",
       "s.yaml:2:20: error: 100 columns of ffn_hidden do not divide by tensor 8"},
      {"columns of experts", routed + "parallel: {tensor: 8, expert: 2, data: 2}",
       "s.yaml:3:20: error: 36 columns of an expert do not divide by tensor 8"},
      {"words",
       "model: {family: transformer, model_type: gpt2, layers: 2, hidden: 64, heads: 8, vocab: 100, "
       "max_positions: 32}\nparallel: {tensor: 8}",
       "s.yaml:2:20: error: 100 words do not divide by tensor 8"},
      {"tokens between products without products", gpt2 + "parallel: {sequence: true}",
       "s.yaml:2:22: error: 'sequence' divides tokens among tensor-parallel ranks; expected tensor above 1"},
      {"tokens", gpt2 + "batch: {sequence: 31}\nparallel: {tensor: 2, sequence: true}",
       "s.yaml:3:20: error: 31 tokens of a rank's sequence do not divide by tensor 2"},
      {"tokens of context ranks", grouped + "parallel: {context: 3}",
       "s.yaml:3:21: error: a sequence of 64 does not divide into the two chunks a rank that context 3 makes; expected "
       "a multiple of 6"},
      {"context of other code", grouped + "parallel: {context: 2}",
       "s.yaml:3:21: error: 'context' above 1 is not simulated for model_code huggingface; with megatron it is"},
      {"context of attention that keeps its scores", grouped + megatron + "parallel: {context: 2}",
       "s.yaml:4:21: error: 'context' above 1 is not simulated for attention eager; with flash and fused it is"},
      {"experts of a dense model", gpt2 + "parallel: {expert: 2, data: 2}",
       "s.yaml:2:20: error: 'expert' divides routed experts, which this model does not have"},
      {"experts", routed + "parallel: {expert: 4, data: 4}", "s.yaml:3:20: error: 6 experts do not divide by expert 4"},
      {"ranks that hold experts", routed + "parallel: {expert: 3, data: 4}",
       "s.yaml:3:20: error: experts are divided among the 4 data and context ranks, which do not divide by expert 3"},
      {"sharding over one rank", gpt2 + "parallel: {sharding: zero2}",
       "s.yaml:2:22: error: sharding 'zero2' divides among data-parallel ranks; expected data above 1"},
      {"two ways to divide states",
       gpt2 + megatron + "parallel: {data: 2, sharding: zero1, distributed_optimizer: true}",
       "s.yaml:3:61: error: 'distributed_optimizer' and 'sharding' both say what data-parallel ranks divide; leave one "
       "of them out"},
      {"Megatron's optimizer elsewhere", gpt2 + "parallel: {data: 2, distributed_optimizer: true}",
       "s.yaml:2:44: error: 'distributed_optimizer' is Megatron-LM's; expected loop megatron, not huggingface"},
  });
}

TEST_CASE("bad input: policies") {
  check_all({
      {"an unknown kind", chain + "policy: intervall",
       "s.yaml:2:9: error: 'kind' must be one of none, full, interval, sqrt, sequential, block, whole, selective, "
       "rule, "
       "plan, offload, not 'intervall'; did you mean 'interval'?"},
      {"no kind", chain + "policy: {interval: 3}", "s.yaml:2:9: error: missing key 'kind' in 'policy'"},
      {"no interval", chain + "policy: interval", "s.yaml:2:9: error: missing key 'interval' in policy 'interval'"},
      {"parameters that no hook sees", chain + "policy: {kind: full, checkpointing: {kind: direct, parameters: true}}",
       "s.yaml:2:64: error: 'parameters' is for checkpointing offload only"},
      {"blocks that are none", chain + "policy: {kind: selective, recompute: a, layers: 3-1}",
       "s.yaml:2:49: error: 'layers' must be block numbers such as '0-3,8-11', not '3-1'"},
      {"a plan of nothing", chain + "policy: plan",
       "s.yaml:2:9: error: policy 'plan' needs one of 'sequence' and 'file'"},
      {"a plan file that is missing", chain + "policy: {kind: plan, file: none.yaml}",
       "none.yaml: error: no such file; expected a plan (YAML)"},
      {"an unknown schedule", chain + "policy: {kind: full, schedule: upfront}",
       "s.yaml:2:32: error: 'schedule' must be one of per_segment, just_in_time, up_front, not 'upfront'; did you mean "
       "'up_front'?"},
      {"on_grad_of of nothing", chain + "policy: {kind: full, schedule: on_grad_of}",
       "s.yaml:2:32: error: schedule on_grad_of needs an op: write {on_grad_of: name}"},
      {"nested by a word", chain + "policy: {kind: full, nested: [2, x]}",
       "s.yaml:2:34: error: 'nested' must be a positive integer, not 'x'"},
  });
}

TEST_CASE("bad input: lists of a chain") {
  check_all({
      {"too short", "model: {family: chain, layers: 3, layer_activation: [1 B, 2 B]}",
       "s.yaml:1:53: error: 'layer_activation' has 2 entries; expected one value, or 3 for 3 layers"},
      {"one more than layers", "model: {family: chain, layers: 1, forward_time: [1 s, 2 s]}",
       "s.yaml:1:49: error: 'forward_time' has 2 entries; expected one value, or 1 for 1 layers"},
      {"boundaries", "model: {family: chain, layers: 3, boundary: [1 B]}",
       "s.yaml:1:45: error: 'boundary' has 1 entries; expected one value, or 3 or 4 for 3 layers"},
      {"an empty list", "model: {family: chain, layers: 3, type: []}",
       "s.yaml:1:41: error: 'type' has 0 entries; expected one value, or 3 for 3 layers"},
      {"a bad entry", "model: {family: chain, layers: 2, boundary: [1 B, 2]}",
       "s.yaml:1:51: error: 'boundary' must be a size of whole bytes with its unit, such as '40 GiB', not '2'"},
      {"a list of lists", "model: {family: chain, layers: 1, boundary: [[1 B]]}",
       "s.yaml:1:46: error: 'boundary' must be a size of whole bytes with its unit, such as '40 GiB', not a list"},
      {"a fraction of a FLOP", "model: {family: chain, layers: 1, forward_flops: 7 FLOP, attention_fraction: 0.15}",
       "s.yaml:1:78: error: 'attention_fraction' of 7 FLOP is not a whole number of FLOPs"},
  });
}

TEST_CASE("bad input: transformers and their training") {
  check_all({
      {"nothing about the model", "model: {family: transformer}",
       "s.yaml:1:8: error: missing 'config' or 'model_type' of the transformer"},
      {"an unknown model type", "model: {family: transformer, model_type: bloom}",
       "s.yaml:1:42: error: 'model_type' must be one of gpt2, llama, mistral, qwen, qwen2, qwen3, gemma, gemma2, "
       "granite, phi, mixtral, qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3, gpt_bigcode, bert, vit, t5, not "
       "'bloom'"},
      {"no hidden size", "model: {family: transformer, model_type: gpt2, layers: 2}",
       "s.yaml:1:8: error: missing 'hidden' of the transformer, in 'model' or its config"},
      {"heads that do not divide",
       "model: {family: transformer, model_type: gpt2, layers: 2, hidden: 64, heads: 5, vocab: 9}",
       "s.yaml:1:78: error: 5 heads do not divide the hidden size 64"},
      {"kv_heads that do not divide",
       "model: {family: transformer, model_type: llama, layers: 2, hidden: 64, heads: 4, kv_heads: 3, vocab: 9, "
       "ffn_hidden: 8}",
       "s.yaml:1:92: error: 4 heads are not a multiple of 3 kv_heads"},
      {"a missing config", "model: {family: transformer, config: none.json}",
       "none.json: error: no such file; expected a Hugging Face config (JSON)"},
      {"a sequence past the positions", gpt2 + "batch: {sequence: 33}",
       "s.yaml:2:19: error: a sequence of 33 is longer than the model's 32 positions"},
      {"a data type", gpt2 + "dtype: {compute: fp16}",
       "s.yaml:2:18: error: 'compute' must be one of float32, bfloat16, float16, float8, not 'fp16'"},
      {"autocast against compute", gpt2 + "dtype: {compute: float32, autocast: bfloat16}",
       "s.yaml:2:37: error: 'autocast' contradicts 'compute'"},
      {"an optimizer without kind", gpt2 + "optimizer: {fused: true}",
       "s.yaml:2:12: error: missing key 'kind' in 'optimizer'"},
      {"yes for true", gpt2 + "optimizer: {kind: sgd, fused: yes}",
       "s.yaml:2:31: error: 'fused' must be true or false, not 'yes'"},
      {"steps", gpt2 + "steps: 0", "s.yaml:2:8: error: 'steps' must be a positive integer, not '0'"},
      {"a budget without unit", gpt2 + "budget: 40",
       "s.yaml:2:9: error: 'budget' must be a size of whole bytes with its unit, such as '40 GiB', not '40'"},
  });
}

TEST_CASE("bad input: devices") {
  check_all({
      {"an unknown name", chain + "device: a100",
       "s.yaml:2:9: error: unknown device 'a100'; expected one of: a100-40gb, a100-80gb, h100-80gb, h200, l4, mi300x, "
       "rtx4090, v100-32gb, or the path of a YAML file"},
      {"a file that is missing", chain + "device: devices/none.yaml",
       "devices/none.yaml: error: no such file; expected a device (YAML)"},
      {"a rate without unit", chain + "device: {flops: {float32: 19.5}}",
       "s.yaml:2:27: error: 'float32' must be a rate above 0 with its unit, such as '312 TFLOP/s', not '19.5'"},
      {"a rate of nothing", chain + "device: {memory_bandwidth: 0 GB/s}",
       "s.yaml:2:28: error: 'memory_bandwidth' must be a rate above 0 with its unit, such as '2039 GB/s', not '0 "
       "GB/s'"},
      {"more usable than there is", chain + "device: {capacity: 1 GiB, usable: 2 GiB}",
       "s.yaml:2:35: error: 'usable' is above 'capacity'"},
      {"an unknown data type", chain + "device: {flops: {fp32: 1 TFLOP/s}}",
       "s.yaml:2:18: error: unknown key 'fp32' in 'device_flops'; expected one of: float32, bfloat16, float16, float8, "
       "float64"},
  });
}

TEST_CASE("bad input: settings of the command line") {
  struct SetCase {
    std::string name;
    std::vector<std::string> sets;
    std::string error;
  };
  const SetCase cases[] = {
      {"a bad value",
       {"policy.kind=interval", "policy.interval=two"},
       "--set policy.interval=two: error: 'interval' must be a positive integer, not 'two'"},
      {"an unknown key",
       {"polcy.kind=full"},
       "--set polcy.kind=full: error: unknown key 'polcy' in 'scenario'; did you mean 'policy'?"},
      {"no value", {"policy"}, "--set policy: error: expected key.path=value, such as policy.interval=4"},
      {"an empty key",
       {"policy..kind=full"},
       "--set policy..kind=full: error: expected key.path=value, such as policy.interval=4"},
      {"not YAML",
       {"policy={kind"},
       "--set policy={kind:1:1: error: a key must be a plain text, not a list or a map; is a bracket left open?"},
      {"through a number",
       {"model.layers.x=1"},
       "--set model.layers.x=1: error: 'layers' is '3', which has no keys to set"},
      {"through a list",
       {"policy.nested=[2]", "policy.nested.0=3"},
       "--set policy.nested.0=3: error: 'nested' is a list, which has no keys to set"},
      {"nothing", {"steps="}, "--set steps=: error: 'steps' must be a positive integer, not nothing"},
  };
  for (const SetCase& c : cases) {
    CAPTURE(c.name);
    CHECK(error_of(chain, c.sets) == c.error);
  }
}
