#include "tidemark/input/keys.hpp"

#include <algorithm>

#include "key_blocks.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

using Type = ValueType;
using Names = std::vector<std::string_view>;

const Names float_types = {"float32", "bfloat16", "float16", "float8"};
const Names float_types_or_none = {"none", "float32", "bfloat16", "float16", "float8"};

Block scenario_block() {
  return {
      "scenario",
      "",
      {
          {"name", Type::text, "the file's name", "What results call this scenario."},
          {"model", Type::block, "", "What is trained.", {}, "model"},
          {"profile",
           Type::block,
           "ideal; pytorch-cuda for transformer and program",
           "Whose behaviour: a preset's name, or a map.",
           {},
           "profile"},
          {"batch", Type::block, "one sequence of one token", "What one step reads.", {}, "batch"},
          {"dtype", Type::block, "float32 everywhere", "Data types by role.", {}, "dtype"},
          {"optimizer", Type::block, "none", "A kind's name, or a map.", {}, "optimizer"},
          {"loss", Type::block, "unchunked, not fused", "How the loss is computed.", {}, "loss"},
          {"lora", Type::block, "none: every weight is trained", "Low-rank adapters on a frozen model.", {}, "lora"},
          {"quantization",
           Type::choice,
           "none",
           "4-bit storage of the frozen products of the blocks; needs `lora`.",
           {"none", "nf4", "nf4_double", "gptq", "gptq_column"}},
          {"loop", Type::block, "nothing held", "What the training loop's variables hold.", {}, "loop"},
          {"policy",
           Type::block,
           "none",
           "What is kept and what is recomputed: a kind's name, or a map.",
           {},
           "policy"},
          {"parallel",
           Type::block,
           "{}",
           "How many devices share the work, and which one is looked at.",
           {},
           "parallel"},
          {"device",
           Type::block,
           "none: no rates, no capacity",
           "A built-in device, a YAML file of one, or a map.",
           {},
           "device"},
          {"allocator", Type::block, "live", "The allocator model: a kind's name, or a map.", {}, "allocator"},
          {"steps", Type::integer, "1; 2 with an optimizer", "Training steps to simulate."},
          {"convention", Type::choice, "framework", "How memory counts.", {"framework", "rotor", "checkmate", "dtr"}},
          {"budget", Type::size, "none", "Memory the step must fit in."},
          {"flops_convention",
           Type::choice,
           "palm",
           "How causal attention counts in the model's FLOPs.",
           {"palm", "torchtitan", "megatron"}},
      }};
}

Block profile_block() {
  return {"profile",
          "",
          {
              {"preset",
               Type::choice,
               "ideal; pytorch-cuda for transformer and program",
               "Fills the four axes below.",
               {"ideal", "reference", "pytorch-1.13-cpu", "pytorch-2.6-cpu", "pytorch-cuda", "megatron",
                "megatron-deepspeed", "torchtitan", "llm.c"}},
              {"runtime",
               Type::choice,
               "the preset's",
               "Autograd order, when saved tensors and gradients die.",
               {"ideal", "reference", "pytorch-1.13", "pytorch-2.6"}},
              {"kernels",
               Type::choice,
               "the preset's",
               "What each op saves and allocates.",
               {"ideal", "reference", "cpu-1.13", "cpu-2.6", "cuda-sm80", "cuda-sm90", "transformer-engine"}},
              {"model_code",
               Type::choice,
               "the preset's",
               "Which ops a layer is made of.",
               {"reference", "huggingface", "megatron", "torchtitan", "llm.c"}},
              {"loop",
               Type::choice,
               "the preset's",
               "Who holds what between micro-batches and steps.",
               {"plain", "huggingface", "megatron", "torchtitan", "deepspeed"}},
              {"transformers",
               Type::choice,
               "4.45",
               "The release that model_code huggingface follows: up to 4.29, to 4.45, 4.46 to 4.48, from 4.49 on.",
               {"4.29", "4.45", "4.46", "4.49"}},
              {"pytorch",
               Type::choice,
               "2.6",
               "The release that CUDA's kernels and the optimizer are of: up to 1.10, to 2.0, later.",
               {"1.10", "2.0", "2.6"}},
              {"fused", Type::texts, "none",
               "Parts that are a library's kernels (Unsloth, Liger) in place of operators: norm, rotary, loss, lora."},
          }};
}

