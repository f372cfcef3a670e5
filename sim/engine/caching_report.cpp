// What the caching allocator says of itself: its reservations, and why a request failed.
#include <algorithm>

#include "tidemark/engine/caching_allocator.hpp"

namespace tidemark {

std::vector<Reservation> CachingAllocator::reservations() const {
  std::vector<char> gone(blocks_.size(), 0);
  for (const BlockId id : spare_) gone[id] = 1;
  std::vector<Reservation> out;
  for (BlockId head = 0; head < blocks_.size(); ++head) {
    const Block& first = blocks_[head];
    if (gone[head] != 0 || !first.mapped || (first.previous != none && blocks_[first.previous].mapped)) continue;
    Reservation& reservation = out.emplace_back();
    reservation.address = first.address;
    reservation.stream = first.stream;
    reservation.pool = first.pool;
    reservation.expandable = first.range != none;
    for (BlockId id = head; id != none && blocks_[id].mapped; id = blocks_[id].next) {
      const Block& block = blocks_[id];
      const auto state = block.allocated   ? Reservation::State::allocated
                         : block.is_free() ? Reservation::State::free
                                           : Reservation::State::pending_free;
      reservation.size += block.size;
      reservation.blocks.push_back({id, block.address, block.size, block.requested, state});
    }
  }
  std::ranges::sort(out, {}, &Reservation::address);
  return out;
}

/// The largest request that is rounded to at most `block`.
Bytes CachingAllocator::rounded_down(Bytes block) const {
  std::int64_t low = 0, high = block.count / smallest_block.count;  // rounding is monotone
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (rounded(middle * smallest_block) <= block) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low * smallest_block;
}

bool CachingAllocator::would_serve(Bytes bytes, StreamId stream) const {
  CachingAllocator copy = *this;
  return copy.allocate(bytes, stream).has_value();
}

/// What can be served either lies in a free block, or in new memory. Of new memory any smaller request of the same kind
/// can be served too, so halving finds the largest of each kind; of free blocks each may be tried.
Shortage CachingAllocator::shortage(Bytes bytes, StreamId stream) const {
  Shortage out;
  out.requested = bytes;
  out.needed = reservation_for(rounded(bytes));
  out.device_free = device_left();
  if (limit_) out.device_free = std::min(out.device_free, *limit_ - counters_.reserved_bytes.all.current);
  Bytes& best = out.would_have_fitted;
  const auto served = [&](Bytes size) { return size > Bytes{} && would_serve(size, stream); };
  for (const PoolLists& pool : pools_) {
    if (stream >= pool.streams.size()) continue;
    const FreeList& free = pool.streams[stream].free;
    for (auto it = free.end(); it != free.begin();) {
      --it;
      out.largest_free = std::max(out.largest_free, it->size);
      const Bytes fits = rounded_down(it->size);
      if (fits <= best) break;
      if (served(fits)) best = fits;
    }
  }
  // By kind of reservation: 2 MiB, 20 MiB, its own size. Counted in smallest blocks.
  const auto units = [](Bytes amount) { return amount.count / smallest_block.count; };
  const std::int64_t end = units(out.device_free + out.largest_free) + 1;  // nothing of this size can be served
  const std::array borders = {std::int64_t{1}, units(small_limit) + 1, units(own_reservation), end};
  for (std::size_t kind = 0; kind + 1 < borders.size(); ++kind) {
    std::int64_t low = borders[kind], high = borders[kind + 1];
    if (low >= high || !served(low * smallest_block)) continue;
    while (high - low > 1) {
      const std::int64_t middle = (low + high) / 2;
      (served(middle * smallest_block) ? low : high) = middle;
    }
    best = std::max(best, low * smallest_block);
  }
  return out;
}

}  // namespace tidemark
