/// What is a number of bytes, FLOPs or nanoseconds, and how does a person write one?
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tidemark {

/// Wide enough for the FLOPs of any training step: Llama-405B over 16 M tokens is 4e19, past 2^63.
__extension__ using Int128 = __int128;

/// An exact integer amount of one kind; Bytes + Flops does not compile.
template <class Kind, class Count = std::int64_t>
struct Quantity {
  Count count = 0;
  friend constexpr auto operator<=>(Quantity, Quantity) = default;
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return {a.count + b.count}; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return {a.count - b.count}; }
  friend constexpr Quantity operator*(Count n, Quantity a) { return {n * a.count}; }
  constexpr Quantity& operator+=(Quantity other) { return *this = *this + other; }
  constexpr Quantity& operator-=(Quantity other) { return *this = *this - other; }
};
using Bytes = Quantity<struct ByteKind>;
using Nanos = Quantity<struct NanoKind>;
using Flops = Quantity<struct FlopKind, Int128>;

/// a * b, or nothing when it passes 2^63. Both must be at least 0.
std::optional<std::int64_t> checked_product(std::int64_t a, std::int64_t b);
std::optional<std::int64_t> checked_sum(std::int64_t a, std::int64_t b);

/// Shortest decimal digits of a 128-bit integer.
std::string to_string(Int128 value);
inline std::string to_string(Bytes bytes) { return std::to_string(bytes.count); }
inline std::string to_string(Nanos nanos) { return std::to_string(nanos.count); }
inline std::string to_string(Flops flops) { return to_string(flops.count); }

/// For a person: "1.50 GiB", "13.4 TFLOP", "2.13 ms". Three significant digits, binary units for bytes.
std::string pretty(Bytes bytes);
std::string pretty(Flops flops);
std::string pretty(Nanos nanos);

/// A written size such as "40GiB", "1.5 GB", "512 B"; nothing when the unit is missing or unknown, or when the
/// result is not a whole number in range. Decimal prefixes are powers of 10, binary ones powers of 2.
std::optional<Bytes> parse_bytes(std::string_view text);
/// "20 GFLOP"; FLOP, kFLOP .. EFLOP, no exponents.
std::optional<Flops> parse_flops(std::string_view text);
/// ns, us, ms, s.
std::optional<Nanos> parse_nanos(std::string_view text);
/// A rate per second: "312 TFLOP/s" with `unit` "FLOP/s", "2039 GB/s" with `unit` "B/s".
std::optional<double> parse_rate(std::string_view text, std::string_view unit);

}  // namespace tidemark
