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

}  // namespace tidemark
