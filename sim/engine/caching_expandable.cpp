// Expandable ranges of the caching allocator: addresses for the whole device, memory page by page.
//
//   | handed out | free |  unmapped: addresses without memory            |
//   0            a      b (a multiple of the page)                       1.125 x capacity
#include <algorithm>

#include "tidemark/base/errors.hpp"
#include "tidemark/engine/caching_allocator.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t small_page = 2 << 20;
constexpr std::int64_t large_page = 20 << 20;
constexpr std::int64_t unlimited = std::int64_t{1} << 50;

std::int64_t pages(std::int64_t bytes, std::int64_t page) { return (bytes + page - 1) / page; }

}  // namespace

/// try_allocate_expandable_block: the block, out of its list, or none.
BlockId CachingAllocator::reserve_expandable(const Request& request) {
  BlockId id = find_expandable(request);
  if (!blocks_[id].mapped && !map(id, std::min(blocks_[id].size, request.size))) return none;
  while (blocks_[id].size < request.size) {
    const BlockId next = blocks_[id].next;  // unmapped; mapping it merges the block into it
    if (!map(next, std::min(request.size - blocks_[id].size, blocks_[next].size))) return none;
    id = next;
  }
  erase_free(id);
  return id;
}

/// find_expandable_block: the lowest unmapped addresses, with the free block before them, that have room.
BlockId CachingAllocator::find_expandable(const Request& request) {
  for (const auto& [address, unmapped] : lists(request.pool, request.stream).unmapped) {
    const BlockId previous = blocks_[unmapped].previous;
    const BlockId from = previous != none && blocks_[previous].is_free() ? previous : unmapped;
    if (has_room(from, request.size)) return from;
  }
  const std::int64_t page = request.pool == Pool::small ? small_page : large_page;
  const std::int64_t capacity = settings_.capacity ? settings_.capacity->count : unlimited;
  const Range range{next_address_, {page * pages(capacity + capacity / 8, page)}, {page}};
  next_address_ += range.size.count;
  ranges_.push_back(range);
  const BlockId id = new_block({.address = range.address,
                                .size = range.size,
                                .stream = request.stream,
                                .range = static_cast<std::uint32_t>(ranges_.size() - 1),
                                .pool = request.pool,
                                .mapped = false});
  lists(request.pool, request.stream).unmapped.insert({range.address, id});
  return id;
}

bool CachingAllocator::has_room(BlockId from, Bytes size) const {
  Bytes room;
  for (BlockId id = from; id != none && room < size && blocks_[id].is_free(); id = blocks_[id].next)
    room += blocks_[id].size;
  return room >= size;
}

/// map_block: memory for the front pages of an unmapped block; false when the device has not enough.
bool CachingAllocator::map(BlockId id, Bytes size) {
  const Block block = blocks_[id];
  const std::int64_t page = ranges_[block.range].page.count;
  const Bytes mapped{page * pages(size.count, page)};
  if (mapped > device_left()) return false;
  lists(block).unmapped.erase({block.address, id});
  if (mapped < block.size) {
    Block rest = block;
    rest.address += mapped.count;
    rest.size -= mapped;
    const BlockId rest_id = new_block(rest);
    link_between(rest_id, id, block.next);
    lists(block).unmapped.insert({rest.address, rest_id});
    blocks_[id].size = mapped;
  }
  blocks_[id].mapped = true;
  merge(id, blocks_[id].previous);
  merge(id, blocks_[id].next);
  insert_free(id);
  counters_.reserved_bytes.add(block.pool, mapped);
  ++counters_.device_allocs;
  return true;
}

/// unmap_block: the whole pages of a free block go back to the device; its edges stay.
void CachingAllocator::unmap(BlockId id) {
  const Range range = ranges_[blocks_[id].range];
  const std::int64_t page = range.page.count;
  const std::int64_t offset = blocks_[id].address - range.address;
  const std::int64_t begin = page * pages(offset, page);
  const std::int64_t end = (offset + blocks_[id].size.count) / page * page;
  if (begin >= end) return;
  erase_free(id);
  if (begin > offset) insert_free(split_front(id, {begin - offset}));
  if (const Bytes after = blocks_[id].size - Bytes{end - begin}; after > Bytes{}) {
    Block rest = blocks_[id];
    rest.address = range.address + end;
    rest.size = after;
    const BlockId rest_id = new_block(rest);
    link_between(rest_id, id, rest.next);
    blocks_[id].size -= after;
    insert_free(rest_id);
  }
  blocks_[id].mapped = false;
  merge(id, blocks_[id].previous);
  merge(id, blocks_[id].next);
  const Block& block = blocks_[id];
  counters_.reserved_bytes.subtract(block.pool, {end - begin});
  ++counters_.device_frees;
  if (block.is_split()) {
    lists(block).unmapped.insert({block.address, id});
  } else {
    spare_.push_back(id);  // release_expandable_segment: the range itself goes
  }
}

}  // namespace tidemark
