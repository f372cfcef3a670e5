/// How do names that differ in one number become small?
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/base/names.hpp"

namespace tidemark {

/// "layers.12.mlp" is stem "layers.", number 12, tail ".mlp": split at the last run of digits that reads back the same.
/// Stem and tail stand in one text, with U+0000 between them; no number is -1.
class NumberedWords {
 public:
  /// The word's number, from 0 in the order of the calls.
  std::int64_t add(std::string_view word) {
    const std::size_t end = word.find_last_of("0123456789");
    const std::size_t begin = end == std::string_view::npos ? end : word.find_last_not_of("0123456789", end) + 1;
    const bool splits = end != std::string_view::npos && end - begin < 9 && (word[begin] != '0' || begin == end) &&
                        word.find('\0') == std::string_view::npos;
    std::int64_t number = -1;
    if (splits) {
      number = 0;
      for (std::size_t i = begin; i <= end; ++i) number = 10 * number + (word[i] - '0');
      text_.assign(word.substr(0, begin)).append(1, '\0').append(word.substr(end + 1));
    } else {
      text_.assign(word);
    }
    stem_of_.push_back(stems_.id(text_));
    number_of_.push_back(number);
    return static_cast<std::int64_t>(stem_of_.size()) - 1;
  }

  const NameTable& stems() const { return stems_; }
  const std::vector<NameId>& stem_of() const { return stem_of_; }
  const std::vector<std::int64_t>& number_of() const { return number_of_; }

 private:
  NameTable stems_;
  std::vector<NameId> stem_of_;
  std::vector<std::int64_t> number_of_;
  std::string text_;
};

}  // namespace tidemark
