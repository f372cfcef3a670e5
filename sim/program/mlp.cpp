#include "tidemark/program/mlp.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t most_layers = 1'000'000;
constexpr std::array<std::string_view, 5> styles = {"matmul", "addmm", "linear", "residual", "inplace"};
constexpr std::array<std::pair<std::string_view, OpKind>, 4> activations = {
    {{"relu", OpKind::relu}, {"gelu", OpKind::gelu}, {"silu", OpKind::silu}, {"tanh", OpKind::tanh}}};

class MlpBuilder {
 public:
  MlpBuilder(const MlpSpec& spec, const Training& training)
      : spec_(spec), dtypes_(training.dtypes), activation_(find_activation(spec.activation)) {
    check_spec();
  }

  Program build() {
    TensorId h = program_.input("x", {spec_.rows, spec_.width}, dtypes_.compute, spec_.input_requires_grad);
    const TensorId target =
        spec_.loss == "mse" ? program_.input("target", {spec_.rows, spec_.width}, dtypes_.compute) : h;
    for (std::int64_t i = 0; i < spec_.layers; ++i) h = layer(i, h);
    return program_.finish(loss(h, target));
  }

 private:
  void check_spec() const {
    const std::pair<std::string_view, std::int64_t> sizes[] = {
        {"layers", spec_.layers}, {"rows", spec_.rows}, {"width", spec_.width}, {"hidden", spec_.hidden}};
    for (const auto& [name, value] : sizes)
      if (value <= 0) throw InputError("mlp: '" + std::string(name) + "' must be positive");
    if (spec_.layers > most_layers) throw InputError("mlp: 'layers' must be at most " + std::to_string(most_layers));
    if (std::ranges::find(styles, spec_.style) == styles.end())
      throw InputError("mlp: unknown style '" + spec_.style + "'; known are matmul, addmm, linear, residual, inplace");
    if (spec_.style == "inplace" && activation_ != OpKind::relu && activation_ != OpKind::tanh)
      throw InputError("mlp: style 'inplace' overwrites what '" + spec_.activation +
                       "' saves; only relu and tanh save their output");
    if (spec_.loss != "mse" && spec_.loss != "sum" && spec_.loss != "none")
      throw InputError("mlp: unknown loss '" + spec_.loss + "'; known are mse, sum, none");
  }

  static OpKind find_activation(const std::string& name) {
    for (const auto& [known, kind] : activations)
      if (known == name) return kind;
    throw InputError("mlp: unknown activation '" + name + "'; known are relu, gelu, silu, tanh");
  }

  TensorId layer(std::int64_t number, TensorId x) {
    const std::string name = "layers." + std::to_string(number);
    program_.begin_layer(name, "ffn", true);
    const bool out_by_in = spec_.style == "linear";  // F.linear keeps its weights transposed
    const auto weight = [&](const char* w, std::int64_t in, std::int64_t out) {
      return program_.parameter(name + "." + w, out_by_in ? Shape{out, in} : Shape{in, out}, dtypes_.parameters);
    };
    const TensorId w1 = weight("w1", spec_.width, spec_.hidden);
    const TensorId b1 = program_.parameter(name + ".b1", {spec_.hidden}, dtypes_.parameters);
    const TensorId w2 = weight("w2", spec_.hidden, spec_.width);
    const TensorId b2 = program_.parameter(name + ".b2", {spec_.width}, dtypes_.parameters);

    const bool in_place = spec_.style == "inplace";
    TensorId h = in_place || spec_.style == "addmm" ? addmm(name + ".fc1", x, w1, b1, spec_.hidden)
                                                    : affine(name + ".fc1", x, w1, b1, spec_.hidden);
    Attributes attributes;
    attributes.in_place = in_place;
    h = program_.op(activation_, name + ".activation", {h}, {spec_.rows, spec_.hidden}, dtypes_.compute, attributes);
    h = spec_.style == "addmm" ? addmm(name + ".fc2", h, w2, b2, spec_.width)
                               : affine(name + ".fc2", h, w2, b2, spec_.width);
    if (spec_.style != "residual") return h;
    return program_.op(OpKind::add, name + ".residual", {x, h}, {spec_.rows, spec_.width}, dtypes_.compute);
  }

  TensorId addmm(const std::string& name, TensorId x, TensorId w, TensorId b, std::int64_t width) {
    return program_.op(OpKind::addmm, name, {b, x, w}, {spec_.rows, width}, dtypes_.compute);
  }

  /// x @ w, then + b, as two ops; F.linear as one.
  TensorId affine(const std::string& name, TensorId x, TensorId w, TensorId b, std::int64_t width) {
    if (spec_.style == "linear")
      return program_.op(OpKind::linear, name, {x, w, b}, {spec_.rows, width}, dtypes_.compute);
    const TensorId product = program_.op(OpKind::matmul, name, {x, w}, {spec_.rows, width}, dtypes_.compute);
    return program_.op(OpKind::add, name + "_bias", {product, b}, {spec_.rows, width}, dtypes_.compute);
  }

  /// "none": backward starts at the output with a gradient of its own size.
  TensorId loss(TensorId h, TensorId target) {
    if (spec_.loss == "none") return h;
    program_.begin_layer("loss", "other", false);
    if (spec_.loss == "sum") return program_.op(OpKind::sum, "loss.sum", {h}, {}, dtypes_.compute);
    return program_.op(OpKind::mse_loss, "loss.mse", {h, target}, {}, dtypes_.compute);
  }

  const MlpSpec& spec_;
  const DTypes& dtypes_;
  OpKind activation_;
  ProgramBuilder program_;
};

}  // namespace

Program make_mlp(const MlpSpec& spec, const Training& training) {
  Program program = MlpBuilder(spec, training).build();
  // Two products a layer, each once in forward and twice in backward (the input's gradient included).
  const Int128 product = Int128{2} * spec.rows * spec.width * spec.hidden;
  program.model_flops = Flops{6 * product * spec.layers};
  return program;
}

}  // namespace tidemark
