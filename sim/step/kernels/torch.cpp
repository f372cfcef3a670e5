/// What PyTorch's own formulas (derivatives.yaml, native functions) make on every device.
///
/// A formula's intermediate results live to the end of its expression. A Python number in it is a tensor of 8 bytes
/// with a 4-byte cast on a CPU (E11) and takes no device memory elsewhere. 1.13 releases what a node saved in the order
/// of the formula, 2.x by name (E12). Measured on 1.13.1 and 2.6.0 on a CPU; on CUDA read in the sources.
#include <algorithm>
#include <array>
#include <optional>

#include "draft.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark::kernels {
namespace {

constexpr std::int64_t wrapped = 8, cast_number = 4, boolean = 1;

constexpr bool on_cpu(Torch torch) { return torch != Torch::cuda; }

/// A Python number and its cast, alive while something is made.
class Number {
 public:
  Number(Draft& draft, Torch torch, DType dtype = DType::float32) : draft_(draft) {
    if (!on_cpu(torch)) return;
    number_ = draft.temp("number", wrapped);
    if (dtype != DType::int64 && dtype != DType::float64) cast_ = draft.temp("number_cast", bytes_per_element(dtype));
  }
  /// Both go, the cast first.
  void end() {
    for (const std::int32_t id : {cast_, number_})
      if (id >= 0) draft_.free_temp(id);
  }

 private:
  Draft& draft_;
  std::int32_t number_ = -1, cast_ = -1;
};

/// An intermediate result of a formula: as it is, or times a Python number.
enum class Factor : std::uint8_t { none, plain, scaled };

struct Formula {
  OpKind kind = OpKind::custom;
  Keeps keeps = Keeps::nothing;
  std::int64_t forward_ops = 1, backward_ops = 1;
  std::array<Factor, 4> factors = {};
  Layout layout = Layout::like_gradient;  // measured: most formulas begin with the gradient
};

constexpr Factor plain = Factor::plain, scaled = Factor::scaled;
constexpr std::array<Formula, 18> formulas = {{
    {OpKind::pow, Keeps::input, 1, 3, {plain, scaled}},     // grad * (exponent * self.pow(exponent - 1))
    {OpKind::rsqrt, Keeps::output, 2, 3, {plain, scaled}},  // -0.5 * grad * result.pow(3)
    {OpKind::neg, Keeps::nothing, 1, 1, {}},
    {OpKind::abs, Keeps::input, 1, 2, {plain}},  // grad * self.sgn()
    {OpKind::exp, Keeps::output, 1, 1, {}},
    {OpKind::log, Keeps::input, 1, 1, {}},
    {OpKind::sqrt, Keeps::output, 1, 2, {scaled}},      // grad / (2 * result)
    {OpKind::sin, Keeps::input, 1, 2, {plain}},         // grad * self.cos()
    {OpKind::cos, Keeps::input, 1, 3, {plain, plain}},  // grad * -self.sin()
    // 2/sqrt(pi) * exp(-(self.pow(2))) * grad
    {OpKind::erf, Keeps::input, 1, 5, {plain, plain, plain, scaled}, Layout::like_input},
    {OpKind::reciprocal, Keeps::output, 1, 3, {plain, plain}},  // -grad * (result * result)
    {OpKind::sigmoid, Keeps::output, 3, 3, {}},
    {OpKind::leaky_relu, Keeps::input, 1, 1, {}, Layout::like_input},
    {OpKind::elu, Keeps::input, 2, 2, {}},
    {OpKind::softplus, Keeps::input, 3, 3, {}},
    {OpKind::hardtanh, Keeps::input, 2, 1, {}},
    {OpKind::hardswish, Keeps::input, 3, 3, {}},
    {OpKind::triangle, Keeps::nothing, 0, 0, {}, Layout::like_input},
}};

/// One input of many elements, one gradient of as many.
template <Torch torch>
Kernel formula(const OpView& op) {
  const auto* found = std::ranges::find(formulas, op.op.kind, &Formula::kind);
  check(found != formulas.end(), "no formula for this op");
  const std::int64_t n = elements(op.input(0)), size = bytes(op.input(0));
  Draft k(op);
  k.outputs().run();
  if (found->keeps == Keeps::input) k.save_input(0);
  if (found->keeps == Keeps::output) k.save_output();
  k.backward();
  std::vector<std::int32_t> factors;
  for (const Factor factor : found->factors) {
    if (factor == Factor::none) continue;
    std::optional<Number> number;
    if (factor == Factor::scaled) number.emplace(k, torch);
    factors.push_back(k.temp("factor", size));
    if (number) number->end();
  }
  k.gradient(0, found->layout).run();
  std::for_each(factors.rbegin(), factors.rend(), [&](std::int32_t factor) { k.free_temp(factor); });
  return k.other_flops(product(op, found->forward_ops, n), product(op, found->backward_ops, n)).finish();
}

/// where(self >= min, grad, 0): a mask a bound, and zero as a tensor.
template <Torch torch>
Kernel clamp(const OpView& op) {
  const std::int64_t n = elements(op.input(0));
  const int bounds = op.op.attributes.implementation.empty() ? 2 : 1;
  Draft k(op);
  k.outputs().run().save_input(0).backward();
  const std::int32_t zero = on_cpu(torch) ? k.temp("zero", bytes_per_element(op.input(0).dtype)) : -1;
  std::vector<std::int32_t> masks;
  for (int i = 0; i < bounds; ++i) {
    const std::int32_t number = on_cpu(torch) ? k.temp("number", wrapped) : -1;
    const std::int32_t cast = on_cpu(torch) ? k.temp("number_cast", cast_number) : -1;
    masks.push_back(k.temp("mask", boolean * n));
    if (on_cpu(torch)) k.free_temp(number).free_temp(cast);
  }
  k.gradient(0, Layout::like_input).run();
  std::for_each(masks.rbegin(), masks.rend(), [&](std::int32_t mask) { k.free_temp(mask); });
  if (zero >= 0) k.free_temp(zero);
  return k.other_flops(n, product(op, bounds, n)).finish();
}

/// x + number: the number dies with the call, and nothing of it is kept.
template <Torch torch>
Kernel add_scalar(const OpView& op) {
  Draft k(op);
  Number number(k, torch, op.input(0).dtype);
  k.outputs().run();
  number.end();
  k.backward().pass(0);
  return k.other_flops(elements(op.output(0)), 0).finish();
}

/// number - x.
template <Torch torch>
Kernel sub_from(const OpView& op) {
  const std::int64_t n = elements(op.output(0));
  Draft k(op);
  Number number(k, torch, op.input(0).dtype);
  k.outputs().run();
  number.end();
  k.backward().gradient(0, Layout::like_gradient).run();
  return k.other_flops(n, n).finish();
}

/// Gradients of two operands, the second's first (by name: other, self). A broadcast one is made in full and summed
/// when the formula is done.
class TwoGradients {
 public:
  TwoGradients(Draft& draft, const OpView& op) : draft_(draft), op_(op) {}
  void make(std::size_t i) {
    if (!op_.needs_gradient(i)) return;
    ++made;
    if (elements(op_.input(i)) != elements(op_.output(0)))
      full_[i] = draft_.temp("unreduced_gradient", bytes(op_.output(0)));
    else
      draft_.gradient(i, Layout::like_gradient);
  }
  void reduce() {
    for (std::size_t i = 0; i < 2; ++i)
      if (full_[i] >= 0) draft_.gradient(i).free_temp(full_[i]);
  }
  std::int64_t made = 0;

