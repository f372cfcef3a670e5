#include "tidemark/base/device.hpp"

#include <algorithm>
#include <cmath>

namespace tidemark {
namespace {

double seconds(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

Nanos rounded_up(double seconds) { return {static_cast<std::int64_t>(std::ceil(seconds * 1e9))}; }

}  // namespace

Nanos duration(const Device& device, DType dtype, Flops flops, Bytes moved) {
  const double work = seconds(static_cast<double>(flops.count), device.flops[static_cast<std::size_t>(dtype)]);
  const double traffic = seconds(static_cast<double>(moved.count), device.memory_bandwidth);
  return device.launch_time + rounded_up(std::max(work, traffic));
}

Nanos copy_duration(double bandwidth, Bytes bytes) {
  return rounded_up(seconds(static_cast<double>(bytes.count), bandwidth));
}

}  // namespace tidemark
