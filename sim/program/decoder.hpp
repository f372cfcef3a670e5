/// What do the parts of a decoder share: sizes, data types, names, and the few ops all are made of?
///
/// Internal to the transformer family. Each part is a function that appends ops to `Decoder::program`, as the model
/// code at hand writes them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tidemark/program/program.hpp"
#include "tidemark/program/training.hpp"
#include "tidemark/program/transformer.hpp"

namespace tidemark {

/// Whose source a layer follows.
enum class ModelCode : std::uint8_t { reference, huggingface, megatron, torchtitan };

inline constexpr TensorId no_tensor = -1;

struct Decoder {
  Decoder(const TransformerSpec& the_spec, const Training& the_training);

  TransformerSpec spec;  // checked, head_dim filled
  Training training;
  ModelCode code;
  DType compute;
  std::int64_t batch = 1, sequence = 1;
  std::int64_t query_width = 0, kv_width = 0;  // heads x head_dim
  std::string layer;                           // "layers.3": the prefix of names
  ProgramBuilder program;
  TensorId cos = no_tensor, sin = no_tensor;           // rotary tables
  TensorId mask = no_tensor;                           // of eager attention
  TensorId labels = no_tensor, loss_mask = no_tensor;  // where they come with the rest of the batch

  bool is(ModelCode c) const { return code == c; }
  std::string name(std::string_view part) const { return layer + "." + std::string(part); }
  const Tensor& tensor(TensorId id) const { return program.tensor(id); }
  void begin_layer(const std::string& name, const char* type, bool is_block);
  /// A row a token: [batch, sequence, width], or Megatron's [sequence, batch, width].
  Shape token_rows(std::int64_t width) const;

  /// A host variable of the model code goes out of scope after the last op so far. The reference has no variables.
  void ends_scope(TensorId id);

  /// A tensor of the batch: there from the start, or made in each micro-batch where the loop does so.
  TensorId batch_input(std::string name, Shape shape, DType dtype);
  /// A parameter of this layer, in the data type of the computation (autocast: a cast of it).
  TensorId weight(std::string_view part, Shape shape);
  /// x W + b. `bias` may be no_tensor.
  TensorId linear(std::string_view part, TensorId x, std::int64_t out, bool bias);
  TensorId project(std::string_view part, TensorId x, TensorId weight, TensorId bias, std::int64_t out);
  /// An op of the shape of its first input, dense in that one's order of dimensions.
  TensorId pointwise(OpKind kind, std::string_view part, std::vector<TensorId> inputs, Attributes attributes = {});
  TensorId cast(std::string_view part, TensorId x, DType dtype);
  TensorId dropout(std::string_view part, TensorId x, double probability);
  /// A view where the strides allow it, else a copy.
  TensorId reshape(std::string_view part, TensorId x, const Shape& shape);
  TensorId transpose(std::string_view part, TensorId x, std::int64_t a, std::int64_t b);
  /// A part of `extent` elements along one dimension.
  TensorId slice(std::string_view part, TensorId x, std::size_t dimension, std::int64_t extent);
  /// A row-major copy; nothing when it is row-major already.
  TensorId contiguous(std::string_view part, TensorId x);
};

/// What a branch adds to the residual stream; Megatron leaves its last bias to the fused sum.
struct Branch {
  TensorId out = no_tensor;
  TensorId bias = no_tensor;
};

TensorId norm(Decoder& d, std::string_view part, TensorId x);
/// Throws InputError for an unknown name.
OpKind activation_kind(const std::string& name);
Branch attention(Decoder& d, TensorId x);
Branch feed_forward(Decoder& d, TensorId x);
/// The head's projection and the loss after it; `hidden` has been normed. `locals` are the variables of a model that
/// makes the loss itself (Megatron): they end when it returns.
TensorId language_loss(Decoder& d, TensorId hidden, TensorId token_table, const std::vector<TensorId>& locals);

}  // namespace tidemark
