// Requests, in the order PyTorch tries to serve them. Each rule names the function of CUDACachingAllocator.cpp it
// follows.
#include "tidemark/engine/caching_allocator.hpp"

#include <algorithm>
#include <bit>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

constexpr Bytes small_reservation{2 << 20};
constexpr Bytes large_reservation{20 << 20};

constexpr Bytes round_up(Bytes value, std::int64_t step) { return {(value.count + step - 1) / step * step}; }

}  // namespace

/// get_allocation_size.
Bytes CachingAllocator::reservation_for(Bytes size) {
  if (size <= small_limit) return small_reservation;
  if (size < own_reservation) return large_reservation;
  return round_up(size, small_reservation.count);
}

CachingAllocator::CachingAllocator(const CachingSettings& settings) : settings_(settings) {
  if (settings.memory_fraction) set_memory_fraction(*settings.memory_fraction);
}

/// setMemoryFraction.
void CachingAllocator::set_memory_fraction(double fraction) {
  if (!settings_.capacity) return;
  limit_ = Bytes{static_cast<std::int64_t>(fraction * static_cast<double>(settings_.capacity->count))};
}

/// round_size, roundup_power2_next_division, CUDAAllocatorConfig::roundup_power2_divisions.
Bytes CachingAllocator::rounded(Bytes bytes) const {
  if (bytes < smallest_block) return smallest_block;
  const auto size = static_cast<std::uint64_t>(bytes.count);
  const int log2 = static_cast<int>(std::bit_width(size)) - 1;
  const auto divisions = settings_.roundup_power2_divisions[static_cast<std::size_t>(std::clamp(log2 - 20, 0, 15))];
  if (divisions <= 1 || bytes <= divisions * smallest_block) return round_up(bytes, smallest_block.count);
  const std::uint64_t step = std::bit_floor(size) / std::bit_floor(static_cast<std::uint64_t>(divisions));
  return round_up(bytes, static_cast<std::int64_t>(step));
}

/// malloc.
std::optional<BlockId> CachingAllocator::allocate(Bytes bytes, StreamId stream) {
  process_events();
  Request request{.bytes = bytes, .size = rounded(bytes), .stream = stream};
  request.pool = request.size <= small_limit ? Pool::small : Pool::large;
  request.reservation = reservation_for(request.size);
  if (!find_free(request)) {
    if (limit_ && settings_.garbage_collection_threshold > 0) collect_garbage();
    bool found = reserve(request) || (release_oversize(request) && reserve(request));
    if (!found) {
      release_cached();
      ++counters_.retries;
      found = reserve(request);
    }
    if (!found) {
      ++counters_.out_of_memory;
      return std::nullopt;
    }
  }
  return hand_out(request);
}

bool CachingAllocator::may_hand_out(Bytes block, Bytes request) const {
  if (!settings_.max_split_size) return true;
  if (request < *settings_.max_split_size) return block < *settings_.max_split_size;
  return block < request + settings_.max_non_split_rounding;
}

/// get_free_block: the best fit, or nothing; a best fit that may not be used ends the search.
bool CachingAllocator::find_free(Request& request) {
  PoolLists& pool = pools_[static_cast<std::size_t>(request.pool)];
  if (limit_ && settings_.garbage_collection_threshold > 0) ++pool.searches;
  FreeList& free = lists(request.pool, request.stream).free;
  auto it = free.at_least(request.size);
  if (it == free.end()) return false;
  if (blocks_[it->block].range != none) {
    auto next = it;
    ++next;
    while (next != free.end() && expandable_size(blocks_[next->block]) < expandable_size(blocks_[it->block])) {
      it = next;
      ++next;
    }
  }
  if (!may_hand_out(it->size, request.size)) return false;
  request.found = it->block;
  free.erase(it);
  return true;
}

/// A block beside unmapped addresses counts as large as it can grow.
Bytes CachingAllocator::expandable_size(const Block& block) const {
  const bool grows = block.next != none && !blocks_[block.next].mapped;
  return grows ? block.size + blocks_[block.next].size : block.size;
}

/// garbage_collect_cached_blocks: whole large reservations that were not used for longer than the average.
void CachingAllocator::collect_garbage() {
  const Bytes threshold{
      static_cast<std::int64_t>(settings_.garbage_collection_threshold * static_cast<double>(limit_->count))};
  const Bytes reserved = counters_.reserved_bytes.all.current;
  if (reserved <= threshold) return;
  PoolLists& pool = pools_[static_cast<std::size_t>(Pool::large)];
  std::vector<BlockId> candidates;
  std::int64_t total_age = 0;
  const auto age = [&](BlockId block) { return pool.searches - blocks_[block].inserted_at; };
  for (const StreamLists& stream : pool.streams)
    for (const auto& free : stream.free)
      if (!blocks_[free.block].is_split()) {
        candidates.push_back(free.block);
        total_age += age(free.block);
      }
  Bytes reclaimed;
  bool freed_one = true;
  while (reclaimed < reserved - threshold && freed_one && !candidates.empty()) {
    const double average = static_cast<double>(total_age) / static_cast<double>(candidates.size());
    freed_one = std::erase_if(candidates, [&](BlockId block) {
                  if (static_cast<double>(age(block)) < average) return false;
                  reclaimed += blocks_[block].size;
                  total_age -= age(block);
                  give_back(block);
                  return true;
                }) > 0;
  }
}

