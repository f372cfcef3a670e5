/// What shape and strides does an op's result have, and do its operands fit?
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/program/program.hpp"

namespace tidemark {

/// A result: fresh, or (alias) another view of the first operand's storage.
struct Result {
  Shape shape;
  Shape strides;
  DType dtype = DType::float32;
  bool alias = false;
  bool differentiable = true;  // false: indices, masks
  friend bool operator==(const Result&, const Result&) = default;
};

/// The views that a program can name. Backward treats them apart: a part's gradient is a full-size tensor, an expanded
/// one's a sum.
enum class ViewKind : std::uint8_t { reshape, transpose, permute, slice, select, expand };
inline constexpr std::array<std::string_view, 6> view_names = {"reshape", "transpose", "permute",
                                                               "slice",   "select",    "expand"};
constexpr std::string_view to_string(ViewKind kind) { return view_names[static_cast<std::size_t>(kind)]; }

/// What an op says of its results where operands alone do not decide.
struct ResultRequest {
  std::optional<Shape> shape;  // of the result, where operands and the rest do not say it
  /// transpose: the two dimensions; permute: all of them; cat, stack, split, slice, select: one; sum, mean: those
  /// summed
  std::vector<std::int64_t> dims = {};
  std::vector<std::int64_t> sizes = {};  // split: extents of the parts; slice: start and length; select: the index
  std::optional<DType> dtype = {};       // cast, fill, custom
  std::optional<Shape> strides = {};     // of the result, where the rule would say otherwise
  ViewKind view = ViewKind::reshape;
  bool in_place = false;
};

/// One result, or as many as a split has parts. Throws InputError where operands do not fit: "add needs shapes that
/// broadcast, not [3, 4] and [5]".
std::vector<Result> results(OpKind kind, std::span<const Tensor> operands, const ResultRequest& request);

/// "[3, 4]".
std::string to_string(const Shape& shape);

}  // namespace tidemark
