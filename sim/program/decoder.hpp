/// What do the parts of a transformer share: sizes, data types, names, and the few ops all are made of?
///
/// Internal to the transformer family. Each part is a function that appends ops to `Decoder::program`, as the model
/// code at hand writes them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model_habits.hpp"
#include "tidemark/program/program.hpp"
#include "tidemark/program/training.hpp"
#include "tidemark/program/transformer.hpp"

namespace tidemark {

/// Whose source a layer follows.
enum class ModelCode : std::uint8_t { reference, huggingface, megatron, torchtitan };

inline constexpr TensorId no_tensor = -1;

/// How tensor-parallel ranks share a product: each makes some columns of the result, or has some of the input's, so
/// that results are added up.
/// `head`: columns, and tokens that are gathered for it lie in a buffer that stays.
enum class Split : std::uint8_t { none, column, row, head };

struct Decoder {
  Decoder(const TransformerSpec& the_spec, const Training& the_training);

  TransformerSpec spec;  // checked, head_dim filled; heads, inner widths and words are those of this rank
  ModelHabits habits;
  Training training;
  ModelCode code;
  DType compute;
  int tensor_ranks = 1;
  bool divides_tokens = false;  // among them, between products
  int context_ranks = 1;
  std::int64_t batch = 1, sequence = 1;         // of this rank: its own tokens of each sequence
  std::int64_t query_width = 0, kv_width = 0;   // heads x head_dim
  std::int64_t value_dim = 0, value_width = 0;  // of a head, of all query heads side by side
  std::int64_t rotary_dim = 0;                  // so much of a head is rotated
  std::string layer;                            // "layers.3": the prefix of names
  ProgramBuilder program;
  TensorId cos = no_tensor, sin = no_tensor;           // rotary tables
  TensorId mask = no_tensor;                           // of eager attention
  TensorId labels = no_tensor, loss_mask = no_tensor;  // where they come with the rest of the batch
  std::vector<std::string> products;                   // names that an adapter may have, as met
  std::vector<std::string> weights;                    // full names of the parameters that `trains` was asked about

  bool is(ModelCode c) const { return code == c; }
  /// Is that part of the model a library's kernel?
  bool fuses(std::string_view part) const;
  /// modeling_llama.py from 4.28, its first release, to 4.29.
  bool is_early_llama() const;
  std::string name(std::string_view part) const { return layer + "." + std::string(part); }
  const Tensor& tensor(TensorId id) const { return program.tensor(id); }
  void begin_layer(const std::string& name, const char* type, bool is_block);
  /// A row a token: [batch, sequence, width], or Megatron's [sequence, batch, width].
  Shape token_rows(std::int64_t width) const;
  /// The same between products: of this rank's tokens.
  Shape stream_rows(std::int64_t width) const;

  /// A host variable of the model code goes out of scope after the last op so far. The reference has no variables.
  void ends_scope(TensorId id);

