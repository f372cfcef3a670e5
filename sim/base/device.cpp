#include "tidemark/base/device.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tidemark {
namespace {

constexpr std::int64_t longest = std::numeric_limits<std::int64_t>::max();

/// ceil(amount / rate) in nanoseconds, 0 without a rate, `longest` when it is past 2^63. Exact for whole rates: the
/// floating-point quotient is only a first guess, as 312 TFLOP at 312 TFLOP/s must be a second and not one more.
Nanos time_for(Int128 amount, double rate) {
  if (rate <= 0 || amount <= 0) return {};
  const bool narrow = amount <= longest;  // always, for one op; and much the faster conversion
  const double wide = narrow ? static_cast<double>(static_cast<std::int64_t>(amount)) : static_cast<double>(amount);
  const double guess = wide * 1e9 / rate;
  if (guess >= static_cast<double>(longest)) return {longest};
  auto nanos = static_cast<std::int64_t>(guess) + 1;
  if (rate >= static_cast<double>(longest)) return {nanos};
  const auto whole_rate = static_cast<std::int64_t>(rate);
  if (static_cast<double>(whole_rate) != rate) return {static_cast<std::int64_t>(std::ceil(guess))};
  const Int128 work = amount * 1'000'000'000;
  while (Int128{nanos} * whole_rate < work) ++nanos;
  while (Int128{nanos - 1} * whole_rate >= work) --nanos;
  return {nanos};
}

double seconds_a_unit(const std::vector<RatePoint>& points, double at) {
  const PointPlace found = place(points, at);
  return (1 - found.part) / points[found.below].rate + found.part / points[found.above].rate;
}

}  // namespace

PointPlace place(const std::vector<RatePoint>& points, double at) {
  const auto above =
      static_cast<std::size_t>(std::ranges::lower_bound(points, at, {}, &RatePoint::at) - points.begin());
  if (above == 0) return {};
  if (above == points.size()) return {above - 1, above - 1, 0};
  const double low = points[above - 1].at, high = points[above].at;
  return {above - 1, above, (1 / at - 1 / low) / (1 / high - 1 / low)};
}

Nanos duration(const KindCost& cost, Flops flops, Bytes moved) {
  const auto work = static_cast<double>(flops.count);
  const auto traffic = static_cast<double>(moved.count);
  double seconds = 0;
  if (flops.count > 0 && !cost.flops.empty())
    seconds = work * seconds_a_unit(cost.flops, work / std::max(traffic, 1.0));
  else if (moved.count > 0 && !cost.bytes.empty())
    seconds = traffic * seconds_a_unit(cost.bytes, traffic);
  const double nanos = std::round(seconds * 1e9) + static_cast<double>(cost.launch.count);
  return {nanos < static_cast<double>(longest) ? static_cast<std::int64_t>(nanos) : longest};
}

Nanos duration(const Device& device, DType dtype, Flops flops, Bytes moved) {
  const Nanos work = time_for(flops.count, device.flops[static_cast<std::size_t>(dtype)]);
  const Nanos traffic = time_for(moved.count, device.memory_bandwidth);
  std::int64_t nanos = 0;
  return {__builtin_add_overflow(device.launch_time.count, std::max(work, traffic).count, &nanos) ? longest : nanos};
}

Nanos copy_duration(double bandwidth, Bytes bytes) { return time_for(bytes.count, bandwidth); }

}  // namespace tidemark
