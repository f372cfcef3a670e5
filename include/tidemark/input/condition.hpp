/// Which points of a grid does the user want?
///
///   policy.interval <= 18
///   batch.size * batch.sequence <= 16384
///   model.layers % policy.interval == 0
///   policy.kind != none
///
/// Two sides with one comparison between them. A side is a text, or whole numbers and sizes joined by + - * %, * and %
/// first. A dotted word, or one that is an axis, stands for that key's value: at the point, else in the scenario.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"

namespace tidemark {

struct Condition {
  struct Term {
    char sign = '+';   // how it joins what stands before it: + - * %
    bool key = false;  // a key path, else a number or a word as written
    std::string text;
    friend bool operator==(const Term&, const Term&) = default;
  };
  std::vector<Term> left, right;
  std::string comparison;  // < <= == != >= >
  SourceLoc where;
  friend bool operator==(const Condition&, const Condition&) = default;
};

/// `is_axis` knows the axes' keys. Throws InputError for what is no comparison.
Condition parse_condition(const std::string& text, const SourceLoc& where,
                          const std::function<bool(const std::string&)>& is_axis);

/// `value_of` gives a key's value as written, or nothing. Throws InputError for a key without a value, arithmetic with
/// words, a remainder by 0, and past 2^63.
bool holds(const Condition& condition, const std::function<std::optional<std::string>(const std::string&)>& value_of);

}  // namespace tidemark
