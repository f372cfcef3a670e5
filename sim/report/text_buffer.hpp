/// How does an exporter hand its text on in pieces worth a write?
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

#include "tidemark/report/csv.hpp"
#include "tidemark/report/json_writer.hpp"

namespace tidemark {

/// Collects text and gives it to a sink 64 KiB at a time; `flush` gives the rest.
class TextBuffer {
 public:
  explicit TextBuffer(const TextSink& sink) : sink_(sink) {}

  TextBuffer& text(std::string_view value) {
    buffer_.append(value);
    if (buffer_.size() >= flush_size) flush();
    return *this;
  }
  template <std::integral Number>
  TextBuffer& number(Number value) {
    std::array<char, 24> digits{};
    const auto end = std::to_chars(digits.begin(), digits.end(), value).ptr;
    return text({digits.data(), static_cast<std::size_t>(end - digits.begin())});
  }
  /// As a JSON string, in quotes.
  TextBuffer& string(std::string_view value) { return text(json_string(value)); }
  void flush() {
    sink_(buffer_);
    buffer_.clear();
  }

 private:
  static constexpr std::size_t flush_size = std::size_t{1} << 16;
  const TextSink& sink_;
  std::string buffer_;
};

}  // namespace tidemark
