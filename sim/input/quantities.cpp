#include "tidemark/input/quantities.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

namespace tidemark {
namespace {

constexpr int max_block = 1'000'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_plain(const Field& field) { return field.value->kind == DocNode::Kind::scalar && !field.value->quoted; }

bool is_scalar(const Field& field) { return field.value->kind == DocNode::Kind::scalar; }

bool only_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, is_digit) && (text.size() == 1 || text[0] != '0');
}

/// A scalar, quoted or not, that `parse` understands.
template <class Parse>
auto parsed(const Field& field, Parse parse, const std::string& expected) {
  const auto value = is_scalar(field) ? parse(field.value->text) : std::nullopt;
  if (!value) field.must_be(expected);
  return *value;
}

std::optional<std::pair<int, int>> parse_range(std::string_view text) {
  const std::size_t dash = text.find('-');
  const auto first = parse_whole(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : parse_whole(text.substr(dash + 1));
  if (!first || !last || *first > *last || *last > max_block) return std::nullopt;
  return std::pair(static_cast<int>(*first), static_cast<int>(*last));
}

}  // namespace

std::optional<std::int64_t> parse_whole(std::string_view text) {
  if (!only_digits(text)) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  return value;
}

std::optional<Decimal> parse_decimal(std::string_view text) {
  const std::size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  const std::string_view places = point == std::string_view::npos ? "" : text.substr(point + 1);
  if (!only_digits(whole)) return std::nullopt;
  if (point != std::string_view::npos && (places.empty() || !std::ranges::all_of(places, is_digit)))
    return std::nullopt;
  Decimal out;
  for (const char c : std::string(whole) + std::string(places)) {
    const auto shifted = checked_product(out.digits, 10);
    const auto next = shifted ? checked_sum(*shifted, c - '0') : std::nullopt;
    if (!next) return std::nullopt;
    out.digits = *next;
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto next = checked_product(out.divisor, 10);
    if (!next) return std::nullopt;
    out.divisor = *next;
  }
  return out;
}

std::optional<std::int64_t> exact_part(std::int64_t value, const Decimal& fraction) {
  const Int128 product = static_cast<Int128>(value) * fraction.digits;
  if (product % fraction.divisor != 0) return std::nullopt;
  const Int128 part = product / fraction.divisor;
  if (part > max_integer) return std::nullopt;
  return static_cast<std::int64_t>(part);
}

std::int64_t whole_number(const Field& field, std::int64_t least, std::int64_t most) {
  const bool digits = is_plain(field) && only_digits(field.value->text);
  const auto value = digits ? parse_whole(field.value->text) : std::nullopt;
  if (value && *value >= least && *value <= most) return *value;
  const std::string kind = least == 1 ? "a positive integer" : fmt::format("a whole number from {}", least);
  const bool too_large = digits && (!value || *value > most);
  field.must_be(too_large ? fmt::format("{} up to {}", kind, most) : kind);
}

std::int64_t positive_integer(const Field& field, std::int64_t most) { return whole_number(field, 1, most); }

bool boolean(const Field& field) {
  const std::string& written = field.value->text;
  if (!is_plain(field) || (written != "true" && written != "false")) field.must_be("true or false");
  return written == "true";
}

std::string text(const Field& field) {
  if (!is_scalar(field) || field.value->text.empty()) field.must_be("a text");
  return field.value->text;
}

std::string choice(const Field& field) {
  std::vector<std::string> known(field.key->choices.begin(), field.key->choices.end());
  if (!is_scalar(field)) field.must_be("one of " + joined(known));
  const std::string& written = field.value->text;
  if (std::ranges::find(known, written) != known.end()) return written;
  const std::string nearest = nearest_name(written, known);
  const std::string hint = nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest);
  field.fail(
      fmt::format("'{}' must be one of {}, not {}{}", field.key->name, joined(known), shown(*field.value), hint));
}

DType dtype(const Field& field) { return *parse_dtype(choice(field)); }

std::string path(const Field& field) { return resolve_path(*field.value, text(field)); }

Bytes size(const Field& field) {
  return parsed(field, parse_bytes, "a size of whole bytes with its unit, such as '40 GiB'");
}

Flops flops(const Field& field) {
  return parsed(field, parse_flops, "a whole number of FLOPs with its unit, such as '20 GFLOP'");
}

Nanos time(const Field& field) {
  return parsed(field, parse_nanos, "a time of whole nanoseconds with its unit, such as '3.5 ms'");
}

double flop_rate(const Field& field) {
  const auto parse = [](std::string_view text) { return parse_rate(text, "FLOP/s"); };
  return parsed(field, parse, "a rate above 0 with its unit, such as '312 TFLOP/s'");
}

double byte_rate(const Field& field) {
  const auto parse = [](std::string_view text) { return parse_rate(text, "B/s"); };
  return parsed(field, parse, "a rate above 0 with its unit, such as '2039 GB/s'");
}

Decimal fraction(const Field& field) {
  const auto value = is_plain(field) ? parse_decimal(field.value->text) : std::nullopt;
  if (!value || value->digits > value->divisor) field.must_be("a decimal number from 0 to 1");
  return *value;
}

double probability(const Field& field) {
  const Decimal value = fraction(field);
  return static_cast<double>(value.digits) / static_cast<double>(value.divisor);
}

std::vector<Field> items(const Field& field) {
  if (field.value->kind != DocNode::Kind::list) return {field};
  std::vector<Field> out;
  out.reserve(field.value->items.size());
  for (const DocPtr& item : field.value->items) out.push_back({field.key, item});
  return out;
}

std::vector<std::string> texts(const Field& field) {
  std::vector<std::string> out;
  for (const Field& item : items(field)) out.push_back(text(item));
  return out;
}

std::vector<std::int64_t> positive_integers(const Field& field, std::int64_t most) {
  std::vector<std::int64_t> out;
  for (const Field& item : items(field)) out.push_back(positive_integer(item, most));
  return out;
}

std::vector<std::pair<int, int>> ranges(const Field& field) {
  std::vector<std::pair<int, int>> out;
  for (const Field& item : items(field)) {
    if (!is_scalar(item)) item.must_be("block numbers such as '0-3,8-11'");
    std::string_view rest = item.value->text;
    for (bool more = true; more;) {
      const std::size_t comma = rest.find(',');
      const auto range = parse_range(rest.substr(0, comma));
      if (!range) item.must_be("block numbers such as '0-3,8-11'");
      out.push_back(*range);
      more = comma != std::string_view::npos;
      if (more) rest.remove_prefix(comma + 1);
    }
  }
  return out;
}

}  // namespace tidemark
