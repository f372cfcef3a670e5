#include "tidemark/input/condition.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "tidemark/base/units.hpp"
#include "tidemark/input/quantities.hpp"

namespace tidemark {
namespace {

constexpr std::array<std::string_view, 6> comparisons = {"<=", ">=", "==", "!=", "<", ">"};

[[noreturn]] void bad(const SourceLoc& where, const std::string& text) {
  throw InputError(where,
                   "'" + text + "' must be a condition such as policy.interval <= 18 or batch.size * steps == 4");
}

/// Words between blanks; signs and comparisons need blanks around them, since names may hold dashes.
std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t begin = 0; (begin = text.find_first_not_of(' ', begin)) != std::string::npos;) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return out;
}

bool is_sign(const std::string& word) { return word == "+" || word == "-" || word == "*" || word == "%"; }
bool is_comparison(const std::string& word) { return std::ranges::find(comparisons, word) != comparisons.end(); }

/// A whole number, or a size in bytes.
std::optional<std::int64_t> number(const std::string& text) {
  if (const auto whole = parse_whole(text)) return whole;
  const auto bytes = parse_bytes(text);
  return bytes ? std::optional(bytes->count) : std::nullopt;
}

using Lookup = std::function<std::optional<std::string>(const std::string&)>;

std::string text_of(const Condition::Term& term, const SourceLoc& where, const Lookup& value_of) {
  if (!term.key) return term.text;
  const auto value = value_of(term.text);
  if (!value)
    throw InputError(where, "'" + term.text + "' is no axis, and the scenario does not give it one plain value");
  return *value;
}

std::int64_t joined(std::int64_t a, char sign, std::int64_t b, const SourceLoc& where) {
  if (sign == '%' && b == 0) throw InputError(where, "the condition takes a remainder by 0");
  std::int64_t out = 0;
  const bool past = sign == '+'   ? __builtin_add_overflow(a, b, &out)
                    : sign == '-' ? __builtin_sub_overflow(a, b, &out)
                    : sign == '*' ? __builtin_mul_overflow(a, b, &out)
                                  : (out = a % b, false);
  if (past) throw InputError(where, "the condition passes 2^63");
  return out;
}

/// A number, where every term is one.
std::optional<std::int64_t> sum(const std::vector<Condition::Term>& side, const SourceLoc& where,
                                const Lookup& value_of) {
  std::int64_t total = 0, product = 0;
  char sign = '+';  // before the product
  for (const Condition::Term& term : side) {
    const auto value = number(text_of(term, where, value_of));
    if (!value) return std::nullopt;
    if (term.sign == '*' || term.sign == '%') {
      product = joined(product, term.sign, *value, where);
      continue;
    }
    total = joined(total, sign, product, where);
    sign = term.sign;
    product = *value;
  }
  return joined(total, sign, product, where);
}

template <class Value>
bool compare(const Value& a, const std::string& comparison, const Value& b) {
  if (comparison == "==") return a == b;
  if (comparison == "!=") return a != b;
  if (comparison == "<") return a < b;
  if (comparison == "<=") return a <= b;
  return comparison == ">" ? a > b : a >= b;
}

}  // namespace

Condition parse_condition(const std::string& text, const SourceLoc& where,
                          const std::function<bool(const std::string&)>& is_axis) {
  Condition out;
  out.where = where;
  std::vector<Condition::Term>* side = &out.left;
  char sign = '+';
  bool wants_term = true;
  for (const std::string& word : words(text)) {
    if (is_comparison(word) || is_sign(word)) {
      if (wants_term || (is_comparison(word) && !out.comparison.empty())) bad(where, text);
      wants_term = true;
      sign = is_sign(word) ? word[0] : '+';
      if (is_sign(word)) continue;
      out.comparison = word;
      side = &out.right;
      continue;
    }
    if (!wants_term) bad(where, text);
    const bool key = is_axis(word) || (word.find('.') != std::string::npos && !number(word));
    side->push_back({sign, key, word});
    wants_term = false;
  }
  if (out.comparison.empty() || wants_term) bad(where, text);
  return out;
}

bool holds(const Condition& condition, const Lookup& value_of) {
  const auto left = sum(condition.left, condition.where, value_of);
  const auto right = sum(condition.right, condition.where, value_of);
  if (left && right) return compare(*left, condition.comparison, *right);
  const bool plain = condition.left.size() == 1 && condition.right.size() == 1;
  if (!plain || (condition.comparison != "==" && condition.comparison != "!="))
    throw InputError(condition.where, "words can only be compared with == and !=; expected whole numbers or sizes");
  return compare(text_of(condition.left[0], condition.where, value_of), condition.comparison,
                 text_of(condition.right[0], condition.where, value_of));
}

}  // namespace tidemark
