/// How do a million integers go into a page?
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tidemark {

/// Named columns of integers in one text of bytes: LEB128, zigzag, of each value its difference to the one before. What
/// repeats layer by layer is then the same bytes again, which deflate makes small.
class Columns {
 public:
  template <class Range, class Get>
  void add(std::string_view name, const Range& range, Get get) {
    std::int64_t before = 0;
    std::size_t count = 0;
    for (const auto& item : range) {
      const auto value = static_cast<std::int64_t>(get(item));
      put(value - before);
      before = value;
      ++count;
    }
    names_.emplace_back(name, count);
  }

  /// In the order of the calls, with how many values each has.
  const std::vector<std::pair<std::string, std::size_t>>& names() const { return names_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void put(std::int64_t value) {
    auto rest = static_cast<std::uint64_t>(value) << 1U ^ static_cast<std::uint64_t>(value >> 63);
    for (; rest >= 0x80; rest >>= 7U) bytes_ += static_cast<char>((rest & 0x7FU) | 0x80U);
    bytes_ += static_cast<char>(rest);
  }

  std::vector<std::pair<std::string, std::size_t>> names_;
  std::string bytes_;
};

}  // namespace tidemark
