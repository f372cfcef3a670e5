#include "tidemark/engine/caching_model.hpp"

namespace tidemark {

bool CachingModel::alloc(StorageId storage, Bytes bytes, Stream stream, Nanos now) {
  for (std::size_t s = 0; s < waiting_.size(); ++s) {
    for (std::deque<Nanos>& events = waiting_[s]; !events.empty() && events.front() <= now; events.pop_front())
      allocator_.stream_passed(static_cast<CachingAllocator::StreamId>(s));
  }
  const auto waits = allocator_.counters().synchronizations;
  const auto block = allocator_.allocate(bytes, static_cast<CachingAllocator::StreamId>(stream));
  if (allocator_.counters().synchronizations != waits) waiting_ = {};  // it waited for every stream
  if (!block) return false;
  if (storage >= blocks_.size()) blocks_.resize(storage + std::size_t{1});
  blocks_[storage] = {*block, stream};
  return true;
}

void CachingModel::free(StorageId storage, Stream stream, Nanos /*now*/, Nanos ready) {
  const Held held = blocks_[storage];
  if (stream != held.stream) {
    allocator_.record_stream(held.id, static_cast<CachingAllocator::StreamId>(stream));
    waiting_[static_cast<std::size_t>(stream)].push_back(ready);
  }
  allocator_.free(held.id);
}

AllocatorFigures CachingModel::figures() const {
  const CachingCounters& now = allocator_.counters();
  return {now.allocated_bytes.all.current, now.active_bytes.all.current, now.reserved_bytes.all.current,
          now.inactive_split_bytes.all.current};
}

}  // namespace tidemark
