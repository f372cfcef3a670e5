#include "tidemark/input/keys.hpp"

#include <algorithm>

#include "tidemark/base/errors.hpp"
#include "tidemark/base/vocabulary.hpp"

namespace tidemark {
namespace {

using Type = ValueType;
using Names = std::vector<std::string_view>;

const Names float_types = {"float32", "bfloat16", "float16", "float8"};
const Names all_types(dtype_names.begin(), dtype_names.end());

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
          {"loop", Type::block, "nothing held", "What the training loop's variables hold.", {}, "loop"},
          {"policy",
           Type::block,
           "none",
           "What is kept and what is recomputed: a kind's name, or a map.",
           {},
           "policy"},
          {"parallel", Type::block, "{}", "One rank's view; must be empty: not available yet.", {}, "parallel"},
          {"device",
           Type::block,
           "none: no rates, no capacity",
           "A built-in device, a YAML file of one, or a map.",
           {},
           "device"},
          {"allocator", Type::block, "live", "The allocator model: a kind's name, or a map.", {}, "allocator"},
          {"steps", Type::integer, "1; 2 with an optimizer", "Training steps to simulate."},
          {"convention", Type::choice, "framework", "Whose rules count the memory of a chain.", {"framework", "rotor"}},
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
               {"ideal", "reference", "pytorch-1.13-cpu", "pytorch-2.6-cpu", "pytorch-cuda", "megatron"}},
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
               {"reference", "huggingface", "megatron", "torchtitan"}},
              {"loop",
               Type::choice,
               "the preset's",
               "Who holds what between micro-batches and steps.",
               {"plain", "huggingface", "megatron"}},
          }};
}

Key per_layer(std::string_view name, Type type, std::string_view fallback, std::string_view meaning,
              Names choices = {}) {
  return {name, type, fallback, meaning, std::move(choices), {}, true};
}

Key family_key() {
  return {"family", Type::choice, "", "The kind of model.", {"chain", "graph", "mlp", "transformer", "program"}};
}

Block chain_block() {
  return {"model",
          "chain",
          {
              family_key(),
              {"layers", Type::integer, "the rows of `file`", "Number of layers."},
              {"file", Type::path, "none", "A CSV with one row a layer, its columns named like the keys below."},
              per_layer("layer_activation", Type::size, "0 B", "Saved when run in full, its own output included."),
              per_layer("boundary", Type::size, "0 B",
                        "The layer's input; a list may have one entry more: the chain's output."),
              per_layer("forward_flops", Type::flops, "0 FLOP", "Matrix-product FLOPs of the forward."),
              per_layer("backward_flops", Type::flops, "twice forward_flops", "Those of the backward."),
              per_layer("attention_fraction", Type::number, "0",
                        "The part of forward_flops that recomputing attention runs again."),
              per_layer("forward_time", Type::time, "from the device", "Duration of the forward."),
              per_layer("backward_time", Type::time, "from the device", "Duration of the backward."),
              per_layer("forward_workspace", Type::size, "0 B", "Alive only while the forward runs."),
              per_layer("backward_workspace", Type::size, "0 B", "Alive only while the backward runs."),
              per_layer("gradient", Type::size, "0 B",
                        "Gradient of the layer's input; a list may have one entry more: of the chain's output."),
              per_layer("type", Type::choice, "other", "What the layer is, for policy `rule` and selective patterns.",
                        {"attention", "ffn", "other"}),
              {"loss_time", Type::time, "0 ns", "Duration of the loss."},
              {"loss_workspace", Type::size, "0 B", "Alive only while the loss runs."},
          }};
}

Block graph_block() {
  return {"model",
          "graph",
          {
              family_key(),
              {"file", Type::path, "", "A layer table (CSV), or a PipeDream graph.txt."},
              {"format",
               Type::choice,
               "pipedream for .txt, else table",
               "How the file is written.",
               {"table", "pipedream"}},
              {"input", Type::size, "0 B", "The model's input."},
              {"output_gradient", Type::size, "0 B", "Gradient of the last layer's output, made by the loss."},
              {"loss_time", Type::time, "0 ns", "Duration of the loss."},
              {"loss_workspace", Type::size, "0 B", "Alive only while the loss runs."},
          }};
}

