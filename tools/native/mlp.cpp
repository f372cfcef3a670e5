#include "mlp.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "kernels.hpp"

namespace tidemark::native {
namespace {

/// A list's items go from the last to the first.
void clear(std::vector<Tensor>& list) {
  while (!list.empty()) list.pop_back();
}

kernels::Matrix matrix(const Tensor& tensor, bool transposed) {
  return {tensor.data(), tensor.shape().back(), transposed};
}

}  // namespace

void fill(const Tensor& tensor, std::int64_t seed, double scale) {
  float* data = tensor.data();
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    // The finalizer of splitmix64, and its upper 24 bits.
    auto bits = static_cast<std::uint64_t>(i + (seed << 32)) * 0x9e3779b97f4a7c15U;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9U;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
    data[i] = static_cast<float>((std::ldexp(static_cast<double>((bits ^ (bits >> 31)) >> 40), -24) - 0.5) * scale);
  }
}

Mlp::Mlp(Machine& machine, const MlpShape& shape) : machine_(machine), shape_(shape) {
  const double into_hidden = 3.0 / std::sqrt(static_cast<double>(shape.width));
  const double into_width = 3.0 / std::sqrt(static_cast<double>(shape.hidden));
  std::int64_t seed = 0;
  const auto filled = [&](Name name, Dims extents, Category category, double scale) {
    Tensor out = machine.allocate(name, extents, category);
    fill(out, seed++, scale);
    return out;
  };
  const auto parameter = [&](const char* part, Dims extents, double scale) {
    return filled({names_.back(), part}, extents, Category::parameter, scale);
  };
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    names_.push_back(machine.lasting("layers." + std::to_string(i)));
    Parameters& p = parameters_.emplace_back();
    p.w1 = parameter("w1", {shape.width, shape.hidden}, into_hidden);
    p.b1 = parameter("b1", {shape.hidden}, 0.5);
    p.w2 = parameter("w2", {shape.hidden, shape.width}, into_width);
    p.b2 = parameter("b2", {shape.width}, 0.5);
  }
  gradients_.resize(parameters_.size());
  x_ = filled({"", "x"}, {shape.rows, shape.width}, Category::input, 2.0);
  grad_output_ = filled({"", "grad_output"}, {shape.rows, shape.width}, Category::input, 2.0);
  for (Activations* lists : {&activations_, &rebuilt_}) {
    lists->boundaries.reserve(parameters_.size() + 1);
    lists->pre_activations.reserve(parameters_.size());
  }
  saved_inputs_.reserve(parameters_.size() + 1);
}

// ---- NumPy: one call, one op, one new array

Tensor Mlp::call(std::int64_t layer, const char* op, const char* result, Phase phase, Dims shape,
                 std::initializer_list<const Tensor*> reads, std::int64_t item_bytes) {
  const std::string_view scope = names_[static_cast<std::size_t>(layer)];
  machine_.begin_op({scope, op}, scope, phase);
  Tensor out = machine_.allocate({scope, result}, shape, Category::temporary, item_bytes);
  std::int64_t moved = out.bytes();
  for (const Tensor* read : reads) moved += read->bytes();
  machine_.record.count_moved(moved);
  return out;
}

/// a @ b
Tensor Mlp::product(std::int64_t layer, const char* op, const char* result, Phase phase, const Tensor& a,
                    bool a_transposed, const Tensor& b, bool b_transposed) {
  const std::int64_t m = a.shape()[a_transposed ? 1 : 0];
  const std::int64_t k = a.shape()[a_transposed ? 0 : 1];
  const std::int64_t n = b.shape()[b_transposed ? 0 : 1];
  Tensor out = call(layer, op, result, phase, {m, n}, {&a, &b});
  kernels::multiply(matrix(a, a_transposed), matrix(b, b_transposed), out.data(), n, m, n, k);
  machine_.record.count_flops(kernels::multiply_flops(m, n, k));
  machine_.record.touch_op();
  return out;
}

/// x @ w + b
Tensor Mlp::linear_forward(std::int64_t layer, const char* which, Phase phase, const Tensor& x, const Tensor& w,
                           const Tensor& b) {
  const bool first = std::string_view(which) == "fc1";
  Tensor made = product(layer, first ? "fc1.matmul" : "fc2.matmul", first ? "fc1.product" : "fc2.product", phase, x,
                        false, w, false);
  Tensor out = call(layer, first ? "fc1.bias" : "fc2.bias", first ? "h_pre" : "out", phase, made.shape(), {&made, &b});
  kernels::add_bias(made.data(), b.data(), out.data(), out.shape()[0], out.shape()[1]);
  machine_.record.touch_op();
  return out;  // the product, an expression's temporary, dies here
}

