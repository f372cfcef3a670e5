/// How is JSON with integers past 64 bits written?
///
/// Libraries hold numbers in 64 bits or in `double`; FLOPs of one step need more (4e19), and must be exact.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tidemark/base/units.hpp"

namespace tidemark {

/// Appends members and elements in the order of the calls, two spaces a level.
class JsonWriter {
 public:
  void begin_object() { begin('{'); }
  void begin_object(std::string_view key) { begin(key, '{'); }
  void begin_array(std::string_view key) { begin(key, '['); }
  void end_object() { end('}'); }
  void end_array() { end(']'); }

  void member(std::string_view key, std::string_view text);
  void member(std::string_view key, const char* text) { member(key, std::string_view(text)); }
  void member(std::string_view key, const std::string& text) { member(key, std::string_view(text)); }
  void member(std::string_view key, bool value);
  void member(std::string_view key, double value);  // the shortest decimal that reads back as the same number
  void member(std::string_view key, Int128 value);
  void member(std::string_view key, std::int64_t value) { member(key, Int128{value}); }
  void member(std::string_view key, int value) { member(key, Int128{value}); }
  void member(std::string_view key, std::size_t value) { member(key, static_cast<Int128>(value)); }
  template <class Kind, class Count>
  void member(std::string_view key, Quantity<Kind, Count> value) {
    member(key, Int128{value.count});
  }
  template <class Value>
  void member(std::string_view key, const std::optional<Value>& value) {
    if (value)
      member(key, *value);
    else
      null(key);
  }
  /// What has no name is absent: null.
  void name(std::string_view key, const std::string& text) {
    if (text.empty())
      null(key);
    else
      member(key, text);
  }
  void null(std::string_view key);
  void element(std::string_view text);

  /// The finished text with a newline at its end.
  std::string take();

 private:
  void begin(char bracket);
  void begin(std::string_view key, char bracket);
  void end(char bracket);
  void start_item();
  void key(std::string_view name);
  std::string text_;
  std::size_t depth_ = 0;
  bool first_ = true;  // in the innermost object or array
};

/// A text as a JSON string, in quotes; invalid UTF-8 becomes U+FFFD.
std::string json_string(std::string_view text);

/// A text as it is, invalid UTF-8 as U+FFFD.
std::string valid_utf8(std::string_view text);

}  // namespace tidemark