Block mlp_block() {
  return {"model",
          "mlp",
          {
              family_key(),
              {"layers", Type::integer, "4", "Number of layers h = relu(x W1 + b1) W2 + b2."},
              {"rows", Type::integer, "256", "Rows of x: the batch."},
              {"width", Type::integer, "32", "Columns of x and of each layer's output."},
              {"hidden", Type::integer, "64", "Columns between the two products of a layer."},
              {"style",
               Type::choice,
               "matmul",
               "How a layer is written.",
               {"matmul", "addmm", "linear", "residual", "inplace"}},
              {"activation", Type::choice, "relu", "Between the two products.", {"relu", "gelu", "silu", "tanh"}},
              {"loss", Type::choice, "mse", "What follows the last layer.", {"mse", "sum", "none"}},
              {"input_requires_grad", Type::boolean, "true", "The first layer's input has a gradient too."},
              {"save_pre_activation", Type::boolean, "false",
               "Profile reference: backward reads the saved pre-activation instead of rebuilding it."},
          }};
}

Block transformer_block() {
  return {"model",
          "transformer",
          {
              family_key(),
              {"config", Type::path, "none", "A Hugging Face config.json; the fields below override it."},
              {"model_type",
               Type::choice,
               "the config's",
               "The architecture.",
               {"gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma"}},
              {"layers", Type::integer, "the config's", "Number of blocks."},
              {"hidden", Type::integer, "the config's", "Width of the residual stream."},
              {"heads", Type::integer, "the config's", "Query heads."},
              {"kv_heads", Type::integer, "the config's, or heads", "Key and value heads."},
              {"head_dim", Type::integer, "the config's, or hidden / heads", "Width of a head."},
              {"ffn_hidden", Type::integer, "the config's; gpt2: 4 hidden", "Width inside the feed-forward part."},
              {"vocab", Type::integer, "the config's", "Rows of the embedding."},
              {"max_positions", Type::integer, "the config's", "Longest sequence."},
              {"dropout", Type::number, "the config's, or 0", "All three dropouts below."},
              {"embedding_dropout", Type::number, "dropout", "After the embedding."},
              {"attention_dropout", Type::number, "dropout", "On the attention weights."},
              {"residual_dropout", Type::number, "dropout", "On what is added to the residual stream."},
              {"activation",
               Type::choice,
               "the config's, or the model type's",
               "Of the feed-forward part.",
               {"gelu", "gelu_new", "gelu_pytorch_tanh", "silu", "relu", "tanh"}},
              {"tied_embeddings", Type::boolean, "the config's, or the model type's",
               "The head uses the embedding's weight."},
              {"qkv_bias", Type::boolean, "the config's, or the model type's", "Bias of query, key and value."},
              {"projection_bias", Type::boolean, "the config's, or the model type's", "Bias after attention."},
              {"ffn_bias", Type::boolean, "the config's, or the model type's", "Bias of the feed-forward part."},
              {"attention", Type::choice, "eager", "How attention is computed.", {"eager", "sdpa", "flash", "fused"}},
              {"head", Type::choice, "lm", "What follows the last block.", {"lm", "none"}},
          }};
}

std::vector<Key> program_keys() {
  return {{"parameters",
           Type::program,
           "none",
           "Tensors with gradients, by name: a shape, or a map.",
           {},
           "program tensor"},
          {"inputs", Type::program, "none", "The batch, targets, masks: a shape, or a map.", {}, "program tensor"},
          {"layers", Type::program, "", "Layers in order, each with its ops.", {}, "program layer"},
          {"loss", Type::text, "", "The tensor that backward starts from."},
          {"loss_gradient", Type::text, "ones", "An input given as the loss's gradient."},
          {"logits", Type::text, "none", "What `loop.logits_held` holds through backward."}};
}