/// Of the policy `offload`, and of the block of that name in all others.
std::vector<Key> offload_keys() {
  return {{"modules", Type::texts, "all", "What these ops saved, by kind or by a part of their name."},
          {"layers", Type::ranges, "all", "Blocks it holds for, such as \"0-11\"."},
          {"min_size", Type::size, "1 KiB", "Smaller storages stay on the device."},
          {"fraction", Type::number, "1", "Of the bytes that could move, from 0 to 1: those made first."},
          {"prefetch", Type::integer, "1", "Blocks ahead of its backward that a copy back starts; 0: right before."},
          {"wait_after", Type::integer, "none",
           "The device's storage goes when computation waits for the copy, so many blocks later; without it when the "
           "copy has ended."}};
}

Block policy_block(std::string_view kind, std::vector<Key> own) {
  std::vector<Key> keys = {
      {"kind",
       Type::choice,
       "",
       "The rule.",
       {"none", "full", "interval", "sqrt", "sequential", "block", "whole", "selective", "rule", "plan", "offload"}}};
  keys.insert(keys.end(), own.begin(), own.end());
  keys.push_back({"schedule",
                  Type::choice,
                  "per_segment",
                  "When a region is recomputed; or {on_grad_of: op}: when that op's gradient arrives.",
                  {"per_segment", "just_in_time", "up_front"},
                  "schedule"});
  keys.push_back({"boundaries",
                  Type::choice,
                  "release",
                  "hold: a used boundary counts to the end of the step, as the textbook formula has it.",
                  {"release", "hold"}});
  keys.push_back({"nested", Type::integers, "none", "Intervals of regions inside each region, outermost first."});
  keys.push_back({"checkpointing",
                  Type::block,
                  "direct",
                  "How a framework carries a region out; direct: exactly as the plan stands.",
                  {},
                  "checkpointing"});
  keys.push_back({"offload",
                  Type::block,
                  "none",
                  "What is held for backward lies on the host in between: what blocks saved, or regions' inputs.",
                  {},
                  "offload"});
  return {"policy", kind, std::move(keys)};
}

std::vector<Block> policy_blocks() {
  const Key checkpoint_last = {"checkpoint_last", Type::boolean, "true",
                               "false: the last segment runs in full at once."};
  return {
      policy_block("none", {}),
      policy_block("full", {}),
      policy_block("interval", {{"interval", Type::integer, "", "Blocks a segment."}, checkpoint_last}),
      policy_block("sqrt", {checkpoint_last}),
      policy_block("sequential", {{"segments", Type::integer, "",
                                   "Segments of n / segments blocks; the last takes the rest and runs in full."}}),
      policy_block("block", {{"layers", Type::integer, "", "The first so many blocks, each its own segment."}}),
      policy_block("whole", {}),
      policy_block("selective",
                   {{"recompute", Type::texts, "none", "Ops that run again, by kind or by a part of their name."},
                    {"keep", Type::texts, "none", "Ops whose results stay; without `recompute` all others run again."},
                    {"discard", Type::texts, "none",
                     "Megatron's modules whose outputs are dropped after use: layernorm, moe_act, mla_up_proj."},
                    {"layers", Type::ranges, "all", "Blocks it holds for, such as \"0-11\"; without patterns whole."},
                    {"every", Type::integer, "1", "Every n-th of those blocks."},
                    {"interval", Type::integer, "1", "Neighbouring blocks that share a region."}}),
      policy_block("rule", {{"attention_threshold", Type::size, "100 MB", "Attention above this is recomputed."},
                            {"ffn_threshold", Type::size, "500 MB", "Feed-forward above this may be recomputed ..."},
                            {"ffn_max_ratio", Type::number, "0.1", "... below this part of the step's FLOPs."}}),
      policy_block("plan", {{"sequence", Type::text, "none", "A rotor sequence: \"Fc0 Fn1 Fe2 L B2 ...\"."},
                            {"file", Type::path, "none", "A plan file, as --plan-out writes it."}}),
      policy_block("offload", offload_keys()),
      {"offload", "", offload_keys()},
  };
}