  /// A tensor of the batch: there from the start, or made in each micro-batch where the loop does so.
  TensorId batch_input(std::string name, Shape shape, DType dtype);
  /// A parameter of this layer, in the data type of the computation (autocast: a cast of it).
  TensorId weight(std::string_view part, Shape shape);
  /// Is it trained? Under LoRA the base is not, but for what `lora.trained` names.
  bool trains(std::string_view part) const;
  /// x W + b, in 4 bits or with an adapter where the training says so. `bias` may be no_tensor.
  TensorId linear(std::string_view part, TensorId x, std::int64_t out, bool bias, Split split = Split::none);
  TensorId project(std::string_view part, TensorId x, TensorId weight, TensorId bias, std::int64_t out,
                   Split split = Split::none, Attributes attributes = {});
  /// A weight in the type of the computation. Under autocast the cast of a trained fp32 weight is kept for all uses
  /// until the forward ends (at::autocast::cached_cast); any other cast dies after its use.
  TensorId cast_weight(std::string_view part, TensorId weight);
  std::map<TensorId, TensorId> cached_casts;
  /// An op of the shape of its first input, dense in that one's order of dimensions.
  TensorId pointwise(OpKind kind, std::string_view part, std::vector<TensorId> inputs, Attributes attributes = {});
  TensorId cast(std::string_view part, TensorId x, DType dtype);
  TensorId dropout(std::string_view part, TensorId x, double probability);
  /// A view where the strides allow it, else a copy.
  TensorId reshape(std::string_view part, TensorId x, const Shape& shape);
  TensorId transpose(std::string_view part, TensorId x, std::int64_t a, std::int64_t b);
  /// A part of `extent` elements along one dimension.
  TensorId slice(std::string_view part, TensorId x, std::size_t dimension, std::int64_t extent);
  /// Parts side by side in the last dimension, as views of x.
  std::vector<TensorId> split_columns(std::string_view part, TensorId x,
                                      const std::vector<std::pair<std::string, std::int64_t>>& parts);
  /// A row-major copy; nothing when it is row-major already.
  TensorId contiguous(std::string_view part, TensorId x);
};

/// The frozen base in 4 bits: x W + b with W made 16-bit for the call. `in` columns of x.
TensorId quantized_linear(Decoder& d, std::string_view part, TensorId x, std::int64_t out, TensorId bias);
/// The frozen product and its adapter as one function, where `fused` has lora.
TensorId fused_adapter(Decoder& d, std::string_view part, TensorId x, std::int64_t out);
bool has_adapter(const Decoder& d, std::string_view part);
/// base + B A x, as PEFT's layers write it.
TensorId adapted(Decoder& d, std::string_view part, TensorId x, TensorId base);
/// Throws InputError when `lora` has no target, or one that matched no product, or names trained weights that are not
/// there; the message has those that are.
void check_adapters(const Decoder& d);

/// The part of the model that one rank has.
TransformerSpec shard_of(TransformerSpec spec, const Training& training);
/// A product among tensor-parallel ranks as Megatron-LM's layers do it: what they exchange is part of the op.
TensorId split_product(Decoder& d, std::string_view part, std::vector<TensorId> inputs, std::int64_t out, Split split);
/// The words' table among them: each rank looks up its own words, and the rows are added up.
TensorId split_lookup(Decoder& d, TensorId ids, TensorId table);
/// This rank's tokens of what every rank has.
TensorId own_tokens(Decoder& d, TensorId x);

/// What a branch adds to the residual stream; Megatron leaves its last bias to the fused sum.
struct Branch {
  TensorId out = no_tensor;
  TensorId bias = no_tensor;
};

/// Of attention, on their way from the projections to the output.
struct Heads {
  TensorId q = no_tensor, k = no_tensor, v = no_tensor;
  TensorId weights = no_tensor;  // of eager attention, after dropout
};

TensorId norm(Decoder& d, std::string_view part, TensorId x);
/// Rotates the first `rotary_dim` of each head.
TensorId rotary(Decoder& d, const std::string& part, TensorId x);
/// cap * tanh(x / cap), operator by operator (modeling_gemma2.py).
TensorId softcap(Decoder& d, const std::string& part, TensorId x);
/// [.., heads x width] seen as [batch, heads, rows, width], whichever of batch and sequence comes first.
TensorId as_heads(Decoder& d, const std::string& part, TensorId x, std::int64_t heads, std::int64_t width);
/// DeepSeek's queries, keys and values, rotated.
Heads latent_projections(Decoder& d, TensorId x);
/// Throws InputError for an unknown name.
OpKind activation_kind(const std::string& name);
Branch attention(Decoder& d, TensorId x);
/// `part` is what its ops' names begin with, `width` what is inside.
Branch feed_forward(Decoder& d, const std::string& part, TensorId x, std::int64_t width);
/// Routed and shared experts of layer `number`.
Branch expert_layer(Decoder& d, std::int64_t number, TensorId x);
/// Tables, pictures or segments to the first block's input, where a model has an embedding of its own (BERT, ViT).
TensorId encoder_embedding(Decoder& d, TensorId& token_table, std::vector<TensorId>& locals);
/// The head's projection and the loss after it; `hidden` has been normed. `locals` are the variables of a model that
/// makes the loss itself (Megatron): they end when it returns.
TensorId language_loss(Decoder& d, TensorId hidden, TensorId token_table, const std::vector<TensorId>& locals);
/// T5 as a whole: both stacks, the head and the loss.
TensorId encoder_decoder_loss(Decoder& d);
/// One class a sequence.
TensorId classification_loss(Decoder& d, TensorId hidden);
/// BERT: each token's word.
TensorId masked_language_loss(Decoder& d, TensorId hidden, TensorId token_table);

}  // namespace tidemark
