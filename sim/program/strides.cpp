#include "tidemark/program/strides.hpp"

#include <algorithm>
#include <numeric>

namespace tidemark {

std::optional<Shape> view_strides(const Shape& shape, const Shape& strides, const Shape& new_shape) {
  const std::optional<std::int64_t> elements = element_count(shape);
  if (!elements || elements != element_count(new_shape)) return std::nullopt;
  if (*elements == 0) return contiguous_strides(new_shape);
  Shape out(new_shape.size());
  std::ptrdiff_t view_dim = static_cast<std::ptrdiff_t>(new_shape.size()) - 1;
  std::int64_t chunk_base_stride = strides.empty() ? 1 : strides.back();
  std::int64_t tensor_elements = 1;
  std::int64_t view_elements = 1;
  for (std::ptrdiff_t dim = static_cast<std::ptrdiff_t>(shape.size()) - 1; dim >= 0; --dim) {
    const auto d = static_cast<std::size_t>(dim);
    tensor_elements *= shape[d];
    const bool chunk_ends = dim == 0 || (shape[d - 1] != 1 && strides[d - 1] != tensor_elements * chunk_base_stride);
    if (!chunk_ends) continue;
    while (view_dim >= 0 && (view_elements < tensor_elements || new_shape[static_cast<std::size_t>(view_dim)] == 1)) {
      out[static_cast<std::size_t>(view_dim)] = view_elements * chunk_base_stride;
      view_elements *= new_shape[static_cast<std::size_t>(view_dim)];
      --view_dim;
    }
    if (view_elements != tensor_elements) return std::nullopt;
    if (dim > 0) {
      chunk_base_stride = strides[d - 1];
      tensor_elements = 1;
      view_elements = 1;
    }
  }
  for (; view_dim >= 0; --view_dim) out[static_cast<std::size_t>(view_dim)] = 1;
  return out;
}

bool is_dense(const Shape& shape, const Shape& strides) {
  std::vector<std::size_t> order(shape.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return strides[a] < strides[b]; });
  std::int64_t expected = 1;
  for (const std::size_t d : order) {
    if (shape[d] == 1) continue;
    if (strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

bool same_layout(const Shape& shape, const Shape& a, const Shape& b) {
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != 1 && a[d] != b[d]) return false;
  return true;
}

}  // namespace tidemark
