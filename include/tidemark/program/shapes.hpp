/// What shape and strides does an op's result have, and do its operands fit?
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tidemark/program/program.hpp"

namespace tidemark {

/// A result: fresh, or (alias) another view of the first operand's storage.
struct Result {
  Shape shape;
  Shape strides;
  DType dtype = DType::float32;
  bool alias = false;
  friend bool operator==(const Result&, const Result&) = default;
};

/// What an op says of its results where operands alone do not decide.
struct ResultRequest {
  Shape shape;                      // view, custom: the new shape; empty is not given
  std::vector<std::int64_t> dims;   // view: the two dimensions exchanged; cat, split, slice: the dimension
  std::vector<std::int64_t> sizes;  // split: extents of the parts; slice: start and length
  std::optional<DType> dtype;       // cast, custom
  bool slice = false;               // view: a slice along `dims[0]`
  bool in_place = false;
};

/// One result, or as many as a split has parts. Throws InputError where operands do not fit: "add needs shapes that
/// broadcast, not [3, 4] and [5]".
std::vector<Result> results(OpKind kind, std::span<const Tensor> operands, const ResultRequest& request);

/// "[3, 4]".
std::string to_string(const Shape& shape);

}  // namespace tidemark
