#include "tidemark/engine/caching_allocator.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/engine/caching_model.hpp"

using namespace tidemark;

namespace {

constexpr std::int64_t MiB = 1 << 20;
constexpr Bytes mib(std::int64_t n) { return {n * MiB}; }

CachingSettings device(std::int64_t capacity_mib) {
  CachingSettings settings;
  settings.capacity = mib(capacity_mib);
  return settings;
}

CachingSettings divided(std::int64_t divisions) {
  CachingSettings settings;
  settings.roundup_power2_divisions.fill(divisions);
  return settings;
}

Bytes reserved(const CachingAllocator& allocator) { return allocator.counters().reserved_bytes.all.current; }
Bytes allocated(const CachingAllocator& allocator) { return allocator.counters().allocated_bytes.all.current; }

}  // namespace

TEST_CASE("caching allocator: what a request is rounded to") {
  CachingSettings above_4_mib;  // "[1:0,2:0,4:8,>:8]"
  for (std::size_t i = 2; i < 16; ++i) above_4_mib.roundup_power2_divisions[i] = 8;
  struct Case {
    std::string name;
    CachingSettings settings;
    std::int64_t bytes, rounded;
  };
  const Case cases[] = {
      {"one byte", {}, 1, 512},
      {"512", {}, 512, 512},
      {"513", {}, 513, 1024},
      {"1 MiB", {}, MiB, MiB},
      {"1 division is none", divided(1), 5 * MiB + 1, 5 * MiB + 512},
      {"4 divisions, a power of two stays", divided(4), 4 * MiB, 4 * MiB},
      {"4 divisions, just above it", divided(4), 4 * MiB + 1, 5 * MiB},
      {"4 divisions, at a step", divided(4), 5 * MiB, 5 * MiB},
      {"4 divisions, last quarter", divided(4), 7 * MiB + 1, 8 * MiB},
      {"4 divisions, up to 2048 B by 512", divided(4), 1500, 1536},
      {"4 divisions, 2048 B is not above 4 x 512", divided(4), 2048, 2048},
      {"4 divisions, 2049 B", divided(4), 2049, 2560},
      {"divisions by size, below", above_4_mib, 3 * MiB + 1, 3 * MiB + 512},
      {"divisions by size, from 4 MiB", above_4_mib, 4 * MiB + 1, 4 * MiB + MiB / 2},
      {"divisions by size, beyond the last interval", above_4_mib, (std::int64_t{96} << 30) + 1,
       std::int64_t{104} << 30},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(CachingAllocator(c.settings).rounded(Bytes{c.bytes}) == Bytes{c.rounded});
  }
}

TEST_CASE("caching allocator: what a first request takes from the device") {
  struct Case {
    std::string name;
    std::int64_t bytes, block, reserved;
  };
  const Case cases[] = {
      {"small", 1000, 1024, 2 * MiB},
      {"largest small", MiB, MiB, 2 * MiB},
      {"smallest large", MiB + 1, MiB + 512, 20 * MiB},
      {"below 10 MiB", 10 * MiB - 512, 10 * MiB - 512, 20 * MiB},
      {"10 MiB have their own", 10 * MiB, 10 * MiB, 10 * MiB},
      {"rest of 1 MiB is not split off", 11 * MiB, 12 * MiB, 12 * MiB},
      {"rest of more than 1 MiB is", 11 * MiB - 512, 11 * MiB - 512, 12 * MiB},
      {"49 MiB get 50", 49 * MiB, 50 * MiB, 50 * MiB},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CachingAllocator allocator({});
    const auto block = allocator.allocate(Bytes{c.bytes});
    REQUIRE(block);
    CHECK(allocator.size(*block) == Bytes{c.block});
    CHECK(reserved(allocator) == Bytes{c.reserved});
  }
}

TEST_CASE("caching allocator: an oversize request takes a cached block less than the rounding larger") {
  for (const auto& [cached, reused] : {std::pair{mib(220), false}, std::pair{mib(218), true}}) {
    CAPTURE(cached.count);
    CachingSettings settings;
    settings.max_split_size = mib(100);
    CachingAllocator allocator(settings);
    allocator.free(*allocator.allocate(cached));
    CHECK(allocator.allocate(mib(200)).has_value());
    CHECK((reserved(allocator) == cached) == reused);
  }
}

TEST_CASE("caching allocator: garbage is collected only above the threshold") {
  for (const auto& [threshold, kept] : {std::pair{0.5, mib(400)}, std::pair{0.49, mib(0)}}) {
    CAPTURE(threshold);
    CachingSettings settings = device(800);
    settings.memory_fraction = 1.0;
    settings.garbage_collection_threshold = threshold;
    CachingAllocator allocator(settings);
    allocator.free(*allocator.allocate(mib(400)));  // reserved is 0.5 of the limit
    CHECK(allocator.allocate(Bytes{512}).has_value());
    CHECK(reserved(allocator) == kept + mib(2));
  }
}