/// np.maximum(x, 0)
Tensor Mlp::relu(std::int64_t layer, Phase phase, const Tensor& x) {
  Tensor out = call(layer, "relu", "h", phase, x.shape(), {&x});
  kernels::relu(x.data(), out.data(), x.elements());
  machine_.record.touch_op();
  return out;
}

/// of.sum(axis=0)
Tensor Mlp::sum_rows(std::int64_t layer, const char* op, const char* result, const Tensor& of) {
  Tensor out = call(layer, op, result, Phase::backward, {of.shape()[1]}, {&of});
  kernels::sum_rows(of.data(), out.data(), of.shape()[0], of.shape()[1]);
  machine_.record.touch_op();
  return out;
}

// ---- the program

/// def layer_forward(x, w1, b1, w2, b2):
///     h = relu(linear_forward(x, w1, b1))
///     return linear_forward(h, w2, b2)          # the variant returns h_pre besides
Tensor Mlp::layer_forward(std::int64_t layer, Phase phase, const Tensor& x, std::vector<Tensor>* pre_activations) {
  const Parameters& p = parameters_[static_cast<std::size_t>(layer)];
  Tensor h_pre = linear_forward(layer, "fc1", phase, x, p.w1, p.b1);
  Tensor h = relu(layer, phase, h_pre);
  if (pre_activations != nullptr) {
    h_pre.set_category(Category::activation);
    pre_activations->push_back(std::move(h_pre));
  } else {
    h_pre.let_go();
  }
  Tensor out = linear_forward(layer, "fc2", phase, h, p.w2, p.b2);
  out.set_category(Category::activation);
  return out;
}

/// def model_forward(x, params):
///     activations = [x]
///     h = x
///     for w1, b1, w2, b2 in params:
///         h = layer_forward(h, w1, b1, w2, b2)
///         activations.append(h)
///     return h, activations
void Mlp::model_forward(Phase phase, const Tensor& x, std::int64_t begin, std::int64_t end, Activations& activations) {
  activations.boundaries.push_back(x);
  for (std::int64_t i = begin; i < end; ++i)
    activations.boundaries.push_back(layer_forward(
        i, phase, activations.boundaries.back(), shape_.save_pre_activation ? &activations.pre_activations : nullptr));
}

/// def model_backward(grad_output, activations, params):
///     grads = [None] * len(params)
///     g = grad_output
///     for i in range(len(params) - 1, -1, -1):
///         w1, b1, w2, b2 = params[i]
///         x_in = activations[i]
///         h_pre = linear_forward(x_in, w1, b1)
///         h = relu(h_pre)
///         gh = g @ w2.T
///         gw2 = h.T @ g
///         gb2 = g.sum(axis=0)
///         g_pre = gh * (h_pre > 0)
///         gx = g_pre @ w1.T
///         gw1 = x_in.T @ g_pre
///         gb1 = g_pre.sum(axis=0)
///         grads[i] = (gw1, gb1, gw2, gb2)
///         g = gx
///     return g, grads
Tensor Mlp::model_backward(const Tensor& grad_output, const Activations& kept, std::int64_t begin, std::int64_t end) {
  constexpr Phase phase = Phase::backward;
  Tensor g = grad_output;
  Tensor h_pre, h, gh, g_pre, gx;
  for (std::int64_t i = end - 1; i >= begin; --i) {
    const auto at = static_cast<std::size_t>(i - begin);
    const Parameters& p = parameters_[static_cast<std::size_t>(i)];
    Gradients& grads = gradients_[static_cast<std::size_t>(i)];
    const Tensor& x_in = kept.boundaries[at];
    h_pre = shape_.save_pre_activation ? kept.pre_activations[at] : linear_forward(i, "fc1", phase, x_in, p.w1, p.b1);
    h = relu(i, phase, h_pre);
    gh = product(i, "gh", "gh", phase, g, false, p.w2, true);
    grads.w2 = product(i, "gw2", "w2.grad", phase, h, true, g, false);
    grads.b2 = sum_rows(i, "gb2", "b2.grad", g);
    Tensor mask = call(i, "mask", "mask", phase, h_pre.shape(), {&h_pre}, sizeof(std::uint8_t));
    kernels::is_positive(h_pre.data(), mask.data_as<std::uint8_t>(), h_pre.elements());
    machine_.record.touch_op();
    Tensor masked = call(i, "g_pre", "g_pre", phase, gh.shape(), {&gh, &mask});
    kernels::multiply_mask(gh.data(), mask.data_as<std::uint8_t>(), masked.data(), gh.elements());
    machine_.record.touch_op();
    mask.let_go();
    g_pre = std::move(masked);
    gx = product(i, "gx", "x.grad", phase, g_pre, false, p.w1, true);
    grads.w1 = product(i, "gw1", "w1.grad", phase, x_in, true, g_pre, false);
    grads.b1 = sum_rows(i, "gb1", "b1.grad", g_pre);
    for (const Tensor* gradient : {&grads.w1, &grads.b1, &grads.w2, &grads.b2})
      gradient->set_category(Category::gradient);
    g = gx;
  }
  if (machine_.swap_frees)
    let_go(h, h_pre, gh, g_pre, gx);
  else
    let_go(h_pre, h, gh, g_pre, gx);
  return g;
}

