#include "ops.hpp"

#include <limits>
#include <optional>
#include <stdexcept>

#include "kernels.hpp"

namespace tidemark::native::ops {
namespace {

/// Rows of a tensor whose last dimension lies side by side.
std::int64_t rows(const Dims& shape) { return element_count(shape) / shape.back(); }

Dims with_last(Dims shape, std::int64_t last) {
  shape[shape.size - 1] = last;
  return shape;
}

void multiply(Node& node, kernels::Matrix a, kernels::Matrix b, float* c, std::int64_t m, std::int64_t n,
              std::int64_t k) {
  kernels::multiply(a, b, c, n, m, n, k);
  node.count_flops(kernels::multiply_flops(m, n, k));
}

// ---- tables

void embedding_forward(Node& node) {
  const Tensor& ids = node.operand(0);
  const Tensor& table = node.operand(1);
  const std::int64_t width = table.shape()[1];
  Tensor& out = node.make_output({ids.shape()[0], ids.shape()[1], width});
  node.keep_operand(0);
  kernels::embedding(ids.data_as<std::int64_t>(), table.data(), out.data(), ids.elements(), width);
}

void embedding_backward(Node& node) {
  node.begin_backward();
  const Tensor& ids = node.kept_operand(0);
  Tensor& gtable = node.make_gradient(1);
  kernels::embedding_backward(ids.data_as<std::int64_t>(), node.incoming().data(), gtable.data(), gtable.shape()[0],
                              ids.elements(), gtable.shape()[1]);
}

// ---- sums

void add_forward(Node& node) {
  const Tensor& x = node.operand(0);
  const Tensor& y = node.operand(1);
  Tensor& out = node.make_output(x.shape());
  const std::int64_t part = y.elements();
  for (std::int64_t begin = 0; begin < x.elements(); begin += part)
    kernels::add(x.data() + begin, y.data(), out.data() + begin, part);
}

/// The same gradient goes to both; one that was repeated gets its sum.
void add_backward(Node& node) {
  const Tensor& g = node.incoming();
  const std::int64_t part = element_count(node.operand_shape(1));
  node.hand_on(0, g);
  if (part == g.elements()) return node.hand_on(1, g);
  node.begin_backward();
  kernels::sum_rows(g.data(), node.make_gradient(1).data(), g.elements() / part, part);
}

// ---- norm

void layer_norm_forward(Node& node) {
  const Tensor& x = node.operand(0);
  const std::int64_t n = rows(x.shape());
  Tensor& out = node.make_output(x.shape());
  Tensor& mean = node.make_buffer(0, ".mean", {n});
  Tensor& rstd = node.make_buffer(1, ".rstd", {n});
  node.keep_operand(0);
  node.keep_operand(1);
  node.keep_buffer(0);
  node.keep_buffer(1);
  kernels::layer_norm(x.data(), node.operand(1).data(), node.operand(2).data(), out.data(), mean.data(), rstd.data(), n,
                      x.shape().back());
}

void layer_norm_backward(Node& node) {
  node.begin_backward();
  const Tensor& x = node.kept_operand(0);
  Tensor& gx = node.make_gradient(0);
  Tensor& gweight = node.make_gradient(1);
  Tensor& gbias = node.make_gradient(2);
  kernels::layer_norm_backward(x.data(), node.kept_operand(1).data(), node.kept_buffer(0).data(),
                               node.kept_buffer(1).data(), node.incoming().data(), gx.data(), gweight.data(),
                               gbias.data(), rows(x.shape()), x.shape().back());
}

// ---- products

void linear_forward(Node& node) {
  const Tensor& x = node.operand(0);
  const Tensor& weight = node.operand(1);
  const std::int64_t m = rows(x.shape()), in = weight.shape()[1], out_width = weight.shape()[0];
  Tensor& out = node.make_output(with_last(x.shape(), out_width));
  node.keep_operand(0);
  node.keep_operand(1);
  multiply(node, {x.data(), in, false}, {weight.data(), in, true}, out.data(), m, out_width, in);
  if (node.operands() > 2) kernels::add_bias(out.data(), node.operand(2).data(), out.data(), m, out_width);
}

void linear_backward(Node& node) {
  node.begin_backward();
  const Tensor& x = node.kept_operand(0);
  const Tensor& weight = node.kept_operand(1);
  const Tensor& g = node.incoming();
  const std::int64_t m = rows(x.shape()), in = weight.shape()[1], out_width = weight.shape()[0];
  Tensor& gweight = node.make_gradient(1);
  Tensor& gx = node.make_gradient(0);
  multiply(node, {g.data(), out_width, true}, {x.data(), in, false}, gweight.data(), out_width, in, m);
  multiply(node, {g.data(), out_width, false}, {weight.data(), in, false}, gx.data(), m, in, out_width);
  if (node.operands() > 2) kernels::sum_rows(g.data(), node.make_gradient(2).data(), m, out_width);
}

/// The last two of four dimensions, of one batch entry, as BLAS reads them.
kernels::Matrix matrix(const Tensor& x, std::int64_t i, std::int64_t j) {
  const Dims& shape = x.shape();
  const Dims& strides = x.strides();
  const float* data = x.data() + i * strides[0] + j * strides[1];
  if (strides[3] == 1 && (strides[2] >= shape[3] || shape[2] == 1))
    return {data, std::max(strides[2], shape[3]), false};
  if (strides[2] == 1 && (strides[3] >= shape[2] || shape[3] == 1)) return {data, std::max(strides[3], shape[2]), true};
  if (shape[3] == 1) return {data, strides[2], false};
  if (shape[2] == 1) return {data, strides[3], true};
  throw std::logic_error("neither rows nor columns lie side by side");
}

kernels::Matrix flipped(kernels::Matrix matrix) {
  matrix.transposed = !matrix.transposed;
  return matrix;
}

float* entry(const Tensor& x, std::int64_t i, std::int64_t j) {
  return x.data() + i * x.strides()[0] + j * x.strides()[1];
}

void product_forward(Node& node) {
  const Tensor& a = node.operand(0);
  const Tensor& b = node.operand(1);
  const Dims shape{a.shape()[0], a.shape()[1], a.shape()[2], b.shape()[3]};
  Tensor& out = node.make_output(shape);
  node.keep_operand(1);
  node.keep_operand(0);
  for (std::int64_t i = 0; i < shape[0]; ++i)
    for (std::int64_t j = 0; j < shape[1]; ++j)
      multiply(node, matrix(a, i, j), matrix(b, i, j), entry(out, i, j), shape[2], shape[3], a.shape()[3]);
}

void product_backward(Node& node) {
  node.begin_backward();
  const Tensor& a = node.kept_operand(0);
  const Tensor& b = node.kept_operand(1);
  const Tensor& g = node.incoming();
  Tensor& gb = node.make_gradient(1);
  Tensor& ga = node.make_gradient(0);
  const std::int64_t m = a.shape()[2], k = a.shape()[3], n = b.shape()[3];
  for (std::int64_t i = 0; i < a.shape()[0]; ++i)
    for (std::int64_t j = 0; j < a.shape()[1]; ++j) {
      multiply(node, flipped(matrix(a, i, j)), matrix(g, i, j), entry(gb, i, j), k, n, m);
      multiply(node, matrix(g, i, j), flipped(matrix(b, i, j)), entry(ga, i, j), m, k, n);
    }
}

// ---- views

void split_forward(Node& node) {
  const Tensor& x = node.operand(0);
  const std::int64_t part = x.shape().back() / 3;
  for (int i = 0; i < 3; ++i) node.make_view(i, with_last(x.shape(), part), x.strides(), i * part);
}

/// The parts' gradients side by side again.
void split_backward(Node& node) {
  node.begin_backward();
  Tensor& gx = node.make_gradient(0);
  for (int i = 0; i < 3; ++i) {
    const Tensor& g = node.incoming(i);
    Node::copy_into(g, gx.view(gx.name(), g.shape(), gx.strides(), i * g.shape().back()));
  }
}

/// Strides under which the same memory has another shape; nothing where it must be copied.
std::optional<Dims> strides_as(const Tensor& x, const Dims& shape) {
  Dims strides = shape;
  std::size_t to = shape.size;
  std::size_t from = x.shape().size;
  while (from > 0) {
    // A group of dimensions that lie in memory as one, each a multiple of the next.
    std::int64_t elements = 1;
    std::int64_t stride = x.strides()[from - 1];
    const std::int64_t step = stride;
    do {
      elements *= x.shape()[--from];
      stride = elements * step;
    } while (from > 0 && (x.shape()[from - 1] == 1 || x.strides()[from - 1] == stride));
    std::int64_t covered = 1;
    while (to > 0 && (covered < elements || shape[to - 1] == 1)) {
      strides[--to] = covered * step;
      covered *= shape[to];
    }
    if (covered != elements) return std::nullopt;
  }
  return strides;
}

void reshape_forward(Node& node) {
  const Dims& shape = node.settings().shape;
  const std::optional<Dims> strides = strides_as(node.operand(0), shape);
  if (!strides) throw std::logic_error("a reshape of what must be copied first");
  node.make_view(0, shape, *strides);
}

/// Where the gradient does not lie as its operand did, it is copied.
void reshape_backward(Node& node) {
  const Tensor& g = node.incoming();
  const Dims& shape = node.operand_shape(0);
  if (const std::optional<Dims> strides = strides_as(g, shape)) {
    node.hand_on(0, g.view(g.name(), shape, *strides));
    return;
  }
  Tensor copy = node.copied(g, 0);
  node.hand_on(0, copy.view(copy.name(), shape, row_major_strides(shape)));
}

Tensor swapped(const Node& node, const Tensor& x) {
  const auto [a, b] = node.settings().swap;
  Dims shape = x.shape(), strides = x.strides();
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return x.view(x.name(), shape, strides);
}

void transpose_forward(Node& node) {
  const Tensor out = swapped(node, node.operand(0));
  node.make_view(0, out.shape(), out.strides());
}

void transpose_backward(Node& node) { node.hand_on(0, swapped(node, node.incoming())); }

void row_major_forward(Node& node) {
  const Tensor& x = node.operand(0);
  Node::copy_into(x, node.make_output(x.shape()));
}

void row_major_backward(Node& node) { node.hand_on(0, node.incoming()); }

// ---- element by element

void scale_forward(Node& node) {
  const Tensor& x = node.operand(0);
  kernels::scale(x.data(), node.settings().factor, node.make_output(x.shape()).data(), x.elements());
}

void scale_backward(Node& node) {
  node.begin_backward();
  const Tensor& g = node.incoming();
  kernels::scale(g.data(), node.settings().factor, node.make_gradient(0).data(), g.elements());
}

void causal_mask_forward(Node& node) {
  const Tensor& x = node.operand(0);
  const Tensor& mask = node.operand(1);
  Tensor& out = node.make_output(x.shape());
  node.keep_operand(1);
  kernels::masked_fill(x.data(), mask.data_as<std::uint8_t>(), -std::numeric_limits<float>::infinity(), out.data(),
                       x.elements(), mask.elements());
}

void causal_mask_backward(Node& node) {
  node.begin_backward();
  const Tensor& g = node.incoming();
  const Tensor& mask = node.kept_operand(1);
  kernels::masked_fill(g.data(), mask.data_as<std::uint8_t>(), 0, node.make_gradient(0).data(), g.elements(),
                       mask.elements());
}

void softmax_forward(Node& node) {
  const Tensor& x = node.operand(0);
  Tensor& out = node.make_output(x.shape());
  node.keep_output();
  kernels::softmax(x.data(), out.data(), rows(x.shape()), x.shape().back());
}

void softmax_backward(Node& node) {
  node.begin_backward();
  const Tensor& out = node.kept_output();
  kernels::softmax_backward(out.data(), node.incoming().data(), node.make_gradient(0).data(), rows(out.shape()),
                            out.shape().back());
}

void gelu_forward(Node& node) {
  const Tensor& x = node.operand(0);
  Tensor& out = node.make_output(x.shape());
  node.keep_operand(0);
  kernels::gelu(x.data(), out.data(), x.elements());
}

void gelu_backward(Node& node) {
  node.begin_backward();
  const Tensor& x = node.kept_operand(0);
  kernels::gelu_backward(x.data(), node.incoming().data(), node.make_gradient(0).data(), x.elements());
}

// ---- loss

void cross_entropy_forward(Node& node) {
  const Tensor& logits = node.operand(0);
  const std::int64_t n = rows(logits.shape());
  Tensor& loss = node.make_output({});
  Tensor& logsumexp = node.make_buffer(0, ".logsumexp", {n});
  node.keep_operand(0);
  node.keep_operand(1);
  node.keep_buffer(0);
  kernels::cross_entropy(logits.data(), node.operand(1).data_as<std::int64_t>(), loss.data(), logsumexp.data(), n,
                         logits.shape().back());
}

void cross_entropy_backward(Node& node) {
  node.begin_backward();
  const Tensor& logits = node.kept_operand(0);
  kernels::cross_entropy_backward(logits.data(), node.kept_operand(1).data_as<std::int64_t>(),
                                  node.kept_buffer(0).data(), node.incoming().data(), node.make_gradient(0).data(),
                                  rows(logits.shape()), logits.shape().back());
}

}  // namespace

const Rule embedding{embedding_forward, embedding_backward};
const Rule add{add_forward, add_backward};
const Rule layer_norm{layer_norm_forward, layer_norm_backward};
const Rule linear{linear_forward, linear_backward, false, true};
const Rule split{split_forward, split_backward, true};
const Rule reshape{reshape_forward, reshape_backward, true};
const Rule transpose{transpose_forward, transpose_backward, true};
const Rule row_major{row_major_forward, row_major_backward};
const Rule product{product_forward, product_backward};
const Rule scale{scale_forward, scale_backward};
const Rule causal_mask{causal_mask_forward, causal_mask_backward};
const Rule softmax{softmax_forward, softmax_backward};
const Rule gelu{gelu_forward, gelu_backward};
const Rule cross_entropy{cross_entropy_forward, cross_entropy_backward};

bool is_row_major(const Tensor& tensor) {
  const Dims expected = row_major_strides(tensor.shape());
  for (std::size_t i = 0; i < expected.size; ++i)
    if (tensor.shape()[i] != 1 && tensor.strides()[i] != expected[i]) return false;
  return true;
}

}  // namespace tidemark::native::ops