Block program_model_block() {
  Block out{
      "model", "program", {family_key(), {"file", Type::path, "none", "A program file; the keys below stand in it."}}};
  for (Key& key : program_keys()) {
    if (key.fallback.empty()) key.fallback = "the file's";
    out.keys.push_back(key);
  }
  return out;
}

Block program_block() { return {"program", "", program_keys()}; }

Block program_tensor_block() {
  return {"program tensor",
          "",
          {{"shape", Type::integers, "", "Its extents."},
           {"dtype", Type::dtype, "float32", "Its elements.", all_types},
           {"requires_grad", Type::boolean, "true for parameters", "A gradient flows to it."}}};
}

Block program_layer_block() {
  return {"program layer",
          "",
          {{"name", Type::text, "", "What policies and results call it; \"loss\" is the loss."},
           {"type", Type::text, "block or other", "For policy `rule`."},
           {"block", Type::boolean, "false", "Policies count and recompute it."},
           {"ops", Type::program, "none", "Ops and releases in order.", {}, "program op"}}};
}

Block program_op_block() {
  return {"program op",
          "",
          {{"op", Type::text, "none with `release`",
            "The op's kind, or reshape, transpose, permute, slice, select, expand."},
           {"name", Type::text, "the first result's", "Its name within the layer."},
           {"in", Type::texts, "none with `release`", "Operands, by name."},
           {"out", Type::texts, "none with `release`", "Results, by name."},
           {"shape", Type::integers, "the operands'", "Of the result of a reshape, an expand or a custom op."},
           {"dims", Type::integers, "none", "transpose: two dimensions; permute: all; slice, select, split, cat: one."},
           {"sizes", Type::integers, "none", "split: the parts' extents; slice: start and length; select: the index."},
           {"dtype", Type::dtype, "the operands'", "Of a cast's or custom op's result.", all_types},
           {"in_place", Type::boolean, "false", "The result is the first operand's storage."},
           {"probability", Type::number, "0", "Of a dropout."},
           {"causal", Type::boolean, "false", "Of an attention."},
           {"saved", Type::size, "0 B", "custom: what it saves besides its operands."},
           {"forward_temporary", Type::size, "0 B", "custom: alive only while it runs."},
           {"backward_temporary", Type::size, "0 B", "custom: alive only while its backward runs."},
           {"forward_flops", Type::flops, "0 FLOP", "custom: of its forward."},
           {"backward_flops", Type::flops, "0 FLOP", "custom: of its backward."},
           {"release", Type::texts, "none", "In place of an op: names that let go here, in this order."}}};
}

Block policy_block(std::string_view kind, std::vector<Key> own) {
  std::vector<Key> keys = {
      {"kind",
       Type::choice,
       "",
       "The rule.",
       {"none", "full", "interval", "sqrt", "sequential", "block", "whole", "selective", "rule", "plan"}}};
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
                    {"layers", Type::ranges, "all", "Blocks it holds for, such as \"0-11\"; without patterns whole."},
                    {"every", Type::integer, "1", "Every n-th of those blocks."},
                    {"interval", Type::integer, "1", "Neighbouring blocks that share a region."}}),
      policy_block("rule", {{"attention_threshold", Type::size, "100 MB", "Attention above this is recomputed."},
                            {"ffn_threshold", Type::size, "500 MB", "Feed-forward above this may be recomputed ..."},
                            {"ffn_max_ratio", Type::number, "0.1", "... below this part of the step's FLOPs."}}),
      policy_block("plan", {{"sequence", Type::text, "none", "A rotor sequence: \"Fc0 Fn1 Fe2 L B2 ...\"."},
                            {"file", Type::path, "none", "A plan file, as --plan-out writes it."}}),
  };
}

