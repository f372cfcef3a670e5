// Whatever is asked of the caching allocator, does its picture of memory hold together?
#include "tidemark/engine/caching_allocator.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <vector>

using namespace tidemark;

namespace {

enum class Op { allocate, free, record, pass, pass_all, empty };
struct Request {
  Op op;
  std::int64_t bytes;
  std::uint32_t stream;
  std::uint32_t pick;
};

void showValue(const Request& r, std::ostream& out) {
  out << "{" << static_cast<int>(r.op) << ", " << r.bytes << ", " << r.stream << ", " << r.pick << "}";
}

rc::Gen<std::int64_t> bytes() {
  return rc::gen::oneOf(rc::gen::inRange<std::int64_t>(1, 4096), rc::gen::inRange<std::int64_t>(1, 2 << 20),
                        rc::gen::inRange<std::int64_t>(1 << 20, 64 << 20));
}

rc::Gen<Request> request() {
  return rc::gen::map(
      rc::gen::tuple(
          rc::gen::weightedElement<Op>(
              {{10, Op::allocate}, {8, Op::free}, {2, Op::record}, {2, Op::pass}, {1, Op::pass_all}, {1, Op::empty}}),
          bytes(), rc::gen::inRange<std::uint32_t>(0, 3), rc::gen::arbitrary<std::uint32_t>()),
      [](const auto& t) {
        return Request{std::get<0>(t), std::get<1>(t), std::get<2>(t), std::get<3>(t)};
      });
}

CachingSettings any_settings() {
  CachingSettings settings;
  settings.expandable_segments = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) settings.capacity = Bytes{*rc::gen::inRange<std::int64_t>(40, 400) << 20};
  if (*rc::gen::arbitrary<bool>()) settings.max_split_size = Bytes{*rc::gen::inRange<std::int64_t>(21, 60) << 20};
  settings.roundup_power2_divisions.fill(*rc::gen::element<std::int64_t>(0, 1, 2, 4, 16));
  if (settings.capacity && *rc::gen::arbitrary<bool>()) {
    settings.memory_fraction = 0.8;
    settings.garbage_collection_threshold = *rc::gen::element(0.0, 0.3, 0.9);
  }
  return settings;
}

/// The referee's view of addresses: what is handed out, kept by the test.
struct Held {
  BlockId block;
  std::int64_t address;
  Bytes size, asked;
};

void no_overlap(std::vector<Held> held) {
  std::ranges::sort(held, {}, &Held::address);
  for (std::size_t i = 0; i + 1 < held.size(); ++i)
    RC_ASSERT(held[i].address + held[i].size.count <= held[i + 1].address);
}

template <class Get>
Bytes sum(const std::vector<Reservation>& reservations, Get get) {
  Bytes total;
  for (const Reservation& r : reservations) total += get(r);
  return total;
}

Bytes in_state(const Reservation& r, Reservation::State state) {
  Bytes total;
  for (const Reservation::Block& b : r.blocks)
    if (b.state == state) total += b.size;
  return total;
}

/// Counters against the picture, and the picture against itself.
void holds_together(const CachingAllocator& allocator, const std::vector<Held>& held) {
  using enum Reservation::State;
  const CachingCounters& now = allocator.counters();
  const std::vector<Reservation> all = allocator.reservations();
  Bytes live;
  for (const Held& h : held) {
    live += h.asked;
    RC_ASSERT(h.asked <= h.size);
  }
  const Bytes handed_out = sum(all, [](const Reservation& r) { return in_state(r, allocated); });
  const Bytes pending = sum(all, [](const Reservation& r) { return in_state(r, pending_free); });
  RC_ASSERT(now.allocated_bytes.all.current == handed_out);
  RC_ASSERT(now.active_bytes.all.current == handed_out + pending);
  RC_ASSERT(now.reserved_bytes.all.current == sum(all, [](const Reservation& r) { return r.size; }));
  RC_ASSERT(now.inactive_split_bytes.all.current == sum(all, [](const Reservation& r) {
              return r.expandable || r.blocks.size() == 1 ? Bytes{} : in_state(r, free);
            }));
  RC_ASSERT(live <= now.allocated_bytes.all.current);
  RC_ASSERT(now.allocated_bytes.all.current <= now.active_bytes.all.current);
  RC_ASSERT(now.active_bytes.all.current <= now.reserved_bytes.all.current);
  for (const Pool pool : {Pool::small, Pool::large})
    RC_ASSERT(now.reserved_bytes[pool].current ==
              sum(all, [&](const Reservation& r) { return r.pool == pool ? r.size : Bytes{}; }));
  for (const Reservation& r : all) {
    std::int64_t at = r.address;
    bool before_was_free = false;
    for (const Reservation::Block& b : r.blocks) {
      RC_ASSERT(b.address == at);
      RC_ASSERT(!(before_was_free && b.state == free));  // neighbours merge
      before_was_free = b.state == free;
      at += b.size.count;
    }
    RC_ASSERT(at == r.address + r.size.count);
  }
}

