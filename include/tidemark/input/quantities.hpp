/// How does one written value become a number, a size, a time, a word?
///
/// Each reader takes a field and throws InputError naming the key, what was expected and what stood there.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/base/vocabulary.hpp"
#include "tidemark/input/yaml_map.hpp"

namespace tidemark {

inline constexpr std::int64_t max_integer = std::numeric_limits<std::int64_t>::max();

/// A decimal number as written: digits / 10^places, exactly.
struct Decimal {
  std::int64_t digits = 0;
  std::int64_t divisor = 1;
  friend bool operator==(const Decimal&, const Decimal&) = default;
};

/// Digits without sign, leading zeros, exponent or unit; nothing for any other text or past 2^63.
std::optional<std::int64_t> parse_whole(std::string_view text);
/// Digits with at most one point between them: "0.15". No sign, exponent, leading zeros.
std::optional<Decimal> parse_decimal(std::string_view text);
/// value * fraction when that is a whole number.
std::optional<std::int64_t> exact_part(std::int64_t value, const Decimal& fraction);

std::int64_t whole_number(const Field& field, std::int64_t least, std::int64_t most);
/// From 1 to `most`.
std::int64_t positive_integer(const Field& field, std::int64_t most = max_integer);
bool boolean(const Field& field);
std::string text(const Field& field);
/// One of the key's choices, as written.
std::string choice(const Field& field);
DType dtype(const Field& field);
/// A path, resolved against the directory of the file that names it.
std::string path(const Field& field);

Bytes size(const Field& field);
Flops flops(const Field& field);
Nanos time(const Field& field);
/// Per second.
double flop_rate(const Field& field);
double byte_rate(const Field& field);

/// A decimal from 0 to 1.
Decimal fraction(const Field& field);
double probability(const Field& field);

std::vector<std::string> texts(const Field& field);
std::vector<std::int64_t> positive_integers(const Field& field, std::int64_t most);
/// Inclusive ranges of block numbers: 3, or "0-3,8-11".
std::vector<std::pair<int, int>> ranges(const Field& field);

/// The fields of a list's items, under the list's key; a single value gives one.
std::vector<Field> items(const Field& field);

}  // namespace tidemark
