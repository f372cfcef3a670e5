/// When is a reshape a view, and when must it copy?
#pragma once

#include <optional>

#include "tidemark/program/program.hpp"

namespace tidemark {

/// Strides under which a tensor of `shape` and `strides` can be seen as `new_shape` without a copy; nothing when its
/// dimensions do not merge. ATen's computeStride (TensorUtils.cpp).
std::optional<Shape> view_strides(const Shape& shape, const Shape& strides, const Shape& new_shape);

/// Every element has a place of its own and none is skipped, in whatever order of dimensions (ATen's
/// is_non_overlapping_and_dense).
bool is_dense(const Shape& shape, const Shape& strides);

/// Strides equal where the extent is above 1 (AccumulateGrad's layout contract).
bool same_layout(const Shape& shape, const Shape& a, const Shape& b);

}  // namespace tidemark