std::vector<Block> setting_blocks() {
  return {
      {"batch",
       "",
       {{"size", Type::integer, "1", "Sequences of one micro-batch. Transformers only."},
        {"sequence", Type::integer, "1", "Tokens of a sequence. Transformers only."},
        {"target", Type::integer, "sequence", "Tokens of a decoder's sequence behind an encoder (T5)."},
        {"accumulate", Type::integer, "1", "Micro-batches a step. Not for chains and graphs."}}},
      {"dtype",
       "",
       {{"parameters", Type::dtype, "float32", "Weights.", float_types},
        {"compute", Type::dtype, "float32", "Activations.", float_types},
        {"autocast", Type::dtype, "none", "Activations under autocast, weights kept as they are.", float_types},
        {"gradients", Type::dtype, "parameters", "Gradients of the weights.", float_types},
        {"main_gradients", Type::dtype, "none; with loop megatron see above",
         "Buffers that exist before step 0 and take the gradients' place.", float_types_or_none},
        {"master", Type::dtype, "none; with loop megatron see above", "A copy of the weights in the optimizer.",
         float_types_or_none},
        {"moments", Type::dtype, "master, or each weight's own",
         "Optimizer state; Megatron-LM's and llm.c's is float32.", float_types},
        {"logits", Type::dtype, "the model code's", "The loss's copy of the logits.", float_types},
        {"norms", Type::dtype, "parameters", "Weights of norms, used as they are.", float_types}}},
      {"optimizer",
       "",
       {{"kind", Type::choice, "none", "The update rule.", {"none", "sgd", "momentum", "adam", "adamw"}},
        {"multi_tensor", Type::boolean, "true", "Temporaries per group of parameters; false: per parameter."},
        {"fused", Type::boolean, "false", "No temporaries."},
        {"zero_grad",
         Type::choice,
         "none",
         "none: gradients are born anew each step; zero: they persist.",
         {"none", "zero"}},
        {"in_backward", Type::boolean, "false",
         "Each weight is updated when its gradient is whole, and the gradient freed (LOMO, torchtune)."},
        {"clip_grad_norm", Type::factor, "none", "The norm of all gradients is limited before the update."},
        {"states", Type::choice, "plain", "8bit: bitsandbytes' block-wise states of one byte.", {"plain", "8bit"}},
        {"block_size", Type::integer, "256", "8bit: states that share a scale; 2048 up to bitsandbytes 0.44."}}},
      {"loss",
       "",
       {
           {"chunks", Type::integer, "1", "Parts the logits are computed in."},
           {"fused", Type::boolean, "false", "Head and loss as one kernel: no logits in memory."},
       }},
      {"lora",
       "",
       {{"rank", Type::integer, "", "Columns of A and B."},
        {"targets", Type::texts, "", "Products that get an adapter, by a part of their name: q_proj."},
        {"dropout", Type::number, "0", "On the adapters' input."},
        {"dtype", Type::dtype, "float32", "Of the adapters.", float_types},
        {"input_requires_grad", Type::boolean, "true",
         "The first block's input has a gradient (checkpointing needs it)."},
        {"trained", Type::texts, "none", "Weights of the base that are trained too, by a part of their name."}}},
      {"loop",
       "",
       {{"logits_held", Type::boolean, "false", "A variable keeps the logits through backward."},
        {"cache_held", Type::boolean, "false",
         "And each layer's keys and values, which Hugging Face's outputs hold under use_cache."}}},
      {"checkpointing",
       "",
       {{"kind",
         Type::choice,
         "",
         "torch.utils.checkpoint's two ways, saved-tensor hooks that copy, or the plan itself.",
         {"direct", "reentrant", "nonreentrant", "offload"}},
        {"early_stop", Type::boolean, "true", "nonreentrant: recomputation ends at the last tensor that is needed."},
        {"preserve_rng", Type::boolean, "true", "The generator's state is copied for each region."},
        {"parameters", Type::boolean, "false", "offload: parameters that are saved are copied too."}}},
      {"schedule", "", {{"on_grad_of", Type::text, "", "The op, by its name within the layer."}}},
      {"allocator",
       "",
       {{"kind",
         Type::choice,
         "live",
         "live: requested bytes of what is held. cuda_caching: PyTorch's allocator. arena: static addresses.",
         {"live", "cuda_caching", "arena"}},
        {"max_split_size_mb", Type::integer, "none", "Above 20: blocks of at least this are not split."},
        {"roundup_power2_divisions", Type::text, "none", "4, or by size in MB: \"[256:1,512:2,>:4]\"."},
        {"garbage_collection_threshold", Type::number, "none", "Between 0 and 1: of the memory fraction."},
        {"expandable_segments", Type::boolean, "false", "Segments that grow by pages."},
        {"max_non_split_rounding_mb", Type::integer, "20", "Above 20: how much larger an oversize block may be."},
        {"memory_fraction", Type::number, "none", "Of the capacity: what the process may take."},
        {"capacity", Type::size, "the device's", "What the device has; without one nothing fails."}}},
  };
}

