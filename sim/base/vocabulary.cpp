#include "tidemark/base/vocabulary.hpp"

#include <algorithm>

namespace tidemark {

std::optional<DType> parse_dtype(std::string_view name) {
  const auto found = std::ranges::find(dtype_names, name);
  if (found == dtype_names.end()) return std::nullopt;
  return static_cast<DType>(found - dtype_names.begin());
}

}  // namespace tidemark