std::vector<Block> setting_blocks() {
  return {
      {"batch",
       "",
       {{"size", Type::integer, "1", "Sequences of one micro-batch. Transformers only."},
        {"sequence", Type::integer, "1", "Tokens of a sequence. Transformers only."},
        {"accumulate", Type::integer, "1", "Micro-batches a step. Not for chains and graphs."}}},
      {"dtype",
       "",
       {{"parameters", Type::dtype, "float32", "Weights.", float_types},
        {"compute", Type::dtype, "float32", "Activations.", float_types},
        {"autocast", Type::dtype, "none", "Activations under autocast, weights kept as they are.", float_types},
        {"gradients", Type::dtype, "parameters", "Gradients of the weights.", float_types},
        {"main_gradients", Type::dtype, "none", "Buffers that exist before step 0.", float_types},
        {"master", Type::dtype, "none", "A copy of the weights in the optimizer.", float_types},
        {"moments", Type::dtype, "float32", "Optimizer state.", float_types},
        {"logits", Type::dtype, "the model code's", "The loss's copy of the logits.", float_types}}},
      {"optimizer",
       "",
       {{"kind", Type::choice, "none", "The update rule.", {"none", "sgd", "momentum", "adam", "adamw"}},
        {"multi_tensor", Type::boolean, "true", "Temporaries per group of parameters; false: per parameter."},
        {"fused", Type::boolean, "false", "No temporaries."},
        {"zero_grad",
         Type::choice,
         "none",
         "none: gradients are born anew each step; zero: they persist.",
         {"none", "zero"}}}},
      {"loss",
       "",
       {{"chunks", Type::integer, "1", "Parts the logits are computed in."},
        {"fused", Type::boolean, "false", "Head and loss as one kernel: no logits in memory."}}},
      {"loop", "", {{"logits_held", Type::boolean, "false", "A variable keeps the logits through backward."}}},
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
      {"parallel", "", {}},
      {"allocator", "", {{"kind", Type::choice, "live", "live: requested bytes of what is held.", {"live"}}}},
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
        {"launch_time", Type::time, "0 ns", "Added to each compute."},
        {"workspaces", Type::block, "none", "Sizes by library; read, but counted nowhere yet.", {}, "workspaces"}}},
      {"device_flops", "", rates},
      {"copy_bandwidth",
       "",
       {{"to_host", Type::byte_rate, "no time", "From the device."},
        {"to_device", Type::byte_rate, "no time", "To the device."}}},
      {"workspaces", "", {{"cublas", Type::size, "0 B", "Kept by cuBLAS from the first product on."}}},
  };
}

std::vector<Block> plan_blocks() {
  return {
      {"plan",
       "",
       {{"steps", Type::steps, "", "What happens, in order, for one micro-batch.", {}, "plan_step"},
        {"boundaries", Type::choice, "release", "As in a policy.", {"release", "hold"}},
        {"checkpointing", Type::block, "direct", "As in a policy.", {}, "checkpointing"},
        {"warnings", Type::texts, "none", "What the policy that made it had to say."}}},
      {"plan_step",
       "",
       {{"op",
         Type::choice,
         "",
         "What is done.",
         {"forward", "recompute", "loss", "backward", "drop", "discard_input", "discard_saved", "copy_out", "copy_in"}},
        {"layer", Type::text, "", "A block's number, or a layer's name; `loss` needs none."},
        {"ops", Type::texts, "the whole layer", "Names within the layer."},
        {"keep", Type::choice, "all", "What it leaves for backward.", {"none", "input", "all"}},
        {"region", Type::integer, "none", "Steps of one region share a number."}}},
  };
}

std::vector<Block> make_blocks() {
  std::vector<Block> out = {scenario_block(),      profile_block(),   chain_block(),
                            graph_block(),         mlp_block(),       transformer_block(),
                            program_model_block(), program_block(),   program_tensor_block(),
                            program_layer_block(), program_op_block()};
  for (const auto& more : {policy_blocks(), setting_blocks(), device_blocks(), plan_blocks()})
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

std::vector<std::string> variants(std::string_view name) {
  std::vector<std::string> out;
  for (const Block& b : blocks())
    if (b.name == name) out.emplace_back(b.variant);
  return out;
}

}  // namespace tidemark
