#include "support/rules.hpp"

#include <functional>
#include <stdexcept>
#include <utility>

#include "tidemark/program/strides.hpp"

namespace tidemark::test {
namespace {

constexpr DType f32 = DType::float32;

/// Inputs by name and shape, then one op on them.
class Maker {
 public:
  explicit Maker(std::string name) : name_(std::move(name)) { builder_.begin_layer("layer", "block", true); }

  Maker& in(const std::string& name, Shape shape, DType dtype = f32) {
    const bool differentiable = dtype == f32 || dtype == DType::bfloat16;
    ids_.push_back(builder_.input(name, std::move(shape), dtype, differentiable));
    names_.push_back(name);
    return *this;
  }
  /// A table or mask that needs no gradient.
  Maker& constant(const std::string& name, Shape shape, DType dtype = f32) {
    ids_.push_back(builder_.input(name, std::move(shape), dtype));
    names_.push_back(name);
    return *this;
  }
  /// The last input as heads: [batch, rows, heads x d] seen as [batch, heads, rows, d].
  Maker& split_heads(std::int64_t heads) {
    const Tensor base = builder_.tensor(ids_.back());
    const std::int64_t d = base.shape[2] / heads;
    ids_.back() = builder_.alias(OpKind::view, "heads", {ids_.back()}, {base.shape[0], heads, base.shape[1], d},
                                 {base.strides[0], d, base.strides[1], 1});
    return *this;
  }
  Maker& transposed() {
    const Tensor base = builder_.tensor(ids_.back());
    ids_.back() = builder_.alias(
        OpKind::view, "transposed", {ids_.back()}, {base.shape[0], base.shape[1], base.shape[3], base.shape[2]},
        {base.strides[0], base.strides[1], base.strides[3], base.strides[2]}, {.dims = {2, 3}});
    return *this;
  }
  Sample op(OpKind kind, Shape out, Attributes attributes = {}, DType dtype = f32) {
    builder_.op(kind, "op", ids_, std::move(out), dtype, std::move(attributes));
    return finish();
  }
  Sample alias(Shape out, Shape strides, Attributes attributes = {}) {
    builder_.alias(OpKind::view, "op", ids_, std::move(out), std::move(strides), std::move(attributes));
    return finish();
  }
  Sample split(Shape part, Shape strides) {
    builder_.split("op", ids_[0], {{"first", part, strides}, {"second", part, strides}});
    return finish();
  }

