/// What does the forward pass compute: which ops, in which order, on which tensors?
///
/// A Program is one micro-batch's forward pass, its loss included. Families (transformer, mlp) and the capture make
/// Programs; `lower` turns one into a Step. A rank's view is a Program whose shapes are that rank's shards.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/base/vocabulary.hpp"

namespace tidemark {

using TensorId = std::int32_t;
using OpIndex = std::int32_t;
using Shape = std::vector<std::int64_t>;

/// Product of the extents; nothing past 2^63.
std::optional<std::int64_t> element_count(const Shape& shape);
/// Strides in elements of a dense row-major tensor.
Shape contiguous_strides(const Shape& shape);

/// A named view of a storage. Views own nothing: tensors with the same `storage` share its bytes.
struct Tensor {
  std::string name;
  Shape shape;
  Shape strides;  // in elements
  DType dtype = DType::float32;
  std::int32_t storage = -1;   // index into Program::storages
  bool requires_grad = false;  // a gradient flows to it (leaf or not)
  Category category = Category::activation;
  std::int32_t layer = -1;  // index into Program::layers
  friend bool operator==(const Tensor&, const Tensor&) = default;
};

struct Storage {
  Bytes bytes;
  friend bool operator==(const Storage&, const Storage&) = default;
};

/// The ops the kernel rules know. Names are PyTorch's where it has one; `op_kind_names` spells them.
enum class OpKind : std::uint8_t {
  embedding,   // ids, weight -> out
  linear,      // x, weight[, bias] -> out        (F.linear; 2-D view of x when x has more dimensions)
  matmul,      // x, w -> out                     (x @ w, w is 2-D: aten::mm)
  addmm,       // bias, x, w -> out
  bmm,         // a, b -> out                     (batched; head-split operands may be strided)
  add,         // x, y -> out                     (y may broadcast: bias)
  mul,         // x, y -> out
  scale,       // x -> out                        (x * number or x / number)
  add_scalar,  // x -> out                        (x + number)
  pow,         // x -> out                        (x ** number)
  mean,        // x -> out                        (last dimension, kept as extent 1; or `dims`; all to a scalar)
  rsqrt,       // x -> out
  relu,
  gelu,
  silu,
  tanh,              // x[, bias] -> out        (with a bias: fused, gelu(x + bias))
  swiglu,            // gate, up -> out                 (fused silu(gate) * up; or one tensor of both halves)
  layer_norm,        // x, weight, bias -> out
  rms_norm,          // x, weight -> out
  softmax,           // x -> out                        (last dimension)
  masked_fill,       // x, mask -> out
  dropout,           // x -> out
  bias_dropout_add,  // x, bias, residual -> out      (fused residual + dropout(x + bias))
  rotary,            // x, cos, sin -> out
  attention,     // q, k, v -> out                  (fused: flash or memory-efficient; [batch, heads, rows, head_dim])
  repeat_heads,  // k -> out                        (grouped heads expanded to all query heads)
  cast,          // x -> out                        (another dtype)
  view,          // x -> out                        (reshape, transpose, slice: an alias)
  contiguous,    // x -> out                        (a copy in another layout)
  split,         // x -> outs                       (aliases)
  cat,
  log_softmax,           // x -> out                        (last dimension)
  nll_loss,              // log-probabilities, target -> loss
  cross_entropy,         // logits, target -> loss          (log_softmax and nll_loss as one kernel)
  linear_cross_entropy,  // x, weight, target -> loss (the head too: no logits in memory)
  mse_loss,              // x, target -> loss
  sum,                   // x -> scalar
  sub,                   // x, y -> out
  sub_from,              // x -> out                        (number - x)
  div,                   // x, y -> out
  where,                 // mask, x, y -> out
  neg,
  abs,
  exp,
  log,
  sqrt,
  sin,
  cos,
  erf,
  reciprocal,
  sigmoid,
  leaky_relu,
  elu,
  softplus,
  hardtanh,
  hardswish,
  clamp,           // x -> out                        (both bounds; `implementation` "min" or "max": one)
  triangle,        // x -> out                        (tril, triu)
  group_norm,      // x, weight, bias -> out          (`heads` groups)
  batch_norm,      // x, weight, bias, running mean, running variance -> out
  max_pool,        // x -> out, indices
  avg_pool,        // x -> out
  stack,           // xs -> out
  index,           // x, indices.. -> out             (rows or elements picked: x[i], index_select)
  gather,          // x, indices -> out
  index_add,       // x, indices, u -> out
  top_k,           // x -> values, indices
  bce_loss,        // logits, target -> loss
  compare,         // x[, y] -> mask                  (y absent: a number)
  fill,            // -> out                          (a new tensor: zeros, arange)
  grouped_linear,  // x, weight -> out            (one weight [n, k] for each group of rows: [groups, n, k])
  collective,      // x -> out                        (ranks exchange it: `implementation` says how)
  custom,          // sizes given as data
};
inline constexpr std::array<std::string_view, 73> op_kind_names = {"embedding",
                                                                   "linear",
                                                                   "matmul",
                                                                   "addmm",
                                                                   "bmm",
                                                                   "add",
                                                                   "mul",
                                                                   "scale",
                                                                   "add_scalar",
                                                                   "pow",
                                                                   "mean",
                                                                   "rsqrt",
                                                                   "relu",
                                                                   "gelu",
                                                                   "silu",
                                                                   "tanh",
                                                                   "swiglu",
                                                                   "layer_norm",
                                                                   "rms_norm",
                                                                   "softmax",
                                                                   "masked_fill",
                                                                   "dropout",
                                                                   "bias_dropout_add",
                                                                   "rotary",
                                                                   "attention",
                                                                   "repeat_heads",
                                                                   "cast",
                                                                   "view",
                                                                   "contiguous",
                                                                   "split",
                                                                   "cat",
                                                                   "log_softmax",
                                                                   "nll_loss",
                                                                   "cross_entropy",
                                                                   "linear_cross_entropy",
                                                                   "mse_loss",
                                                                   "sum",
                                                                   "sub",
                                                                   "sub_from",
                                                                   "div",
                                                                   "where",
                                                                   "neg",
                                                                   "abs",
                                                                   "exp",
                                                                   "log",
                                                                   "sqrt",
                                                                   "sin",
                                                                   "cos",
                                                                   "erf",
                                                                   "reciprocal",
                                                                   "sigmoid",
                                                                   "leaky_relu",
                                                                   "elu",
                                                                   "softplus",
                                                                   "hardtanh",
                                                                   "hardswish",
                                                                   "clamp",
                                                                   "triangle",
                                                                   "group_norm",
                                                                   "batch_norm",
                                                                   "max_pool",
                                                                   "avg_pool",
                                                                   "stack",
                                                                   "index",
                                                                   "gather",
                                                                   "index_add",
                                                                   "top_k",
                                                                   "bce_loss",
                                                                   "compare",
                                                                   "fill",
                                                                   "grouped_linear",
                                                                   "collective",
                                                                   "custom"};
constexpr std::string_view to_string(OpKind kind) { return op_kind_names[static_cast<std::size_t>(kind)]; }
static_assert(op_kind_names.size() == static_cast<std::size_t>(OpKind::custom) + 1);

/// One line of a custom op's script: what it allocates or frees, in order.
struct ScriptLine {
  enum class Of : std::uint8_t { output, temporary, gradient } of = Of::temporary;
  bool alloc = true;
  std::int32_t index = 0;  // of the output, the temporary (in order of first mention), or the operand
  Bytes bytes = {};        // of a temporary
  friend bool operator==(const ScriptLine&, const ScriptLine&) = default;
};

/// Settings an op carries besides its tensors' shapes.
struct Attributes {
  double probability = 0;  // dropout
  bool causal = false;     // attention
  std::int64_t heads = 0;  // attention: query heads
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::vector<std::int64_t> dims = {};  // view: the two dimensions exchanged, or a permutation; sum, mean: those summed
  bool in_place = false;                // the output is the input's storage
  std::int32_t ranks = 1;               // that share the op: of a collective, a split product or table
  std::string implementation = {};      // "" the profile's; else a rule's name, e.g. "flash", or a `ViewKind`
  // custom only
  std::vector<std::int32_t> saved_inputs = {}, saved_outputs = {};
  std::vector<ScriptLine> forward_script = {}, backward_script = {};
  Bytes saved = {}, forward_temporary = {}, backward_temporary = {};
  Flops forward_flops = {}, backward_flops = {};
  friend bool operator==(const Attributes&, const Attributes&) = default;
};

struct ProgramOp {
  OpKind kind = OpKind::custom;
  std::string name;  // full path: "layers.3.attention.softmax"; its components are what patterns match
  std::int32_t layer = -1;
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  Attributes attributes;
  /// Host variables that let go once this op has run (M3, E9): locals going out of scope, rebound names.
  std::vector<TensorId> releases;
  friend bool operator==(const ProgramOp&, const ProgramOp&) = default;
};

struct Layer {
  std::string name;       // "embedding", "layers.3", "head", "loss"
  std::string type;       // "block", "attention", "ffn", "other"
  bool is_block = false;  // policies count and recompute blocks only
  friend bool operator==(const Layer&, const Layer&) = default;
};

struct Program {
  std::vector<Storage> storages;
  std::vector<Tensor> tensors;
  std::vector<Layer> layers;
  std::vector<ProgramOp> ops;        // in forward order; ops of one layer are contiguous
  std::vector<TensorId> parameters;  // in the order the optimizer visits them
  std::vector<TensorId> inputs;      // batch inputs, targets, masks, tables: live at the start
  TensorId loss = -1;                // backward starts here
  TensorId loss_gradient = -1;       // an input given as its gradient (out.backward(g)); -1: ones
  std::vector<TensorId> logits;      // and what is returned beside: held through backward when the loop says so
  Flops model_flops;                 // textbook forward + backward without recompute (MFU)
  friend bool operator==(const Program&, const Program&) = default;
};

/// Elements of all parameters, each tied one once.
std::int64_t parameter_count(const Program& program);

/// Builds a Program with checked sizes. Every size error is an InputError that names the tensor or op.
class ProgramBuilder {
 public:
  /// Opens the layer that following tensors and ops belong to.
  std::int32_t begin_layer(std::string name, std::string type, bool is_block);
  TensorId parameter(std::string name, Shape shape, DType dtype, bool requires_grad = true);
  /// A frozen one whose storage is not its elements: quantized.
  TensorId packed_parameter(std::string name, Shape shape, DType dtype, Bytes bytes);
  /// Part of the model's state that is no parameter: scales of quantized weights.
  TensorId buffer(std::string name, Shape shape, DType dtype);
  /// A buffer of the framework's own that is always there, into which ops write.
  TensorId workspace(std::string name, Shape shape, DType dtype);
  TensorId input(std::string name, Shape shape, DType dtype, bool requires_grad = false);
  /// A batch tensor that the loop makes anew in each micro-batch: an op without inputs, and a host variable.
  TensorId batch_input(std::string name, Shape shape, DType dtype);
  /// A new op with fresh contiguous outputs; an output requires a gradient when any input does.
  TensorId op(OpKind kind, std::string name, std::vector<TensorId> inputs, Shape shape, DType dtype,
              Attributes attributes = {});
  /// The same with an output laid out as `strides` say (dense, in another order of dimensions).
  TensorId op_strided(OpKind kind, std::string name, std::vector<TensorId> inputs, Shape shape, Shape strides,
                      DType dtype, Attributes attributes = {});
  struct Made {
    std::string name;
    Shape shape, strides;
    DType dtype = DType::float32;
    bool differentiable = true;  // false: no gradient flows to it (indices, masks)
  };
  /// An op with any number of fresh outputs and, `custom` and fill aside, at least one operand.
  std::vector<TensorId> op_of_many(OpKind kind, std::string name, std::vector<TensorId> inputs,
                                   const std::vector<Made>& outputs, Attributes attributes = {});
  /// An op whose output aliases `inputs[0]`'s storage with its own shape and strides.
  TensorId alias(OpKind kind, std::string name, std::vector<TensorId> inputs, Shape shape, Shape strides,
                 Attributes attributes = {});
  /// An op with several outputs, each an alias of `input` (split, chunk).
  struct Part {
    std::string name;
    Shape shape, strides;
  };
  std::vector<TensorId> split(std::string name, TensorId input, const std::vector<Part>& parts);
  const Tensor& tensor(TensorId id) const { return program_.tensors[static_cast<std::size_t>(id)]; }
  Program& program() { return program_; }
  /// requires_grad_(): the tensor becomes a leaf whose gradient is wanted, and the graph holds it through backward.
  void make_leaf(TensorId id);
  /// A host variable (a local, an argument) holds the tensor past its last reader, until the op added last has run.
  /// At one op, expression temporaries go first, then names in the order of these calls.
  void hold_until_now(TensorId id);
  /// Fills `releases`: each tensor's variable lets go after its last reader, or where `hold_until_now` said.
  Program finish(TensorId loss);

 private:
  std::int32_t new_storage(const std::string& name, const Shape& shape, DType dtype);
  TensorId new_tensor(std::string name, Shape shape, Shape strides, DType dtype, std::int32_t storage,
                      bool requires_grad, Category category);
  void push_op(OpKind kind, std::string name, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
               Attributes attributes);
  Program program_;
  /// A name that outlives its tensor's last reader, in the order the names were let go.
  struct Held {
    TensorId tensor = -1;
    OpIndex until = -1;
  };
  std::vector<Held> held_;
  std::vector<TensorId> leaves_;  // by make_leaf: let go when backward has ended
};

}  // namespace tidemark
