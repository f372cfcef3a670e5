#include "tidemark/program/shapes.hpp"

#include <algorithm>
#include <utility>

#include "tidemark/base/errors.hpp"
#include "tidemark/program/strides.hpp"

namespace tidemark {
namespace {

[[noreturn]] void misfit(OpKind kind, const std::string& needs, std::span<const Tensor> operands) {
  std::string got;
  for (const Tensor& operand : operands) got += (got.empty() ? "" : " and ") + to_string(operand.shape);
  throw InputError(std::string(to_string(kind)) + " needs " + needs + ", not " + got);
}

void require(bool fits, OpKind kind, const std::string& needs, std::span<const Tensor> operands) {
  if (!fits) misfit(kind, needs, operands);
}

Result fresh(Shape shape, DType dtype) {
  Shape strides = contiguous_strides(shape);
  return {std::move(shape), std::move(strides), dtype, false};
}

/// Pointwise results keep a dense operand's order of dimensions (E10).
Result like(const Tensor& operand) {
  Result out = fresh(operand.shape, operand.dtype);
  if (is_dense(operand.shape, operand.strides)) out.strides = operand.strides;
  return out;
}

Result broadcast(OpKind kind, std::span<const Tensor> operands) {
  const std::string needs = "shapes that broadcast";
  require(operands.size() == 2, kind, "two operands", operands);
  const Shape& a = operands[0].shape;
  const Shape& b = operands[1].shape;
  Shape out(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const std::int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    require(x == y || x == 1 || y == 1, kind, needs, operands);
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  for (const Tensor& operand : operands)
    if (operand.shape == out) return like(operand);
  return fresh(std::move(out), operands[0].dtype);
}

Result product(OpKind kind, std::span<const Tensor> operands) {
  const std::size_t x = kind == OpKind::addmm ? 1 : 0;
  const bool transposed = kind == OpKind::linear;
  require(operands.size() >= x + 2, kind, "its operands", operands);
  const Shape& a = operands[x].shape;
  const Shape& w = operands[x + 1].shape;
  require(!a.empty() && w.size() == 2 && a.back() == w[transposed ? 1 : 0], kind,
          transposed ? "[.., k] and [n, k]" : "[.., k] and [k, n]", operands);
  Shape out = a;
  out.back() = w[transposed ? 0 : 1];
  const std::size_t bias = kind == OpKind::addmm ? 0 : 2;
  const bool has_bias = kind == OpKind::addmm || (kind == OpKind::linear && operands.size() > 2);
  require(!has_bias || operands[bias].shape == Shape{out.back()}, kind, "a bias of [n]", operands);
  return fresh(std::move(out), operands[x].dtype);
}

Result batched_product(std::span<const Tensor> operands) {
  require(operands.size() == 2 && operands[0].shape.size() == 3 && operands[1].shape.size() == 3 &&
              operands[0].shape[0] == operands[1].shape[0] && operands[0].shape[2] == operands[1].shape[1],
          OpKind::bmm, "[b, m, k] and [b, k, n]", operands);
  return fresh({operands[0].shape[0], operands[0].shape[1], operands[1].shape[2]}, operands[0].dtype);
}

/// [n, classes, ..] and targets [n, ..]: a class for each pixel.
bool is_image_of_classes(const Shape& prediction, const Shape& target) {
  if (prediction.size() < 3 || prediction.size() != target.size() + 1) return false;
  Shape without = prediction;
  without.erase(without.begin() + 1);
  return without == target;
}

Result loss(OpKind kind, std::span<const Tensor> operands) {
  require(operands.size() >= 2, kind, "a prediction and a target", operands);
  const bool classes = kind == OpKind::nll_loss || kind == OpKind::cross_entropy;
  const std::optional<std::int64_t> rows = element_count(operands[1].shape);
  const bool fits = classes ? is_image_of_classes(operands[0].shape, operands[1].shape) ||
                                  (!operands[0].shape.empty() &&
                                   element_count(operands[0].shape) == checked_product(*rows, operands[0].shape.back()))
                            : operands[0].shape == operands[1].shape;
  require(fits, kind,
          classes ? "[.., classes] and one target a row, or [n, classes, ..] and [n, ..]" : "two equal shapes",
          operands);
  return fresh({}, operands[0].dtype);
}

std::size_t dimension(OpKind kind, const Tensor& operand, const std::vector<std::int64_t>& dims, std::size_t i,
                      std::int64_t more = 0) {
  const auto rank = static_cast<std::int64_t>(operand.shape.size()) + more;
  const std::int64_t dim = i < dims.size() ? dims[i] : -1;
  const std::int64_t index = dim < 0 ? dim + rank : dim;
  if (index < 0 || index >= rank)
    throw InputError(std::string(to_string(kind)) + " names dimension " + std::to_string(dim) +
                     " of a tensor of shape " + to_string(operand.shape));
  return static_cast<std::size_t>(index);
}

Result reshape(const Tensor& operand, const Shape& shape) {
  const auto strides = view_strides(operand.shape, operand.strides, shape);
  if (!strides)
    throw InputError("a view of shape " + to_string(shape) + " cannot be had of a tensor of shape " +
                     to_string(operand.shape) + " and strides " + to_string(operand.strides) + " without a copy");
  return {shape, *strides, operand.dtype, true};
}

/// All dimensions in another order.
Result permute(const Tensor& operand, const std::vector<std::int64_t>& dims) {
  Result out{{}, {}, operand.dtype, true};
  std::vector<bool> seen(operand.shape.size(), false);
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const std::size_t d = dimension(OpKind::view, operand, dims, i);
    if (seen[d]) break;
    seen[d] = true;
    out.shape.push_back(operand.shape[d]);
    out.strides.push_back(operand.strides[d]);
  }
  if (out.shape.size() != operand.shape.size())
    throw InputError("a permutation names each of the " + std::to_string(operand.shape.size()) + " dimensions once");
  return out;
}

/// Extents of 1, and dimensions put before the first, repeat with stride 0.
Result expand(const Tensor& operand, const Shape& shape) {
  const std::size_t more = shape.size() - std::min(shape.size(), operand.shape.size());
  bool fits = shape.size() >= operand.shape.size();
  Result out{shape, Shape(shape.size(), 0), operand.dtype, true};
  for (std::size_t d = more; d < shape.size() && fits; ++d) {
    const std::int64_t extent = operand.shape[d - more];
    fits = extent == shape[d] || extent == 1;
    if (extent == shape[d]) out.strides[d] = operand.strides[d - more];
  }
  if (!fits)
    throw InputError("a tensor of shape " + to_string(operand.shape) + " does not expand to " + to_string(shape));
  return out;
}

Result view(const Tensor& operand, const ResultRequest& request) {
  Result out{operand.shape, operand.strides, operand.dtype, true};
  const auto dim = [&](std::size_t i) { return dimension(OpKind::view, operand, request.dims, i); };
  switch (request.view) {
    case ViewKind::slice:
      if (request.sizes.size() != 2 || request.sizes[0] < 0 || request.sizes[1] <= 0 ||
          request.sizes[0] > operand.shape[dim(0)] - request.sizes[1])
        throw InputError("a slice needs [start, length] inside dimension " + std::to_string(dim(0)) + " of " +
                         to_string(operand.shape));
      out.shape[dim(0)] = request.sizes[1];
      return out;
    case ViewKind::select:
      if (request.sizes.size() != 1 || request.sizes[0] < 0 || request.sizes[0] >= operand.shape[dim(0)])
        throw InputError("a select needs an index inside dimension " + std::to_string(dim(0)) + " of " +
                         to_string(operand.shape));
      out.shape.erase(out.shape.begin() + static_cast<std::ptrdiff_t>(dim(0)));
      out.strides.erase(out.strides.begin() + static_cast<std::ptrdiff_t>(dim(0)));
      return out;
    case ViewKind::transpose:
      if (request.dims.size() != 2) throw InputError("a transpose needs 'dims': two dimensions");
      std::swap(out.shape[dim(0)], out.shape[dim(1)]);
      std::swap(out.strides[dim(0)], out.strides[dim(1)]);
      return out;
    case ViewKind::permute:
      return permute(operand, request.dims);
    case ViewKind::expand:
      return expand(operand, request.shape.value_or(operand.shape));
    case ViewKind::reshape:
      break;
  }
  return reshape(operand, request.shape.value_or(operand.shape));
}

std::vector<Result> split(const Tensor& operand, const ResultRequest& request) {
  const std::size_t dim = dimension(OpKind::split, operand, request.dims, 0);
  std::int64_t total = 0;
  std::vector<Result> out;
  for (const std::int64_t size : request.sizes) {
    total += size;
    Result& part = out.emplace_back(Result{operand.shape, operand.strides, operand.dtype, true});
    part.shape[dim] = size;
  }
  if (total != operand.shape[dim])
    throw InputError("the parts of a split add up to " + std::to_string(total) + ", the dimension has " +
                     std::to_string(operand.shape[dim]));
  return out;
}

/// Every index of a dimension on its own.
std::vector<Result> unbind(const Tensor& operand, const ResultRequest& request) {
  const std::vector<std::int64_t> first = {0};
  const std::size_t dim = dimension(OpKind::split, operand, request.dims.empty() ? first : request.dims, 0);
  Result part{operand.shape, operand.strides, operand.dtype, true};
  part.shape.erase(part.shape.begin() + static_cast<std::ptrdiff_t>(dim));
  part.strides.erase(part.strides.begin() + static_cast<std::ptrdiff_t>(dim));
  constexpr std::int64_t most = 100'000;
  if (operand.shape[dim] > most) throw InputError("an unbind of " + std::to_string(operand.shape[dim]) + " parts");
  return std::vector<Result>(static_cast<std::size_t>(operand.shape[dim]), part);
}

Result cat(std::span<const Tensor> operands, const ResultRequest& request) {
  const std::size_t dim = dimension(OpKind::cat, operands[0], request.dims, 0);
  Shape out = operands[0].shape;
  for (const Tensor& operand : operands.subspan(1)) {
    Shape rest = operand.shape, first = operands[0].shape;
    require(rest.size() == first.size(), OpKind::cat, "shapes of one rank", operands);
    out[dim] += rest[dim];
    rest[dim] = first[dim] = 0;
    require(rest == first, OpKind::cat, "shapes that agree but for one dimension", operands);
  }
  return fresh(std::move(out), operands[0].dtype);
}

/// Equal tensors side by side along a new dimension.
Result stack(std::span<const Tensor> operands, const ResultRequest& request) {
  const std::vector<std::int64_t> first = {0};
  const std::size_t dim = dimension(OpKind::stack, operands[0], request.dims.empty() ? first : request.dims, 0, 1);
  for (const Tensor& operand : operands)
    require(operand.shape == operands[0].shape, OpKind::stack, "equal shapes", operands);
  Shape out = operands[0].shape;
  out.insert(out.begin() + static_cast<std::ptrdiff_t>(dim), static_cast<std::int64_t>(operands.size()));
  return fresh(std::move(out), operands[0].dtype);
}

/// Summed dimensions stay with extent 1, or go where a shape without them is asked for.
Result reduction(OpKind kind, std::span<const Tensor> operands, const ResultRequest& request) {
  const Tensor& x = operands[0];
  const bool all = request.dims.empty() && (kind == OpKind::sum || (request.shape && request.shape->empty()));
  if (all) return fresh(request.shape.value_or(Shape{}), x.dtype);
  require(!x.shape.empty(), kind, "at least one dimension", operands);
  const std::vector<std::int64_t> last = {-1};
  const std::vector<std::int64_t>& dims = request.dims.empty() ? last : request.dims;
  Shape kept = x.shape;
  std::vector<bool> summed(x.shape.size(), false);
  for (std::size_t i = 0; i < dims.size(); ++i) summed[dimension(kind, x, dims, i)] = true;
  Shape dropped;
  for (std::size_t d = 0; d < kept.size(); ++d) {
    if (summed[d]) kept[d] = 1;
    if (!summed[d]) dropped.push_back(kept[d]);
  }
  return fresh(request.shape && *request.shape == dropped ? dropped : kept, x.dtype);
}

/// What comes of indices or a window is told, not worked out.
Result told(OpKind kind, std::span<const Tensor> operands, const ResultRequest& request, bool differentiable = true) {
  if (!request.shape) throw InputError(std::string(to_string(kind)) + " needs the 'shape' of its result");
  Result out = fresh(*request.shape, operands.empty() ? DType::float32 : operands[0].dtype);
  out.differentiable = differentiable;
  return out;
}

Result one_result(OpKind kind, std::span<const Tensor> operands, const ResultRequest& request) {
  const Tensor& x = operands[0];
  switch (kind) {
    case OpKind::embedding: {
      require(operands.size() == 2 && operands[1].shape.size() == 2, kind, "ids and a table [n, d]", operands);
      Shape out = x.shape;
      out.push_back(operands[1].shape[1]);
      return fresh(std::move(out), operands[1].dtype);
    }
    case OpKind::linear:
    case OpKind::matmul:
    case OpKind::addmm:
      return product(kind, operands);
    case OpKind::bmm:
      return batched_product(operands);
    case OpKind::grouped_linear:
      require(operands.size() == 2 && x.shape.size() == 2 && operands[1].shape.size() == 3 &&
                  x.shape[1] == operands[1].shape[2],
              kind, "[rows, k] and [groups, n, k]", operands);
      return fresh({x.shape[0], operands[1].shape[1]}, x.dtype);
    case OpKind::add:
    case OpKind::mul:
    case OpKind::sub:
    case OpKind::div:
    case OpKind::masked_fill: {
      Result out = broadcast(kind, operands);
      out.dtype = x.dtype;
      return out;
    }
    case OpKind::where: {
      require(operands.size() == 3, kind, "a mask and two operands", operands);
      Result out = broadcast(kind, operands.subspan(1));
      out.dtype = operands[1].dtype;
      return out;
    }
    case OpKind::compare: {
      Result out = operands.size() == 2 ? broadcast(kind, operands) : like(x);
      out.dtype = DType::boolean;
      out.differentiable = false;
      return out;
    }
    case OpKind::layer_norm:
    case OpKind::rms_norm:
      require(!x.shape.empty() && (operands.size() == 1 || operands[1].shape == Shape{x.shape.back()}), kind,
              "[.., d] and a weight of [d]", operands);
      return fresh(x.shape, x.dtype);
    case OpKind::group_norm:
    case OpKind::batch_norm:
      require(x.shape.size() >= 2 && (operands.size() == 1 || operands[1].shape == Shape{x.shape[1]}), kind,
              "[images, channels, ..] and a weight of [channels]", operands);
      return fresh(x.shape, x.dtype);
    case OpKind::index_add:
      require(operands.size() == 3, kind, "a tensor, indices and what is added", operands);
      return fresh(x.shape, x.dtype);
    case OpKind::index:
    case OpKind::gather:
      require(operands.size() >= 2, kind, "a tensor and indices", operands);
      return told(kind, operands, request);
    case OpKind::avg_pool:
      return told(kind, operands, request);
    case OpKind::mean:
    case OpKind::sum:
      return reduction(kind, operands, request);
    case OpKind::stack:
      return stack(operands, request);
    case OpKind::swiglu: {
      require(operands.size() == 2 ? operands[1].shape == x.shape : x.shape.back() % 2 == 0, kind,
              "two equal shapes, or both halves in one", operands);
      Shape out = x.shape;
      if (operands.size() == 1) out.back() /= 2;
      return fresh(std::move(out), x.dtype);
    }
    case OpKind::attention: {
      require(operands.size() == 3 && x.shape.size() == 4 && operands[1].shape.size() == 4 &&
                  operands[1].shape[3] == x.shape[3] && operands[2].shape.size() == 4 &&
                  operands[1].shape[2] == operands[2].shape[2],
              kind, "queries, keys and values [batch, heads, rows, d]", operands);
      Shape out = x.shape;
      out[3] = operands[2].shape[3];
      // Kernels write [batch, rows, heads, d] and hand out a transposed view.
      const Shape strides = {out[1] * out[2] * out[3], out[3], out[1] * out[3], 1};
      return {std::move(out), strides, x.dtype, false};
    }
    case OpKind::contiguous:
      return fresh(x.shape, x.dtype);
    case OpKind::cast: {
      Result out = like(x);
      if (!request.dtype) throw InputError("cast needs the dtype it casts to");
      out.dtype = *request.dtype;
      return out;
    }
    case OpKind::view:
      return view(x, request);
    case OpKind::cat:
      return cat(operands, request);
    case OpKind::nll_loss:
    case OpKind::cross_entropy:
    case OpKind::mse_loss:
    case OpKind::bce_loss:
      return loss(kind, operands);
    case OpKind::collective:
      throw InputError("a collective needs ranks, which a program does not have; 'parallel' makes them");
    case OpKind::custom:
      return fresh(request.shape.value_or(x.shape), request.dtype.value_or(x.dtype));
    default:
      return like(x);  // pointwise
  }
}

}  // namespace

std::string to_string(const Shape& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return out + "]";
}

namespace {

/// Strides as told, inside what a view looks at.
void set_strides(Result& out, const ResultRequest& request) {
  if (!request.strides) return;
  if (request.strides->size() != out.shape.size())
    throw InputError("strides " + to_string(*request.strides) + " do not fit a result of shape " +
                     to_string(out.shape));
  out.strides = *request.strides;
}

}  // namespace

std::vector<Result> results(OpKind kind, std::span<const Tensor> operands, const ResultRequest& request) {
  const bool needs_none = kind == OpKind::fill || kind == OpKind::custom;
  if (operands.empty() && !needs_none) throw InputError(std::string(to_string(kind)) + " needs at least one operand");
  if (kind == OpKind::split && request.view == ViewKind::select) return unbind(operands[0], request);
  if (kind == OpKind::split) return split(operands[0], request);
  if (kind == OpKind::fill || operands.empty()) {
    Result out = told(kind, {}, request, false);
    out.dtype = request.dtype.value_or(DType::float32);
    set_strides(out, request);
    return {out};
  }
  if (kind == OpKind::max_pool || kind == OpKind::top_k) {
    Result places = told(kind, operands, request, false);
    places.dtype = DType::int64;
    return {told(kind, operands, request), places};
  }
  Result out = one_result(kind, operands, request);
  if (request.shape && out.shape != *request.shape)
    throw InputError("the result of " + std::string(to_string(kind)) + " has shape " + to_string(out.shape) + ", not " +
                     to_string(*request.shape));
  set_strides(out, request);
  if (request.in_place) {
    require(out.shape == operands[0].shape, kind, "a result of its first operand's shape to be in place", operands);
    out.alias = true;
    out.strides = operands[0].strides;
  }
  return {out};
}

}  // namespace tidemark