 private:
  Draft& draft_;
  const OpView& op_;
  std::int32_t full_[2] = {-1, -1};
};

template <Torch torch>
Kernel mul(const OpView& op) {
  const std::int64_t n = elements(op.output(0));
  Draft k(op);
  k.outputs().run();
  if constexpr (torch == Torch::cpu_1_13)
    k.save_input_for(0, 1).save_input_for(1, 0);
  else
    k.save_input_for(1, 0).save_input_for(0, 1);
  k.backward();
  TwoGradients gradients(k, op);
  gradients.make(1);
  gradients.make(0);
  k.run();
  gradients.reduce();
  return k.other_flops(n, product(op, gradients.made, n)).finish();
}

/// -grad * ((self / other) / other), then grad / other.
template <Torch torch>
Kernel div(const OpView& op) {
  const std::int64_t n = elements(op.output(0)), size = bytes(op.output(0));
  Draft k(op);
  k.outputs().run();
  if constexpr (torch == Torch::cpu_1_13)
    k.save_input_for(0, 1).save_input(1);
  else
    k.save_input(1).save_input_for(0, 1);
  k.backward();
  TwoGradients gradients(k, op);
  if (op.needs_gradient(1)) {
    const std::int32_t once = k.temp("factor", size), twice = k.temp("factor", size), negative = k.temp("factor", size);
    gradients.make(1);
    k.free_temp(negative).free_temp(twice).free_temp(once);
  }
  gradients.make(0);
  k.run();
  gradients.reduce();
  return k.other_flops(n, product(op, 3 * gradients.made, n)).finish();
}

/// The incoming gradient goes to x, its negative to y.
Kernel sub(const OpView& op) {
  const std::int64_t n = elements(op.output(0));
  Draft k(op);
  k.outputs().run().backward();
  TwoGradients gradients(k, op);
  gradients.make(1);
  if (op.needs_gradient(0) && elements(op.input(0)) != n) {
    gradients.reduce();
    return k.run().gradient(0).other_flops(n, product(op, 2, n)).finish();
  }
  if (gradients.made > 0) k.run();
  gradients.reduce();
  return k.pass(0).other_flops(n, product(op, gradients.made, n)).finish();
}

/// where(mask, grad, 0) and where(mask, 0, grad), the second first.
template <Torch torch>
Kernel where(const OpView& op) {
  const std::int64_t n = elements(op.output(0));
  Draft k(op);
  k.outputs().run().save_input(0).backward();
  std::int64_t made = 0;
  for (const std::size_t i : {std::size_t{2}, std::size_t{1}}) {
    if (!op.needs_gradient(i)) continue;
    ++made;
    const std::int32_t zero = on_cpu(torch) ? k.temp("zero", bytes_per_element(op.input(i).dtype)) : -1;
    k.gradient(i);
    if (zero >= 0) k.free_temp(zero);
  }
  return k.run().other_flops(n, product(op, made, n)).finish();
}

/// Over the last dimension, over `dims`, or over everything. 1.13 keeps its input unless all is summed; 2.x nothing.
template <Torch torch>
Kernel mean(const OpView& op) {
  const std::int64_t n = elements(op.input(0));
  Draft k(op);
  k.outputs();
  Number forward(k, torch);
  k.run();
  forward.end();
  if (torch == Torch::cpu_1_13 && !op.output(0).shape.empty()) k.save_input(0);
  k.backward();
  Number backward(k, torch);
  k.gradient(0).run();
  backward.end();
  return k.other_flops(n, n).finish();
}

template <Torch torch>
Kernel gather(const OpView& op) {
  Draft k(op);
  k.outputs().run();
  if constexpr (torch == Torch::cpu_1_13)
    k.save_input(0).save_input(1);
  else
    k.save_input(1).save_input(0);
  return k.backward().gradient(0).run().other_flops(0, elements(op.output(0))).finish();
}

Kernel index_add(const OpView& op) {
  Draft k(op);
  k.outputs().run().save_input(1).save_input(2).backward().gradient(2).run().pass(0);
  return k.other_flops(elements(op.input(2)), 0).finish();
}

/// Values and their places.
Kernel max_pool(const OpView& op) {
  Draft k(op);
  k.outputs().run().save_input(0).save_output(1).backward().gradient(0).run();
  return k.other_flops(elements(op.input(0)), elements(op.output(0))).finish();
}

Kernel avg_pool(const OpView& op) {
  Draft k(op);
  k.outputs().run().save_input(0).backward().gradient(0).run();
  return k.other_flops(elements(op.input(0)), elements(op.input(0))).finish();
}

/// With a number to compare with, that is a tensor for the call.
template <Torch torch>
Kernel compare(const OpView& op) {
  Draft k(op);
  std::optional<Number> number;
  if (op.inputs() == 1) number.emplace(k, torch, op.input(0).dtype);
  k.outputs().run();
  if (number) number->end();
  return k.other_flops(elements(op.output(0)), 0).finish();
}

/// A slice of everything makes a full-size zero tensor too.
Kernel view(const OpView& op) {
  const std::string& how = op.op.attributes.implementation;
  const bool part = elements(op.output(0)) != elements(op.input(0)) || how == "slice" || how == "select";
  Draft k(op);
  k.backward();
  if (part) return k.gradient(0).run().finish();
  return k.pass(0, op.op.attributes.dims.empty() ? Layout::reshape : Layout::transpose).finish();
}

/// A part that nothing reads has no gradient: cat takes zeros in its place, stack (of unbind) one number seen in its
/// shape.
Kernel split(const OpView& op) {
  Kernel kernel = Draft(op).backward().gradient(0).run().finish();
  for (std::size_t i = 0; i < op.op.outputs.size(); ++i) {
    const bool unbinds = op.output(i).shape.size() < op.input(0).shape.size();
    kernel.zeros.push_back(Bytes{unbinds ? bytes_per_element(op.output(i).dtype) : bytes(op.output(i))});
  }
  return kernel;
}

/// binary_cross_entropy_with_logits: 1.13 (1 - t) * x + max(-x, 0) + log(..) in pieces, 2.x by log_sigmoid.
template <Torch torch>
Kernel bce_loss(const OpView& op) {
  const std::int64_t n = elements(op.input(0)), size = bytes(op.input(0));
  Draft k(op);
  const auto temp = [&] { return k.temp("term", size); };
  std::vector<std::int32_t> left;
  if constexpr (torch == Torch::cpu_1_13) {
    const std::int32_t a = temp(), b = temp(), c = temp(), d = temp(), e = temp();
    k.free_temp(e).free_temp(d).free_temp(c);
    left = {a, b};
  } else {
    const std::int32_t a = temp(), b = temp();
    k.free_temp(b);
    const std::int32_t c = temp();
    left = {c, a};
  }
  k.outputs();
  Number mean(k, torch);
  k.run();
  mean.end();
  for (const std::int32_t term : left) k.free_temp(term);
  k.save_input(0).save_input(1).backward().gradient(0);
  Number divisor(k, torch);
  k.run();
  divisor.end();
  return k.other_flops(product(op, 6, n), product(op, 3, n)).finish();
}

/// Statistics a group, two for each image and group inside backward.
Kernel group_norm(const OpView& op) {
  const Tensor& x = op.input(0);
  const std::int64_t images = x.shape.at(0), groups = op.op.attributes.heads, channels = x.shape.at(1);
  const std::int64_t n = elements(x), element = bytes_per_element(x.dtype);
  Draft k(op);
  k.outputs();
  const std::int32_t mean = k.temp("mean", element * images * groups);
  const std::int32_t rstd = k.temp("rstd", element * images * groups);
  k.run().save_input(0).save_input_for(1, 0).save_temp(mean).save_temp(rstd);
  k.backward().gradient(0).gradient(1).gradient(2);
  const std::int32_t first = k.temp("sums", element * images * channels);
  const std::int32_t second = k.temp("sums", element * images * channels);
  k.run().free_temp(second).free_temp(first);
  return k.other_flops(product(op, 8, n), product(op, 14, n)).finish();
}

/// Training. Two dimensions are rows of channels and sum in a buffer of their own; backward makes dX twice and throws
/// the first away.
template <Torch torch>
Kernel batch_norm(const OpView& op) {
  const Tensor& x = op.input(0);
  const std::int64_t n = elements(x), row = bytes_per_element(x.dtype) * x.shape.at(1);
  const bool rows_of_channels = x.shape.size() == 2;
  Draft k(op);
  if constexpr (torch != Torch::cpu_1_13) k.outputs();
  const std::int32_t mean = k.temp("mean", row), deviation = k.temp("invstd", row);
  std::vector<std::int32_t> sums;
  for (int i = 0; i < (rows_of_channels ? 3 : 2); ++i) sums.push_back(k.temp("sums", row));
  std::for_each(sums.rbegin(), sums.rend(), [&](std::int32_t sum) { k.free_temp(sum); });
  if constexpr (torch == Torch::cpu_1_13) k.outputs();
  const std::int32_t alpha = k.temp("alpha", row), beta = k.temp("beta", row);
  k.run().free_temp(beta).free_temp(alpha).save_input(0);
  if constexpr (torch == Torch::cpu_1_13)
    k.save_input(1).save_input(3).save_input(4);
  else
    k.save_input(3).save_input(4).save_input(1);
  k.save_temp(mean).save_temp(deviation).backward();
  const std::int32_t thrown_away = k.temp("unused_gradient", bytes(x));
  k.gradient(1).gradient(2).gradient(0).free_temp(thrown_away);
  if (rows_of_channels) {
    const std::int32_t buffer = k.temp("buffer", 2 * row);
    k.run().free_temp(buffer);
  } else {
    k.run();
  }
  return k.other_flops(product(op, 8, n), product(op, 14, n)).finish();
}

template <Torch torch>
void set(RuleTable& rules) {
  for (const Formula& row : formulas) rule(rules, row.kind) = formula<torch>;
  rule(rules, OpKind::clamp) = clamp<torch>;
  rule(rules, OpKind::add_scalar) = add_scalar<torch>;
  rule(rules, OpKind::sub_from) = sub_from<torch>;
  rule(rules, OpKind::mul) = mul<torch>;
  rule(rules, OpKind::div) = div<torch>;
  rule(rules, OpKind::sub) = sub;
  rule(rules, OpKind::where) = where<torch>;
  rule(rules, OpKind::mean) = mean<torch>;
  rule(rules, OpKind::gather) = gather<torch>;
  rule(rules, OpKind::index_add) = index_add;
  rule(rules, OpKind::max_pool) = max_pool;
  rule(rules, OpKind::avg_pool) = avg_pool;
  rule(rules, OpKind::compare) = compare<torch>;
  rule(rules, OpKind::view) = view;
  rule(rules, OpKind::split) = split;
  rule(rules, OpKind::bce_loss) = bce_loss<torch>;
  rule(rules, OpKind::group_norm) = group_norm;
  rule(rules, OpKind::batch_norm) = batch_norm<torch>;
}

}  // namespace

void set_torch_rules(RuleTable& rules, Torch torch) {
  switch (torch) {
    case Torch::cpu_1_13:
      return set<Torch::cpu_1_13>(rules);
    case Torch::cpu_2_6:
      return set<Torch::cpu_2_6>(rules);
    case Torch::cuda:
      return set<Torch::cuda>(rules);
  }
}

}  // namespace tidemark::kernels