void serve(CachingAllocator& allocator, const Request& request, std::vector<Held>& held) {
  const std::size_t pick = held.empty() ? 0 : request.pick % held.size();
  switch (request.op) {
    case Op::allocate:
      if (const auto block = allocator.allocate(Bytes{request.bytes}, request.stream))
        held.push_back({*block, allocator.address(*block), allocator.size(*block), Bytes{request.bytes}});
      break;
    case Op::free:
      if (held.empty()) break;
      allocator.free(held[pick].block);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(pick));
      break;
    case Op::record:
      if (!held.empty()) allocator.record_stream(held[pick].block, request.stream);
      break;
    case Op::pass:
      allocator.stream_passed(request.stream, 1 + request.pick % 3);
      break;
    case Op::pass_all:
      allocator.all_streams_passed();
      break;
    case Op::empty:
      allocator.empty_cache();
      break;
  }
}

/// After empty_cache only reservations with a block in use are left; of expandable ranges, only pages with one.
void nothing_whole_is_left(const CachingAllocator& allocator) {
  for (const Reservation& r : allocator.reservations()) {
    if (!r.expandable) RC_ASSERT(in_state(r, Reservation::State::allocated) > Bytes{});
    const std::int64_t page = (r.pool == Pool::small ? 2 : 20) << 20;
    for (const Reservation::Block& b : r.blocks)
      if (r.expandable && b.state == Reservation::State::free) {
        const std::int64_t range = r.address;  // ranges begin at a page
        const std::int64_t first_page = (b.address - range + page - 1) / page;
        const std::int64_t last_page = (b.address + b.size.count - range) / page;
        RC_ASSERT(first_page >= last_page);
      }
  }
}

}  // namespace

TEST_CASE("caching allocator: after every request the picture holds together") {
  CHECK(rc::check([] {
    CachingAllocator allocator(any_settings());
    std::vector<Held> held;
    for (const Request& r : *rc::gen::container<std::vector<Request>>(request())) {
      serve(allocator, r, held);
      no_overlap(held);
      holds_together(allocator, held);
      for (const Held& h : held) {
        RC_ASSERT(allocator.address(h.block) == h.address);
        RC_ASSERT(allocator.size(h.block) == h.size);
      }
      if (r.op == Op::empty) nothing_whole_is_left(allocator);
    }
    for (const Held& h : held) allocator.free(h.block);
    allocator.empty_cache();
    RC_ASSERT(allocator.reservations().empty());
    RC_ASSERT(allocator.counters().reserved_bytes.all.freed() == allocator.counters().reserved_bytes.all.allocated);
  }));
}

TEST_CASE("caching allocator: what would have fitted fits, and 512 B more does not") {
  CHECK(rc::check([] {
    CachingSettings settings = any_settings();
    settings.capacity = Bytes{*rc::gen::inRange<std::int64_t>(40, 200) << 20};
    CachingAllocator allocator(settings);
    std::vector<Held> held;
    for (const Request& r : *rc::gen::container<std::vector<Request>>(request())) serve(allocator, r, held);
    const Bytes wanted{512 << 20};
    RC_ASSERT(!allocator.allocate(wanted));
    const Shortage why = allocator.shortage(wanted);
    if (why.would_have_fitted > Bytes{})
      RC_ASSERT(CachingAllocator(allocator).allocate(why.would_have_fitted).has_value());
    for (const Bytes more : {why.would_have_fitted + Bytes{512}, why.would_have_fitted + Bytes{*bytes()}})
      RC_ASSERT(!CachingAllocator(allocator).allocate(more).has_value());
  }));
}
