#include <string_view>
#include <utility>

#include "key_blocks.hpp"
#include "tidemark/base/vocabulary.hpp"
#include "tidemark/program/transformer.hpp"

namespace tidemark {
namespace {

using Type = ValueType;
using Names = std::vector<std::string_view>;

const Names all_types(dtype_names.begin(), dtype_names.end());

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
              per_layer("weight_time", Type::time, "0 ns",
                        "The part of backward_time that weights' gradients take: zero-bubble schedules run it apart."),
              per_layer("weight_activation", Type::size, "0 B",
                        "The part of layer_activation that weights' gradients still need."),
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
  return {
      "model",
      "transformer",
      {
          family_key(),
          {"config", Type::path, "none", "A Hugging Face config.json; the fields below override it."},
          {"model_type", Type::choice, "the config's", "The architecture.",
           Names(transformer_model_types.begin(), transformer_model_types.end())},
          {"layers", Type::integer, "the config's", "Number of blocks."},
          {"hidden", Type::integer, "the config's", "Width of the residual stream."},
          {"heads", Type::integer, "the config's", "Query heads."},
          {"kv_heads", Type::integer, "the config's, or heads", "Key and value heads."},
          {"head_dim", Type::integer, "the config's, or hidden / heads", "Width of a head."},
          {"ffn_hidden", Type::integer, "the config's; gpt2, gpt_bigcode, phi: 4 hidden",
           "Width inside the feed-forward part."},
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
          {"qk_norm", Type::boolean, "the model type's", "Norms on the heads of query and key."},
          {"gated_ffn", Type::boolean, "the model type's", "The feed-forward part has a gate beside its input."},
          {"norm", Type::choice, "the model type's", "Root mean square, or layer norm with a bias.", {"rms", "layer"}},
          {"positions",
           Type::choice,
           "the model type's",
           "Rotated heads, a table, or biases of the scores.",
           {"rotary", "learned", "alibi"}},
          {"embedding_norm", Type::boolean, "false", "Megatron: a norm between the embedding and the first block."},
          {"rotary_dim", Type::integer, "the config's, or head_dim", "So much of a head is rotated."},
          {"attention", Type::choice, "eager", "How attention is computed.", {"eager", "sdpa", "flash", "fused"}},
          {"head",
           Type::choice,
           "lm; bert: mlm; vit: classification",
           "What follows the last block.",
           {"lm", "mlm", "classification", "none"}},
          {"labels", Type::integer, "the config's, or 2", "Classes of head `classification`."},
          {"image_size", Type::integer, "the config's, or 224", "ViT: side of a picture in pixels."},
          {"patch_size", Type::integer, "the config's, or 16", "ViT: side of a patch in pixels."},
          {"channels", Type::integer, "the config's, or 3", "ViT: numbers a pixel has."},
          {"experts", Type::integer, "the config's", "Routed experts a layer."},
          {"experts_per_token", Type::integer, "the config's", "So many of them see a token."},
          {"expert_hidden", Type::integer, "the config's; mixtral: ffn_hidden", "Width inside an expert."},
          {"shared_expert_hidden", Type::integer, "the config's, or 0",
           "Width of all experts together that see every token."},
          {"shared_expert_gate", Type::boolean, "the model type's", "A sigmoid weighs the shared experts."},
          {"dense_first", Type::integer, "the config's, or 0", "So many first layers have no experts."},
          per_layer("imbalance", Type::factor, "1", "Rows of the busiest expert over the mean."),
          {"capacity_factor", Type::factor, "none", "Rows an expert takes at most, over the mean."},
          {"pad_to_capacity", Type::boolean, "false", "Every expert has just that many rows."},
          {"kv_rank", Type::integer, "the config's", "DeepSeek: width of the latent row of keys and values."},
          {"query_rank", Type::integer, "the config's, or 0", "DeepSeek: that of queries; 0: none."},
          {"nope_dim", Type::integer, "the config's", "DeepSeek: the part of a head that is not rotated."},
          {"rope_dim", Type::integer, "the config's", "DeepSeek: the part that is."},
          {"value_dim", Type::integer, "the config's", "DeepSeek: width of a head of values."},
          {"decoder_layers", Type::integer, "the config's, or layers", "T5: blocks of the decoder; `layers` encode."},
          {"position_buckets", Type::integer, "the config's, or 32", "T5: distances that have a bias of their own."},
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
          {"ops", Type::program, "none", "Custom ops by name: what each does.", {}, "program custom"},
          {"layers", Type::program, "", "Layers in order, each with its ops.", {}, "program layer"},
          {"loss", Type::text, "", "The tensor that backward starts from."},
          {"loss_gradient", Type::text, "ones", "An input given as the loss's gradient."},
          {"logits", Type::texts, "none", "Tensors that `loop.logits_held` holds through backward."}};
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
           {"strides", Type::integers, "row-major", "In elements."},
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

/// What a custom op does, given as data.
std::vector<Key> custom_keys() {
  return {{"rule", Type::text, "the op's name", "What the framework calls it; named in a warning."},
          {"saves", Type::texts, "none", "Operands and results its node keeps: in0, out0."},
          {"saved", Type::size, "0 B", "What its node keeps besides."},
          {"forward", Type::texts, "its results", "Its script: +out0, +buffer 40 kB, -buffer."},
          {"backward", Type::texts, "a gradient each", "Its backward's script: +d0 is the gradient of in0."},
          {"forward_temporary", Type::size, "0 B", "Alive only while it runs."},
          {"backward_temporary", Type::size, "0 B", "Alive only while its backward runs."},
          {"forward_flops", Type::flops, "0 FLOP", "Matrix-product FLOPs of its forward."},
          {"backward_flops", Type::flops, "0 FLOP", "Of its backward."}};
}

Block program_custom_block() { return {"program custom", "", custom_keys()}; }

Block program_op_block() {
  Block out = {
      "program op",
      "",
      {{"op", Type::text, "none with `release`", "The op's kind, a view (reshape, transpose, ...), or one of `ops`."},
       {"name", Type::text, "the first result's", "Its name within the layer."},
       {"in", Type::texts, "none", "Operands, by name."},
       {"out", Type::texts, "none with `release`", "Results, by name."},
       {"shape", Type::integers, "the operands'", "Of the result, where the op does not say it; else checked."},
       {"shapes", Type::program, "one result", "Of a custom op's results, one each."},
       {"strides", Type::integers, "the rule's", "Of the result, in elements."},
       {"dims", Type::integers, "none",
        "transpose: two; permute: all; slice, select, split, unbind, cat, stack: one; sum, mean: those summed."},
       {"sizes", Type::integers, "none", "split: the parts' extents; slice: start and length; select: the index."},
       {"dtype", Type::dtype, "the operands'", "Of a cast's, fill's or custom op's result.", all_types},
       {"in_place", Type::boolean, "false", "The result is the first operand's storage."},
       {"detached", Type::boolean, "false", "No gradient flows through it: it makes no node."},
       {"probability", Type::number, "0", "Of a dropout."},
       {"causal", Type::boolean, "false", "Of an attention."},
       {"groups", Type::integer, "none", "Of a group_norm."},
       {"bounds", Type::choice, "both", "Of a clamp.", {"both", "one"}},
       {"release", Type::texts, "none", "In place of an op: names that let go here, in this order."}}};
  for (const Key& key : custom_keys()) out.keys.push_back(key);
  return out;
}

}  // namespace

std::vector<Block> model_blocks() {
  return {chain_block(),   graph_block(),          mlp_block(),           transformer_block(), program_model_block(),
          program_block(), program_tensor_block(), program_layer_block(), program_op_block(),  program_custom_block()};
}

}  // namespace tidemark
