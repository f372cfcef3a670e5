#include "tidemark/base/device.hpp"

#include <doctest/doctest.h>

#include <limits>

using namespace tidemark;

TEST_CASE("duration: launch and the slower of arithmetic and traffic, rounded up, exactly") {
  struct Case {
    std::string name;
    double flops_rate, bandwidth;
    std::int64_t launch;
    Int128 flops;
    std::int64_t bytes, nanos;
  };
  constexpr std::int64_t longest = std::numeric_limits<std::int64_t>::max();
  const Case cases[] = {
      {"no rates", 0, 0, 0, 1000, 1000, 0},
      {"launch alone", 0, 0, 7, 1000, 1000, 7},
      {"compute bound", 1e12, 1e12, 7, 5000, 3000, 12},
      {"memory bound", 1e12, 1e12, 7, 3000, 5000, 12},
      {"a part of a nanosecond is one", 1e12, 0, 0, 1, 0, 1},
      {"not a nanosecond too many", 312e12, 0, 0, Int128{312'000'000'000'000}, 0, 1'000'000'000},
      {"one FLOP more is one nanosecond more", 312e12, 0, 0, Int128{312'000'000'000'001}, 0, 1'000'000'001},
      {"one FLOP less is not one less", 312e12, 0, 0, Int128{311'999'999'999'999}, 0, 1'000'000'000},
      // 9007199254740993 / 3e9 s: the numerator has no double
      {"past the digits of a double", 3, 0, 0, 27'021'598, 0, 9'007'199'333'333'334},
      {"a rate that is not whole", 0, 0.5, 0, 0, 3, 6'000'000'000},
      {"past 2^63 ns", 1, 0, 0, Int128{longest}, 0, longest},
      {"launch and the longest time", 1, 0, 5, Int128{longest}, 0, longest},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Device device;
    device.flops[static_cast<std::size_t>(DType::bfloat16)] = c.flops_rate;
    device.memory_bandwidth = c.bandwidth;
    device.launch_time = Nanos{c.launch};
    CHECK(duration(device, DType::bfloat16, Flops{c.flops}, Bytes{c.bytes}) == Nanos{c.nanos});
    CHECK(duration(device, DType::float16, Flops{c.flops}, Bytes{}) == Nanos{c.launch});
  }
}

TEST_CASE("copy_duration: bytes by bandwidth, rounded up, 0 without one") {
  CHECK(copy_duration(10e9, Bytes{5000}) == Nanos{500});
  CHECK(copy_duration(10e9, Bytes{5001}) == Nanos{501});
  CHECK(copy_duration(0, Bytes{5000}) == Nanos{});
}
