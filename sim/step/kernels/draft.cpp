#include "draft.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "tidemark/base/errors.hpp"

namespace tidemark::kernels {

std::int64_t product(const OpView& op, std::int64_t a, std::int64_t b) {
  const std::optional<std::int64_t> value = checked_product(a, b);
  if (!value) throw InputError("the bytes or FLOPs of '" + op.op.name + "' pass 2^63");
  return *value;
}

std::int64_t fits(const OpView& op, Flops flops) {
  if (flops.count > std::numeric_limits<std::int64_t>::max())
    throw InputError("the bytes or FLOPs of '" + op.op.name + "' pass 2^63");
  return static_cast<std::int64_t>(flops.count);
}

std::int64_t matmul_flops(const OpView& op, std::int64_t m, std::int64_t n, std::int64_t k) {
  return product(op, 2, product(op, m, product(op, n, k)));
}

// ProgramBuilder has checked that bytes of every tensor fit.
std::int64_t elements(const Tensor& tensor) { return element_count(tensor.shape).value_or(0); }
std::int64_t bytes(const Tensor& tensor) { return elements(tensor) * bytes_per_element(tensor.dtype); }
std::int64_t last_extent(const Tensor& tensor) { return tensor.shape.empty() ? 1 : tensor.shape.back(); }
std::int64_t rows(const Tensor& tensor) {
  const std::int64_t last = last_extent(tensor);
  return last == 0 ? 0 : elements(tensor) / last;
}

Draft& Draft::outputs() {
  for (std::size_t i = 0; i < op_.op.outputs.size(); ++i) output(i);
  return *this;
}

Draft& Draft::output(std::size_t i) {
  bool alias = false;
  for (std::size_t j = 0; j < op_.inputs(); ++j) alias = alias || op_.input(j).storage == op_.output(i).storage;
  if (!alias) script().push_back({Move::What::alloc, {Slot::Of::output, static_cast<std::int32_t>(i)}});
  return *this;
}

Draft& Draft::output_bytes(std::int64_t size) {
  kernel_.output_bytes = {Bytes{size}};
  return *this;
}

std::int32_t Draft::temp(std::string name, std::int64_t size, Category category) {
  const auto number = static_cast<std::int32_t>(kernel_.temps.size());
  kernel_.temps.push_back({std::move(name), Bytes{size}, category});
  script().push_back({Move::What::alloc, {Slot::Of::temp, number}});
  return number;
}

std::int32_t Draft::wrapped_number() {
  const std::int32_t number = temp("number", 8, Category::autograd_detail);
  kernel_.temps.back().wrapped_number = true;
  return number;
}

Draft& Draft::free_temp(std::int32_t number) {
  script().push_back({Move::What::free, {Slot::Of::temp, number}});
  return *this;
}

Draft& Draft::run() {
  script().push_back({Move::What::run, {}});
  return *this;
}

/// Of n bytes each rank keeps 1/ranks: all but that part passes its link, and twice in an all-reduce, which is a
/// reduce-scatter and an all-gather (Thakur et al. 2005, rings).
Draft& Draft::exchange(std::string_view how, std::int64_t size) {
  const std::int64_t ranks = op_.op.attributes.ranks;
  if (ranks == 1) return *this;
  const std::int64_t once = size - size / ranks;
  return link(how, how == "all_reduce" ? product(op_, 2, once) : once);
}

Draft& Draft::send_receive(std::int64_t size) { return link("send_receive", size); }

Draft& Draft::link(std::string_view how, std::int64_t linked) {
  script().push_back({Move::What::exchange, {Slot::Of::temp, static_cast<std::int32_t>(kernel_.exchanges.size())}});
  kernel_.exchanges.push_back({how, Bytes{linked}});
  return *this;
}

Draft& Draft::save_input(std::size_t i) {
  kernel_.saved.push_back({Saved::Of::input, static_cast<std::int32_t>(i)});
  return *this;
}

Draft& Draft::save_input_for(std::size_t i, std::size_t j) { return op_.needs_gradient(j) ? save_input(i) : *this; }

Draft& Draft::save_output(std::size_t i) {
  kernel_.saved.push_back({Saved::Of::output, static_cast<std::int32_t>(i)});
  return *this;
}

Draft& Draft::save_temp(std::int32_t number) {
  kernel_.saved.push_back({Saved::Of::temp, number});
  return *this;
}

Draft& Draft::backward() {
  in_backward_ = true;
  return *this;
}

Draft& Draft::gradient_of_bytes(std::size_t i, std::int64_t size) {
  if (!op_.needs_gradient(i)) return *this;
  const auto input = static_cast<std::int32_t>(i);
  kernel_.gradients.push_back({.input = input, .bytes = Bytes{size}});
  script().push_back({Move::What::alloc, {Slot::Of::grad, input}});
  return *this;
}

Draft& Draft::gradient(std::size_t i, Layout layout) {
  if (!op_.needs_gradient(i)) return *this;
  gradient_of_bytes(i, bytes(op_.input(i)));
  kernel_.gradients.back().layout = layout;
  return *this;
}

Draft& Draft::pass(std::size_t i, Layout layout, std::size_t from_output) {
  if (op_.needs_gradient(i))
    kernel_.gradients.push_back({.input = static_cast<std::int32_t>(i),
                                 .passes_through = true,
                                 .from_output = static_cast<std::int32_t>(from_output),
                                 .layout = layout});
  return *this;
}

Draft& Draft::over_saved(std::size_t i, std::size_t saved) {
  if (op_.needs_gradient(i))
    kernel_.gradients.push_back(
        {.input = static_cast<std::int32_t>(i), .over_saved = static_cast<std::int32_t>(saved)});
  return *this;
}

Draft& Draft::matmul_flops(std::int64_t forward, std::int64_t backward) {
  kernel_.forward_cost.matmul_flops = forward;
  kernel_.backward_cost.matmul_flops = backward;
  return *this;
}

Draft& Draft::other_flops(std::int64_t forward, std::int64_t backward) {
  kernel_.forward_cost.other_flops = forward;
  kernel_.backward_cost.other_flops = backward;
  return *this;
}

namespace {

/// Read and written: each script's kernel reads what it is given and writes what it allocates.
void count_moved(const OpView& op, Kernel& kernel) {
  const auto add = [&](Bytes& total, std::int64_t more) {
    const std::optional<std::int64_t> sum = checked_sum(total.count, more);
    if (!sum) throw InputError("the bytes moved by '" + op.op.name + "' pass 2^63");
    total = Bytes{*sum};
  };
  const auto runs = [](const std::vector<Move>& script) {
    return std::ranges::any_of(script, [](const Move& m) { return m.what == Move::What::run; });
  };
  Bytes& forward = kernel.forward_cost.moved;
  if (runs(kernel.forward)) {
    for (std::size_t i = 0; i < op.inputs(); ++i) add(forward, bytes(op.input(i)));
    for (std::size_t i = 0; i < op.op.outputs.size(); ++i) add(forward, bytes(op.output(i)));
    for (const Move& move : kernel.forward)
      if (move.what == Move::What::alloc && move.slot.of == Slot::Of::temp)
        add(forward, kernel.temps[static_cast<std::size_t>(move.slot.index)].bytes.count);
  }
  Bytes& backward = kernel.backward_cost.moved;
  if (runs(kernel.backward)) {
    for (std::size_t i = 0; i < op.op.outputs.size(); ++i) add(backward, bytes(op.output(i)));
    for (const Saved& saved : kernel.saved) {
      const auto i = static_cast<std::size_t>(saved.index);
      add(backward, saved.of == Saved::Of::input    ? bytes(op.input(i))
                    : saved.of == Saved::Of::output ? bytes(op.output(i))
                                                    : kernel.temps[i].bytes.count);
    }
    for (const GradientRule& gradient : kernel.gradients) add(backward, gradient.bytes.count);
    for (const Move& move : kernel.backward)
      if (move.what == Move::What::alloc && move.slot.of == Slot::Of::temp)
        add(backward, kernel.temps[static_cast<std::size_t>(move.slot.index)].bytes.count);
  }
}

}  // namespace

Kernel Draft::finish() {
  if (kernel_.gradients.empty()) {
    kernel_.saved.clear();
    kernel_.backward.clear();
    kernel_.backward_cost = {};
  }
  // Gradients are handed on in the order of PyTorch's edges: addmm's bias stands before its factors.
  const bool bias_first = op_.op.kind == OpKind::linear;
  std::ranges::stable_sort(kernel_.gradients, {},
                           [&](const GradientRule& rule) { return bias_first && rule.input == 2 ? -1 : rule.input; });
  count_moved(op_, kernel_);
  return std::move(kernel_);
}

/// Forward: scores and context. Backward: the scores again, dP, dQ, dK, dV (Dao et al. 2022). Causal kernels skip what
/// lies above the diagonal, counted as half of the square (flash-attention's own benchmark does the same).
AttentionFlops attention_flops(const OpView& op) {
  const Tensor& q = op.input(0);
  const std::int64_t keys = op.input(1).shape.at(2);
  const std::int64_t share = op.op.attributes.causal ? 2 : 1;
  const std::int64_t of_keys = matmul_flops(op, rows(q), keys, last_extent(q)) / share;
  const std::int64_t of_values = matmul_flops(op, rows(q), keys, last_extent(op.input(2))) / share;
  return {fits(op, Flops{Int128{of_keys} + of_values}), fits(op, Flops{3 * Int128{of_keys} + 2 * Int128{of_values}})};
}

}  // namespace tidemark::kernels