 private:
  Sample finish() {
    const TensorId out = builder_.program().ops.back().outputs.front();
    return {name_, builder_.finish(out), names_};
  }
  std::string name_;
  ProgramBuilder builder_;
  std::vector<TensorId> ids_;
  std::vector<std::string> names_;
};

std::vector<Sample> products() {
  return {
      Maker("linear").in("x", {4, 6}).in("weight", {8, 6}).op(OpKind::linear, {4, 8}),
      Maker("linear with bias").in("x", {4, 6}).in("weight", {8, 6}).in("bias", {8}).op(OpKind::linear, {4, 8}),
      Maker("matmul").in("x", {4, 6}).in("weight", {6, 8}).op(OpKind::matmul, {4, 8}),
      Maker("matmul, frozen weight").in("x", {4, 6}).constant("weight", {6, 8}).op(OpKind::matmul, {4, 8}),
      Maker("matmul, constant x").constant("x", {4, 6}).in("weight", {6, 8}).op(OpKind::matmul, {4, 8}),
      Maker("addmm").in("bias", {8}).in("x", {4, 6}).in("weight", {6, 8}).op(OpKind::addmm, {4, 8}),
      Maker("bmm").in("a", {2, 3, 4}).in("b", {2, 4, 5}).op(OpKind::bmm, {2, 3, 5}),
      Maker("bmm of head-split q and kT")
          .in("q", {2, 3, 8})
          .split_heads(2)
          .in("k", {2, 3, 8})
          .split_heads(2)
          .transposed()
          .op(OpKind::bmm, {2, 2, 3, 3}),
      Maker("bmm of weights and head-split v")
          .in("weights", {2, 2, 3, 3})
          .in("v", {2, 3, 8})
          .split_heads(2)
          .op(OpKind::bmm, {2, 2, 3, 4}),
      Maker("embedding").constant("ids", {4}, DType::int64).in("weight", {10, 6}).op(OpKind::embedding, {4, 6}),
      Maker("embedding of 3,073 ids")
          .constant("ids", {3073}, DType::int64)
          .in("weight", {10, 6})
          .op(OpKind::embedding, {3073, 6}),
  };
}

std::vector<Sample> elementwise() {
  const Shape x = {4, 6};
  Attributes drops{.probability = 0.1};
  return {
      Maker("add").in("x", x).in("y", x).op(OpKind::add, x),
      Maker("add of a bias").in("x", x).in("bias", {6}).op(OpKind::add, x),
      Maker("mul").in("x", x).in("y", x).op(OpKind::mul, x),
      Maker("mul by a number a row").in("x", x).in("y", {4, 1}).op(OpKind::mul, x),
      Maker("mul by a constant").in("x", x).constant("y", x).op(OpKind::mul, x),
      Maker("scale").in("x", x).op(OpKind::scale, x),
      Maker("add_scalar").in("x", x).op(OpKind::add_scalar, x),
      Maker("pow").in("x", x).op(OpKind::pow, x),
      Maker("mean").in("x", x).op(OpKind::mean, {4, 1}),
      Maker("rsqrt").in("x", x).op(OpKind::rsqrt, x),
      Maker("relu").in("x", x).op(OpKind::relu, x),
      Maker("relu in place").in("x", x).op(OpKind::relu, x, {.in_place = true}),
      Maker("gelu").in("x", x).op(OpKind::gelu, x),
      Maker("gelu of x + bias").in("x", x).in("bias", {6}).op(OpKind::gelu, x),
      Maker("silu").in("x", x).op(OpKind::silu, x),
      Maker("tanh").in("x", x).op(OpKind::tanh, x),
      Maker("swiglu").in("gate", x).in("up", x).op(OpKind::swiglu, x),
      Maker("swiglu of both halves").in("both", {4, 12}).op(OpKind::swiglu, x),
      Maker("layer_norm").in("x", x).in("weight", {6}).in("bias", {6}).op(OpKind::layer_norm, x),
      Maker("rms_norm").in("x", x).in("weight", {6}).op(OpKind::rms_norm, x),
      Maker("softmax").in("x", x).op(OpKind::softmax, x),
      Maker("masked_fill").in("x", x).constant("mask", x, DType::boolean).op(OpKind::masked_fill, x),
      Maker("dropout").in("x", x).op(OpKind::dropout, x, drops),
      Maker("bias_dropout_add").in("x", x).in("bias", {6}).in("residual", x).op(OpKind::bias_dropout_add, x, drops),
      Maker("bias_dropout_add, p = 0").in("x", x).in("residual", x).op(OpKind::bias_dropout_add, x),
      Maker("cast").in("x", x).op(OpKind::cast, x, {}, DType::bfloat16),
  };
}

std::vector<Sample> attention() {
  const DType half = DType::bfloat16;
  const Shape q = {2, 4, 3, 8};
  const auto heads = [](std::int64_t kv) {
    Attributes attributes;
    attributes.causal = true;
    attributes.heads = 4;
    attributes.kv_heads = kv;
    attributes.head_dim = 8;
    return attributes;
  };
  return {
      Maker("rotary").in("x", q).constant("cos", {3, 8}).constant("sin", {3, 8}).op(OpKind::rotary, q),
      Maker("attention").in("q", q, half).in("k", q, half).in("v", q, half).op(OpKind::attention, q, heads(4), half),
      Maker("attention, 2 of 4 heads for k and v")
          .in("q", q, half)
          .in("k", {2, 2, 3, 8}, half)
          .in("v", {2, 2, 3, 8}, half)
          .op(OpKind::attention, q, heads(2), half),
      Maker("attention in fp32").in("q", q).in("k", q).in("v", q).op(OpKind::attention, q, heads(4)),
      Maker("repeat_heads").in("k", {2, 2, 3, 8}).op(OpKind::repeat_heads, q),
  };
}

std::vector<Sample> views() {
  return {
      Maker("view, reshaped").in("x", {4, 6}).alias({2, 2, 6}, {12, 6, 1}),
      Maker("view, transposed").in("x", {4, 6}).alias({6, 4}, {1, 6}, {.dims = {0, 1}}),
      Maker("view, a slice").in("x", {4, 6}).alias({3, 6}, {6, 1}),
      Maker("contiguous").in("x", {2, 3, 8}).split_heads(2).op(OpKind::contiguous, {2, 2, 3, 4}),
      Maker("split").in("x", {4, 6}).split({4, 3}, {6, 1}),
      Maker("cat").in("x", {4, 3}).in("y", {4, 3}).op(OpKind::cat, {4, 6}),
  };
}

std::vector<Sample> losses() {
  const Shape logits = {4, 10};
  const auto targets = [&](const char* name, const char* input, const Shape& shape) {
    return Maker(name).in(input, shape).constant("target", {4}, DType::int64);
  };
  return {
      Maker("log_softmax").in("x", logits).op(OpKind::log_softmax, logits),
      targets("nll_loss", "log_probabilities", logits).op(OpKind::nll_loss, {}),
      targets("cross_entropy", "logits", logits).op(OpKind::cross_entropy, {}),
      Maker("linear_cross_entropy")
          .in("x", {4, 6})
          .in("weight", {10, 6})
          .constant("target", {4}, DType::int64)
          .op(OpKind::linear_cross_entropy, {}),
      Maker("mse_loss").in("x", {4, 6}).constant("target", {4, 6}).op(OpKind::mse_loss, {}),
      Maker("sum").in("x", {4, 6}).op(OpKind::sum, {}),
  };
}

void append(std::string& text, const std::string& word) { text += (text.empty() ? "" : " ") + word; }

std::string slot_name(const Sample& sample, const Kernel& kernel, const Slot& slot) {
  const auto index = static_cast<std::size_t>(slot.index);
  if (slot.of == Slot::Of::grad) return "d" + sample.inputs[index];
  if (slot.of == Slot::Of::temp) return kernel.temps[index].name;
  return "out";
}

std::string move_text(const Sample& sample, const Kernel& kernel, const Move& move) {
  if (move.what == Move::What::run) return "run";
  if (move.what == Move::What::exchange)
    return std::string(kernel.exchanges[static_cast<std::size_t>(move.slot.index)].how);
  const bool alloc = move.what == Move::What::alloc;
  std::string text = (alloc ? "+" : "-") + slot_name(sample, kernel, move.slot);
  const auto index = static_cast<std::size_t>(move.slot.index);
  if (alloc && move.slot.of == Slot::Of::temp) text += " " + to_string(kernel.temps[index].bytes);
  if (alloc && move.slot.of == Slot::Of::output && !kernel.output_bytes.empty())
    text += " " + to_string(kernel.output_bytes[index]);
  return text;
}

std::string saved_name(const Sample& sample, const Kernel& kernel, const Saved& saved) {
  const auto index = static_cast<std::size_t>(saved.index);
  if (saved.of == Saved::Of::input) return sample.inputs[index];
  return saved.of == Saved::Of::output ? "out" : kernel.temps[index].name;
}

std::string row(const Sample& sample, const RuleText& text) {
  const auto cell = [](const std::string& words) { return words.empty() ? " |" : " " + words + " |"; };
  return "|" + cell(sample.name) + cell(text.forward) + cell(text.saved) + cell(text.backward) + "\n";
}

std::string table(const std::string& title, const std::string& kernels, const std::string& base) {
  std::string out = "### " + title + "\n\n| op | forward | saved | backward |\n|---|---|---|---|\n";
  const KernelSet set(kernels);
  for (const Sample& sample : samples()) {
    const RuleText text = text_of(sample, set.kernel(sample.program, sample.op()));
    if (!base.empty() && text == text_of(sample, KernelSet(base).kernel(sample.program, sample.op()))) continue;
    out += row(sample, text);
  }
  return out + "\n";
}

}  // namespace

std::vector<Sample> samples() {
  std::vector<Sample> all;
  for (const auto& group : {products(), elementwise(), attention(), views(), losses()})
    all.insert(all.end(), group.begin(), group.end());
  return all;
}

const Sample& find_sample(const std::vector<Sample>& all, const std::string& name) {
  for (const Sample& sample : all)
    if (sample.name == name) return sample;
  throw std::runtime_error("no sample is called " + name);
}

RuleText text_of(const Sample& sample, const Kernel& kernel) {
  RuleText text;
  for (const Move& move : kernel.forward) append(text.forward, move_text(sample, kernel, move));
  for (const Saved& saved : kernel.saved) append(text.saved, saved_name(sample, kernel, saved));
  for (const Move& move : kernel.backward) append(text.backward, move_text(sample, kernel, move));
  for (const GradientRule& gradient : kernel.gradients) {
    const std::string& input = sample.inputs[static_cast<std::size_t>(gradient.input)];
    if (gradient.passes_through) append(text.backward, "g→" + input);
    if (gradient.over_saved >= 0)
      append(text.backward,
             saved_name(sample, kernel, kernel.saved[static_cast<std::size_t>(gradient.over_saved)]) + "→d" + input);
  }
  return text;
}

std::string rule_tables() {
  return table("`ideal`", "ideal", "") + table("`cuda-sm80`, where it differs from `ideal`", "cuda-sm80", "ideal") +
         table("`transformer-engine`, where it differs from `cuda-sm80`", "transformer-engine", "cuda-sm80") +
         table("`cpu-2.6`, where it differs from `ideal`", "cpu-2.6", "ideal") +
         table("`cpu-1.13`, where it differs from `cpu-2.6`", "cpu-1.13", "cpu-2.6");
}

}  // namespace tidemark::test
