/// Which words does every level share: categories, phases, streams, data types?
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tidemark {

/// The categories of PyTorch's memory profiler, and workspace.
enum class Category : std::uint8_t {
  parameter,
  gradient,
  optimizer_state,
  input,
  activation,
  temporary,
  autograd_detail,
  workspace
};
inline constexpr std::array<std::string_view, 8> category_names = {
    "parameter", "gradient", "optimizer_state", "input", "activation", "temporary", "autograd_detail", "workspace"};

enum class Phase : std::uint8_t { initial, forward, loss, recompute, backward, optimizer, communication, offload };
inline constexpr std::array<std::string_view, 8> phase_names = {"initial",  "forward",   "loss",          "recompute",
                                                                "backward", "optimizer", "communication", "offload"};

enum class Stream : std::uint8_t { compute, copy_in, copy_out, comm };
inline constexpr std::array<std::string_view, 4> stream_names = {"compute", "copy_in", "copy_out", "comm"};

enum class DType : std::uint8_t { float32, bfloat16, float16, float8, float64, int64, int32, uint8, boolean };
inline constexpr std::array<std::string_view, 9> dtype_names = {"float32", "bfloat16", "float16", "float8", "float64",
                                                                "int64",   "int32",    "uint8",   "bool"};

constexpr std::int64_t bytes_per_element(DType dtype) {
  constexpr std::array<std::int64_t, 9> sizes = {4, 2, 2, 1, 8, 8, 4, 1, 1};
  return sizes[static_cast<std::size_t>(dtype)];
}

constexpr std::string_view to_string(Category c) { return category_names[static_cast<std::size_t>(c)]; }
constexpr std::string_view to_string(Phase p) { return phase_names[static_cast<std::size_t>(p)]; }
constexpr std::string_view to_string(Stream s) { return stream_names[static_cast<std::size_t>(s)]; }
constexpr std::string_view to_string(DType d) { return dtype_names[static_cast<std::size_t>(d)]; }

std::optional<DType> parse_dtype(std::string_view name);

}  // namespace tidemark