std::vector<Block> device_blocks() {
  std::vector<Key> rates;
  for (const std::string_view name : {"float32", "bfloat16", "float16", "float8", "float64"})
    rates.push_back({name, Type::flop_rate, "0: no time", "Dense matrix products of this type."});
  return {
      {"device",
       "",
       {{"name", Type::text, "the file's name", "What results call it."},
        {"capacity", Type::size, "not known", "All of its memory."},
        {"usable", Type::size, "capacity", "What a process can get."},
        {"non_torch", Type::size, "0 B", "Context and communicators, outside the framework."},
        {"flops", Type::block, "no time for FLOPs", "Rates by data type.", {}, "device_flops"},
        {"memory_bandwidth", Type::byte_rate, "no time for traffic", "Of its own memory."},
        {"copy_bandwidth", Type::block, "copies take no time", "Between device and host.", {}, "copy_bandwidth"},
        {"link_bandwidth", Type::byte_rate, "exchanges take no time",
         "To the devices it shares tensors with, each way."},
        {"launch_time", Type::time, "0 ns", "Added to each compute."},
        {"workspaces",
         Type::block,
         "none",
         "What a library keeps on the device, by library; counted under CUDA kernels.",
         {},
         "workspaces"},
        {"calibration",
         Type::block,
         "none",
         "Measured costs by kind of op, as `tidemark calibrate` writes them; other ops take the rates above.",
         {},
         "calibration"}}},
      {"calibration",
       "",
       {{"layout", Type::integer, "", "Of this map: 1."},
        {"dtype", Type::dtype, "float32", "Ops of this type are covered.", float_types},
        {"source", Type::text, "none", "Where the times come from; read, but not used."},
        {"costs", Type::steps, "", "One a kind and direction.", {}, "calibration_cost"},
        {"points", Type::steps, "none", "What was measured; read, but not used.", {}, "calibration_point"}}},
      {"calibration_cost",
       "",
       {{"kind", Type::text, "", "An op's kind as programs name it, or optimizer."},
        {"direction", Type::choice, "forward", "Its own kernel, or its backward's.", {"forward", "backward"}},
        {"launch", Type::time, "0 ns", "Added to each."},
        {"flops", Type::steps, "none", "For ops with matrix products: rates, `at` ascending.", {}, "flop_point"},
        {"bytes", Type::steps, "none", "For the others: rates, `at` ascending.", {}, "byte_point"},
        {"training_error", Type::text, "none", "Median of the points it was fitted to; read, but not used."},
        {"held_out_error", Type::text, "none", "Median of those it was not; read, but not used."}}},
      {"flop_point",
       "",
       {{"at", Type::integer, "", "FLOPs a byte moved."}, {"rate", Type::flop_rate, "", "Of such shapes."}}},
      {"byte_point", "", {{"at", Type::size, "", "Bytes moved."}, {"rate", Type::byte_rate, "", "Of such shapes."}}},
      {"calibration_point",
       "",
       {{"kind", Type::text, "", "As in a cost."},
        {"direction", Type::choice, "forward", "As in a cost.", {"forward", "backward"}},
        {"shape", Type::text, "none", "For a person."},
        {"flops", Type::flops, "0 FLOP", "Of matrix products."},
        {"bytes", Type::size, "0 B", "Read and written."},
        {"measured", Type::time, "", "A low quantile of the runs."},
        {"spread", Type::text, "none", "The median above it."},
        {"predicted", Type::time, "", "By the cost above."},
        {"residual", Type::text, "none", "Predicted over measured, less 1."},
        {"held_out", Type::boolean, "false", "Not fitted to."}}},
      {"device_flops", "", rates},
      {"copy_bandwidth",
       "",
       {{"to_host", Type::byte_rate, "no time", "From the device."},
        {"to_device", Type::byte_rate, "no time", "To the device."}}},
      {"workspaces",
       "",
       {{"cublas", Type::size, "0 B",
         "Kept by cuBLAS from the first matrix product on; 8519680 B, on Hopper 32 MiB."}}},
  };
}