Bytes CachingAllocator::device_left() const {
  const std::optional<Bytes> all = settings_.available ? settings_.available : settings_.capacity;
  return all ? *all - counters_.reserved_bytes.all.current : Bytes{std::int64_t{1} << 60};
}

/// alloc_block: a new reservation of the device, or pages of an expandable range.
bool CachingAllocator::reserve(Request& request) {
  if (limit_ && counters_.reserved_bytes.all.current + request.reservation > *limit_) return false;
  if (settings_.expandable_segments) {
    request.found = reserve_expandable(request);
    return request.found != none;
  }
  if (request.reservation > device_left()) return false;
  request.found = new_block(
      {.address = next_address_, .size = request.reservation, .stream = request.stream, .pool = request.pool});
  next_address_ += request.reservation.count;
  counters_.reservations.add(request.pool, 1);
  counters_.reserved_bytes.add(request.pool, request.reservation);
  if (settings_.max_split_size && request.reservation >= *settings_.max_split_size)
    counters_.oversize_reservations.add(1);
  ++counters_.device_allocs;
  return true;
}

/// release_available_cached_blocks: under max_split_size, oversize blocks go back before everything does.
bool CachingAllocator::release_oversize(const Request& request) {
  if (!settings_.max_split_size) return false;
  const Bytes wanted = std::max(request.size, *settings_.max_split_size);
  FreeList& free = lists(request.pool, request.stream).free;
  const auto fits = free.at_least(wanted);
  if (fits != free.end() && blocks_[fits->block].range == none) {
    give_back(fits->block);
    return true;
  }
  std::vector<BlockId> largest_first;
  Bytes released;
  for (auto it = fits; it != free.begin() && released < wanted;) {
    --it;
    if (it->size < *settings_.max_split_size) break;
    if (blocks_[it->block].range != none) continue;  // PyTorch before 2.9 stops with an internal error here
    largest_first.push_back(it->block);
    released += it->size;
  }
  for (const BlockId block : largest_first) give_back(block);
  return released >= wanted;
}

/// release_cached_blocks: what no one uses goes back to the device, after all streams have passed.
void CachingAllocator::release_cached() {
  wait_for_events();
  release_pool(Pool::large);
  release_pool(Pool::small);
}

/// should_split.
bool CachingAllocator::should_split(const Block& block, Bytes size) const {
  const Bytes rest = block.size - size;
  if (block.pool == Pool::small || settings_.expandable_segments) return rest >= smallest_block;
  return (!settings_.max_split_size || size < *settings_.max_split_size) && rest > small_limit;
}

/// alloc_found_block: the front is handed out, the rest goes back to the free list.
BlockId CachingAllocator::hand_out(const Request& request) {
  BlockId id = request.found;
  const bool was_split = blocks_[id].is_split();
  const bool expandable = blocks_[id].range != none;
  if (should_split(blocks_[id], request.size)) {
    const BlockId rest = id;
    id = split_front(rest, request.size);
    insert_free(rest);
    if (!expandable && was_split) {
      counters_.inactive_split_bytes.subtract(request.pool, request.size);
    } else if (!expandable) {
      counters_.inactive_split_bytes.add(request.pool, blocks_[rest].size);
      counters_.inactive_splits.add(request.pool, 1);
    }
  } else if (was_split && !expandable) {
    counters_.inactive_split_bytes.subtract(request.pool, blocks_[id].size);
    counters_.inactive_splits.subtract(request.pool, 1);
  }
  Block& block = blocks_[id];
  block.allocated = true;
  block.requested = request.bytes;
  counters_.allocations.add(request.pool, 1);
  counters_.allocated_bytes.add(request.pool, block.size);
  counters_.active.add(request.pool, 1);
  counters_.active_bytes.add(request.pool, block.size);
  counters_.requested_bytes.add(request.pool, block.requested);
  if (settings_.max_split_size && block.size >= *settings_.max_split_size) counters_.oversize_allocations.add(1);
  return id;
}

/// emptyCache.
void CachingAllocator::empty_cache() { release_cached(); }

}  // namespace tidemark