// stream 0   alloc a            free a ........ b = a's block
// stream 1            uses a .........| passed
TEST_CASE("caching allocator: a block used on another stream waits for it") {
  CachingAllocator allocator({});
  const BlockId a = *allocator.allocate(mib(30));
  allocator.record_stream(a, 1);
  allocator.record_stream(a, 1);  // twice is once
  allocator.record_stream(a, 0);  // its own stream
  allocator.free(a);
  CHECK(allocated(allocator) == Bytes{});
  CHECK(allocator.counters().active_bytes.all.current == mib(30));
  CHECK(allocator.reservations().front().blocks.front().state == Reservation::State::pending_free);
  const BlockId other = *allocator.allocate(mib(30));
  CHECK(reserved(allocator) == mib(60));
  allocator.free(other);
  allocator.stream_passed(2);
  allocator.stream_passed(1);
  CHECK(allocator.counters().active_bytes.all.current == mib(30));  // not seen yet
  CHECK(allocator.address(*allocator.allocate(mib(30))) == std::int64_t{1} << 32);
  CHECK(reserved(allocator) == mib(60));
}

TEST_CASE("caching allocator: why a request failed, and what would have fitted") {
  struct Case {
    std::string name;
    CachingSettings settings;
    std::vector<std::int64_t> allocate;                       // MiB; negative is given back
    std::int64_t request, device_free, largest_free, fitted;  // MiB
  };
  CachingSettings capped = device(100);
  capped.memory_fraction = 0.5;
  CachingSettings expandable = device(100);
  expandable.expandable_segments = true;
  CachingSettings quarters = device(100);
  quarters.roundup_power2_divisions.fill(4);
  const Case cases[] = {
      {"nothing held", device(100), {}, 101, 100, 0, 100},
      {"the rest of the device", device(100), {41}, 60, 58, 0, 58},
      {"the rest of the device, in 2 MiB", device(99), {40}, 60, 59, 0, 58},
      {"a free piece larger than the rest", device(100), {80, -80, 44}, 50, 20, 36, 36},
      {"too little for a reservation of 20 MiB", device(29), {20}, 9, 9, 0, 1},
      {"memory fraction", capped, {20}, 40, 30, 0, 30},
      {"expandable, in pages of 20 MiB", expandable, {30}, 75, 60, 10, 70},
      {"rounded to quarters", quarters, {40}, 65, 60, 0, 56},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CachingAllocator allocator(c.settings);
    std::vector<BlockId> held;
    for (const std::int64_t size : c.allocate) {
      if (size > 0) held.push_back(*allocator.allocate(mib(size)));
      if (size < 0) allocator.free(held.back());
    }
    CHECK(!allocator.allocate(mib(c.request)));
    const Shortage why = allocator.shortage(mib(c.request));
    CHECK(why.requested == mib(c.request));
    CHECK(why.device_free == mib(c.device_free));
    CHECK(why.largest_free == mib(c.largest_free));
    CHECK(why.would_have_fitted == mib(c.fitted));
    CHECK(allocator.allocate(why.would_have_fitted).has_value());
  }
}

TEST_CASE("caching allocator: a block is freed once") {
  CachingAllocator allocator({});
  const BlockId a = *allocator.allocate(mib(1));
  allocator.free(a);
  CHECK_THROWS_AS(allocator.free(a), InternalError);
  CHECK_THROWS_AS(allocator.record_stream(a, 1), InternalError);
}

// compute    alloc 0 (30 MiB)    free 0 on copy_out at 10, ready at 20     alloc 1 at 15: new    alloc 2 at 20: reused
TEST_CASE("caching model: a storage freed by a copy keeps its block until the copy has ended") {
  CachingModel model({});
  CHECK(model.alloc(0, mib(30), Stream::compute, Nanos{0}));
  model.free(0, Stream::copy_out, Nanos{10}, Nanos{20});
  CHECK(model.figures() == AllocatorFigures{Bytes{}, mib(30), mib(30), Bytes{}});
  CHECK(model.alloc(1, mib(30), Stream::compute, Nanos{15}));
  CHECK(model.figures() == AllocatorFigures{mib(30), mib(60), mib(60), Bytes{}});
  CHECK(model.alloc(2, mib(30), Stream::compute, Nanos{20}));
  CHECK(model.figures() == AllocatorFigures{mib(60), mib(60), mib(60), Bytes{}});
}

// After the allocator itself has waited for all streams, what was pending is done; what comes later waits anew.
TEST_CASE("caching model: an out-of-memory retry waits for the streams") {
  CachingModel model(device(100));
  CHECK(model.alloc(0, mib(60), Stream::compute, Nanos{0}));
  model.free(0, Stream::copy_out, Nanos{1}, Nanos{50});
  CHECK(model.alloc(1, mib(80), Stream::compute, Nanos{2}));
  CHECK(model.allocator().counters().retries == 1);
  model.free(1, Stream::copy_out, Nanos{3}, Nanos{100});
  CHECK(model.alloc(2, mib(10), Stream::compute, Nanos{60}));
  CHECK(model.figures() == AllocatorFigures{mib(10), mib(90), mib(90), Bytes{}});
}