std::vector<Block> plan_blocks() {
  return {
      {"plan",
       "",
       {{"steps", Type::steps, "", "What happens, in order, for one micro-batch.", {}, "plan_step"},
        {"boundaries", Type::choice, "release", "As in a policy.", {"release", "hold"}},
        {"checkpointing", Type::block, "direct", "As in a policy.", {}, "checkpointing"},
        {"copies", Type::block, "all move; free: copied", "How copies are carried out.", {}, "copies"},
        {"warnings", Type::texts, "none", "What the policy that made it had to say."}}},
      {"copies",
       "",
       {{"min_size", Type::size, "0 B", "Smaller storages stay on the device."},
        {"free",
         Type::choice,
         "copied",
         "When the device's storage goes: when it is copied, or at the copy's copy_wait, without one never.",
         {"copied", "waited"}}}},
      {"plan_step",
       "",
       {{"op",
         Type::choice,
         "",
         "What is done.",
         {"forward", "recompute", "loss", "backward", "drop", "discard_input", "discard_saved", "copy_out", "copy_in",
          "copy_wait"}},
        {"layer", Type::text, "", "A block's number, or a layer's name; `loss` needs none."},
        {"ops", Type::texts, "the whole layer", "Names within the layer."},
        {"keep",
         Type::choice,
         "all",
         "What it leaves for backward; of a copy, what it moves.",
         {"none", "input", "all"}},
        {"region", Type::integer, "none", "Steps of one region share a number."},
        {"refill", Type::boolean, "false", "recompute: results are copied into the storages that forward gave up."}}},
  };
}

std::vector<Block> make_blocks() {
  std::vector<Block> out = {scenario_block(), profile_block()};
  for (const auto& more :
       {model_blocks(), policy_blocks(), setting_blocks(), parallel_blocks(), device_blocks(), plan_blocks()})
    out.insert(out.end(), more.begin(), more.end());
  return out;
}

}  // namespace

const Key* Block::find(std::string_view key) const {
  const auto found = std::ranges::find(keys, key, &Key::name);
  return found == keys.end() ? nullptr : &*found;
}

const std::vector<Block>& blocks() {
  static const std::vector<Block> table = make_blocks();
  return table;
}

const Block& block(std::string_view name, std::string_view variant) {
  const auto found =
      std::ranges::find_if(blocks(), [&](const Block& b) { return b.name == name && b.variant == variant; });
  check(found != blocks().end(), "no such block of keys: " + std::string(name) + " " + std::string(variant));
  return *found;
}

std::vector<const Key*> keys_at(std::string_view path) {
  std::string_view name = "scenario";
  for (;;) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    std::vector<const Key*> found;
    for (const Block& b : blocks())
      if (const Key* key = b.name == name ? b.find(path.substr(0, dot)) : nullptr) found.push_back(key);
    if (dot == path.size() || found.empty()) return found;
    name = found.front()->block;
    path.remove_prefix(dot + 1);
  }
}

std::vector<std::string> variants(std::string_view name) {
  std::vector<std::string> out;
  for (const Block& b : blocks())
    if (b.name == name) out.emplace_back(b.variant);
  return out;
}

}  // namespace tidemark
