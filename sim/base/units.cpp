#include "tidemark/base/units.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

namespace tidemark {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t factor;
};

constexpr std::array<Unit, 9> byte_units = {{{"B", 1},
                                             {"kB", 1'000},
                                             {"MB", 1'000'000},
                                             {"GB", 1'000'000'000},
                                             {"TB", 1'000'000'000'000},
                                             {"KiB", 1LL << 10},
                                             {"MiB", 1LL << 20},
                                             {"GiB", 1LL << 30},
                                             {"TiB", 1LL << 40}}};
constexpr std::array<Unit, 7> flop_units = {{{"FLOP", 1},
                                             {"kFLOP", 1'000},
                                             {"MFLOP", 1'000'000},
                                             {"GFLOP", 1'000'000'000},
                                             {"TFLOP", 1'000'000'000'000},
                                             {"PFLOP", 1'000'000'000'000'000},
                                             {"EFLOP", 1'000'000'000'000'000'000}}};
constexpr std::array<Unit, 4> nano_units = {{{"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}}};

struct Written {
  std::string_view digits;  // "1.5"
  std::string_view unit;    // "GiB"
};

/// Splits "1.5 GiB"; nothing unless it is digits[.digits], at most one space, a unit.
std::optional<Written> split(std::string_view text) {
  std::size_t end = 0;
  bool dot = false;
  for (; end < text.size() && ((text[end] >= '0' && text[end] <= '9') || (text[end] == '.' && !dot)); ++end)
    dot = dot || text[end] == '.';
  const std::string_view digits = text.substr(0, end);
  if (digits.empty() || digits.front() == '.' || digits.back() == '.') return std::nullopt;
  if (digits.size() > 1 && digits[0] == '0' && digits[1] != '.') return std::nullopt;
  std::string_view unit = text.substr(end);
  if (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (unit.empty()) return std::nullopt;
  return Written{digits, unit};
}

/// digits * factor as a whole number in 63 bits, exactly.
std::optional<std::int64_t> scaled(std::string_view digits, std::int64_t factor) {
  Int128 value = 0;
  Int128 divisor = 1;
  bool after_dot = false;
  for (const char c : digits) {
    if (c == '.') {
      after_dot = true;
      continue;
    }
    value = value * 10 + (c - '0');
    if (after_dot) divisor *= 10;
    constexpr Int128 limit = static_cast<Int128>(std::numeric_limits<std::int64_t>::max());
    if (value > limit || divisor > limit) return std::nullopt;
  }
  const Int128 product = value * factor;
  if (product % divisor != 0 || product / divisor > std::numeric_limits<std::int64_t>::max()) return std::nullopt;
  return static_cast<std::int64_t>(product / divisor);
}

template <std::size_t N>
std::optional<std::int64_t> parse(std::string_view text, const std::array<Unit, N>& units) {
  const std::optional<Written> written = split(text);
  if (!written) return std::nullopt;
  const auto unit = std::ranges::find(units, written->unit, &Unit::name);
  if (unit == units.end()) return std::nullopt;
  return scaled(written->digits, unit->factor);
}

std::string three_digits(double value, std::string_view unit) {
  std::array<char, 64> buffer{};
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::snprintf(buffer.data(), buffer.size(), "%.*f %.*s", decimals, value, static_cast<int>(unit.size()), unit.data());
  return buffer.data();
}

}  // namespace

std::optional<std::int64_t> checked_product(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

std::optional<std::int64_t> checked_sum(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

std::string to_string(Int128 value) {
  if (value == 0) return "0";
  const bool negative = value < 0;
  std::string digits;
  for (; value != 0; value /= 10) {
    const int digit = static_cast<int>(value % 10);
    digits.push_back(static_cast<char>('0' + (digit < 0 ? -digit : digit)));
  }
  if (negative) digits.push_back('-');
  std::ranges::reverse(digits);
  return digits;
}

std::string pretty(Bytes bytes) {
  const double size = std::abs(static_cast<double>(bytes.count));
  const std::string sign = bytes.count < 0 ? "-" : "";
  constexpr std::array<std::string_view, 5> names = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (size < 1024) return sign + std::to_string(std::abs(bytes.count)) + " B";
  std::size_t k = 0;
  double value = size;
  while (value >= 999.5 && k + 1 < names.size()) {
    value /= 1024;
    ++k;
  }
  return sign + three_digits(value, names[k]);
}

std::string pretty(Flops flops) {
  constexpr std::array<std::string_view, 8> names = {"FLOP",  "kFLOP", "MFLOP", "GFLOP",
                                                     "TFLOP", "PFLOP", "EFLOP", "ZFLOP"};
  if (flops.count < 1000) return to_string(flops) + " FLOP";
  std::size_t k = 0;
  double value = static_cast<double>(flops.count);
  while (value >= 999.5 && k + 1 < names.size()) {
    value /= 1000;
    ++k;
  }
  return three_digits(value, names[k]);
}

std::string pretty(Nanos nanos) {
  constexpr std::array<std::string_view, 4> names = {"ns", "us", "ms", "s"};
  if (nanos.count < 1000) return to_string(nanos) + " ns";
  std::size_t k = 0;
  double value = static_cast<double>(nanos.count);
  while (value >= 999.5 && k + 1 < names.size()) {
    value /= 1000;
    ++k;
  }
  return three_digits(value, names[k]);
}

std::optional<Bytes> parse_bytes(std::string_view text) {
  const auto count = parse(text, byte_units);
  return count ? std::optional(Bytes{*count}) : std::nullopt;
}

std::optional<Flops> parse_flops(std::string_view text) {
  const auto count = parse(text, flop_units);
  return count ? std::optional(Flops{*count}) : std::nullopt;
}

std::optional<Nanos> parse_nanos(std::string_view text) {
  const auto count = parse(text, nano_units);
  return count ? std::optional(Nanos{*count}) : std::nullopt;
}

std::optional<double> parse_rate(std::string_view text, std::string_view unit) {
  const std::optional<Written> written = split(text);
  if (!written || !written->unit.ends_with(unit)) return std::nullopt;
  const std::string_view prefix = written->unit.substr(0, written->unit.size() - unit.size());
  constexpr std::array<std::pair<std::string_view, double>, 11> prefixes = {{{"", 1.0},
                                                                             {"k", 1e3},
                                                                             {"M", 1e6},
                                                                             {"G", 1e9},
                                                                             {"T", 1e12},
                                                                             {"P", 1e15},
                                                                             {"E", 1e18},
                                                                             {"Ki", 1024.0},
                                                                             {"Mi", 1048576.0},
                                                                             {"Gi", 1073741824.0},
                                                                             {"Ti", 1099511627776.0}}};
  for (const auto& [name, factor] : prefixes)
    if (name == prefix) {
      const double value = std::stod(std::string(written->digits)) * factor;
      return value > 0 ? std::optional(value) : std::nullopt;
    }
  return std::nullopt;
}

}  // namespace tidemark