/// def model_forward_checkpointed(x, params, k):
///     saved_inputs = [x]
///     h = x
///     for i, (w1, b1, w2, b2) in enumerate(params):
///         h = layer_forward(h, w1, b1, w2, b2)
///         if (i + 1) % k == 0:
///             saved_inputs.append(h)
///     return h, saved_inputs
Tensor Mlp::model_forward_checkpointed(std::int64_t segment) {
  saved_inputs_.push_back(x_);
  Tensor h = x_;
  for (std::int64_t i = 0; i < shape_.layers; ++i) {
    h = layer_forward(i, Phase::forward, h, nullptr);
    if ((i + 1) % segment == 0) saved_inputs_.push_back(h);
  }
  return h;
}

/// def model_backward_checkpointed(grad_output, saved_inputs, params, k):
///     grads = [None] * len(params)
///     g = grad_output
///     segments = [(j * k, min((j + 1) * k, len(params))) for j in range(len(saved_inputs))]
///     for seg_idx in range(len(saved_inputs) - 1, -1, -1):
///         start, end = segments[seg_idx]
///         if start >= end:
///             continue
///         x_in = saved_inputs[seg_idx]
///         _, seg_acts = model_forward(x_in, params[start:end])
///         g, seg_grads = model_backward(g, seg_acts, params[start:end])
///         for j, gr in enumerate(seg_grads):
///             grads[start + j] = gr
///     return g, grads
Tensor Mlp::model_backward_checkpointed(std::int64_t segment) {
  Tensor g = grad_output_;
  for (std::size_t j = saved_inputs_.size(); j-- > 0;) {
    const std::int64_t start = static_cast<std::int64_t>(j) * segment;
    const std::int64_t end = std::min(start + segment, shape_.layers);
    if (start >= end) continue;
    model_forward(Phase::recompute, saved_inputs_[j], start, end, rebuilt_);
    clear(activations_.boundaries);
    clear(activations_.pre_activations);
    std::swap(activations_, rebuilt_);
    g = model_backward(g, activations_, start, end);
  }
  clear(activations_.boundaries);
  clear(activations_.pre_activations);
  return g;
}

/// del g, grads: the list's tuples from the last to the first, each from its last item on.
void Mlp::delete_results() {
  machine_.begin_op({"", "delete_gradients"}, "", Phase::optimizer);
  g_.let_go();
  for (std::size_t i = gradients_.size(); i-- > 0;) {
    Gradients& grads = gradients_[i];
    let_go(grads.b2, grads.w2, grads.b1, grads.w1);
  }
  machine_.record.touch_op();
}

void Mlp::step(int number, std::int64_t segment, bool hold_out) {
  machine_.record.begin_step(number);
  if (number > 0) delete_results();
  if (segment == 0) {
    model_forward(Phase::forward, x_, 0, shape_.layers, activations_);
    g_ = model_backward(grad_output_, activations_, 0, shape_.layers);
    clear(activations_.boundaries);
    clear(activations_.pre_activations);
    return;
  }
  Tensor out = model_forward_checkpointed(segment);
  if (!hold_out) out.let_go();
  g_ = model_backward_checkpointed(segment);
  out.let_go();
  clear(saved_inputs_);
}

std::vector<float> Mlp::evaluate() {
  model_forward(Phase::forward, x_, 0, shape_.layers, activations_);
  const Tensor& out = activations_.boundaries.back();
  std::vector<float> values(out.data(), out.data() + out.elements());
  clear(activations_.boundaries);
  clear(activations_.pre_activations);
  return values;
}

}  // namespace tidemark::native
