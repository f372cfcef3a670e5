// Blocks of the caching allocator: free, split, merge, wait for other streams, go back to the device.
#include <algorithm>

#include "tidemark/base/errors.hpp"
#include "tidemark/engine/caching_allocator.hpp"

namespace tidemark {

/// free.
void CachingAllocator::free(BlockId id) {
  check(id < blocks_.size() && blocks_[id].allocated, "only a block that is handed out can be freed");
  Block& block = blocks_[id];
  block.allocated = false;
  counters_.allocations.subtract(block.pool, 1);
  counters_.allocated_bytes.subtract(block.pool, block.size);
  if (settings_.max_split_size && block.size >= *settings_.max_split_size) counters_.oversize_allocations.subtract(1);
  if (!block.recorded) {
    make_free(id);
    return;
  }
  // insert_events: one event on each stream that used the block.
  const auto uses = recorded_.find(id);
  for (const StreamId stream : uses->second) {
    ++block.events;
    waiting_[stream].blocks.push_back(id);
  }
  block.recorded = false;
  recorded_.erase(uses);
}

/// recordStream.
void CachingAllocator::record_stream(BlockId id, StreamId stream) {
  check(id < blocks_.size() && blocks_[id].allocated, "only a block that is handed out can be used on a stream");
  if (blocks_[id].stream == stream) return;
  std::vector<StreamId>& uses = recorded_[id];
  if (std::ranges::find(uses, stream) == uses.end()) uses.push_back(stream);
  blocks_[id].recorded = true;
}

void CachingAllocator::stream_passed(StreamId stream, std::size_t events) {
  const auto it = waiting_.find(stream);
  if (it == waiting_.end()) return;
  it->second.passed = std::min(it->second.passed + events, it->second.blocks.size());
  some_passed_ = true;
}

void CachingAllocator::all_streams_passed() {
  for (auto& [stream, waiting] : waiting_) waiting.passed = waiting.blocks.size();
  some_passed_ = true;
}

/// process_events: in order on each stream, up to the first event that has not been reached.
void CachingAllocator::process_events() {
  if (!some_passed_) return;
  some_passed_ = false;
  for (auto& [stream, waiting] : waiting_) {
    for (; waiting.passed > 0; --waiting.passed) {
      const BlockId block = waiting.blocks.front();
      waiting.blocks.pop_front();
      if (--blocks_[block].events == 0) make_free(block);
    }
  }
}

/// synchronize_and_free_events.
void CachingAllocator::wait_for_events() {
  ++counters_.synchronizations;
  all_streams_passed();
  process_events();
}

CachingAllocator::StreamLists& CachingAllocator::lists(Pool pool, StreamId stream) {
  std::vector<StreamLists>& streams = pools_[static_cast<std::size_t>(pool)].streams;
  if (stream >= streams.size()) streams.resize(stream + 1);
  return streams[stream];
}

BlockId CachingAllocator::new_block(const Block& block) {
  if (spare_.empty()) {
    blocks_.push_back(block);
    return static_cast<BlockId>(blocks_.size() - 1);
  }
  const BlockId id = spare_.back();
  spare_.pop_back();
  blocks_[id] = block;
  return id;
}

/// insert_into_blocks.
void CachingAllocator::insert_free(BlockId id) {
  Block& block = blocks_[id];
  block.inserted_at = pools_[static_cast<std::size_t>(block.pool)].searches;
  lists(block).free.insert({block.size, block.address, id});
}

void CachingAllocator::erase_free(BlockId id) {
  const Block& block = blocks_[id];
  lists(block).free.erase({block.size, block.address, id});
}

void CachingAllocator::link_between(BlockId id, BlockId previous, BlockId next) {
  blocks_[id].previous = previous;
  blocks_[id].next = next;
  if (previous != none) blocks_[previous].next = id;
  if (next != none) blocks_[next].previous = id;
}

/// A new block of `size` in front of `rest`, which shrinks. Neither is in a list.
BlockId CachingAllocator::split_front(BlockId rest, Bytes size) {
  Block front = blocks_[rest];
  front.size = size;
  const BlockId id = new_block(front);
  link_between(id, front.previous, rest);
  blocks_[rest].address += size.count;
  blocks_[rest].size -= size;
  return id;
}

/// try_merge_blocks: `into`, in no list, takes in its neighbour if that is free and backed by memory just as `into` is.
/// The bytes taken in.
Bytes CachingAllocator::merge(BlockId into, BlockId neighbour) {
  if (neighbour == none || !blocks_[neighbour].is_free() || blocks_[into].mapped != blocks_[neighbour].mapped)
    return {};
  const Block taken = blocks_[neighbour];
  if (taken.mapped) {
    erase_free(neighbour);
  } else {
    lists(taken).unmapped.erase({taken.address, neighbour});
  }
  Block& block = blocks_[into];
  block.size += taken.size;
  if (block.previous == neighbour) {
    block.address = taken.address;
    link_between(into, taken.previous, block.next);
  } else {
    link_between(into, block.previous, taken.next);
  }
  spare_.push_back(neighbour);
  return taken.size;
}

/// free_block: no one uses it any more.
void CachingAllocator::make_free(BlockId id) {
  const Bytes size = blocks_[id].size;
  const Bytes requested = blocks_[id].requested;
  const Pool pool = blocks_[id].pool;
  std::int64_t splits = 0;
  Bytes split_bytes;
  for (const BlockId neighbour : {blocks_[id].previous, blocks_[id].next}) {
    const Bytes taken = merge(id, neighbour);
    split_bytes -= taken;
    if (taken > Bytes{}) --splits;
  }
  insert_free(id);
  if (blocks_[id].is_split()) {
    split_bytes += blocks_[id].size;
    ++splits;
  }
  if (blocks_[id].range == none) {
    counters_.inactive_splits.change(pool, splits);
    counters_.inactive_split_bytes.change(pool, split_bytes);
  }
  counters_.active.subtract(pool, 1);
  counters_.active_bytes.subtract(pool, size);
  counters_.requested_bytes.subtract(pool, requested);
}

/// release_block: a whole free reservation.
void CachingAllocator::give_back(BlockId id) {
  erase_free(id);
  const Block& block = blocks_[id];
  ++counters_.device_frees;
  counters_.reservations.subtract(block.pool, 1);
  counters_.reserved_bytes.subtract(block.pool, block.size);
  if (settings_.max_split_size && block.size >= *settings_.max_split_size) counters_.oversize_reservations.subtract(1);
  spare_.push_back(id);
}

/// release_blocks.
void CachingAllocator::release_pool(Pool pool) {
  std::vector<BlockId> whole, expandable;
  for (const StreamLists& stream : pools_[static_cast<std::size_t>(pool)].streams)
    for (const auto& free : stream.free) {
      if (blocks_[free.block].range != none) {
        expandable.push_back(free.block);
      } else if (!blocks_[free.block].is_split()) {
        whole.push_back(free.block);
      }
    }
  for (const BlockId block : whole) give_back(block);
  for (const BlockId block : expandable) unmap(block);
}

}  // namespace tidemark
