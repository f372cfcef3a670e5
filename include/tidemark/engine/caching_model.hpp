/// How does the caching allocator serve a Step: storages for blocks, recorded streams for late frees?
#pragma once

#include <array>
#include <deque>
#include <vector>

#include "tidemark/engine/allocator.hpp"
#include "tidemark/engine/caching_allocator.hpp"

namespace tidemark {

/// PyTorch's allocator behind the engine's seam. A storage freed by another stream than its own is recorded on that
/// stream, so its block stays active until the stream has passed and the next request looks.
class CachingModel final : public Allocator {
 public:
  explicit CachingModel(const CachingSettings& settings) : allocator_(settings) {}
  bool alloc(StorageId storage, Bytes bytes, Stream stream, Nanos now) override;
  void free(StorageId storage, Stream stream, Nanos now, Nanos ready) override;
  AllocatorFigures figures() const override;

  const CachingAllocator& allocator() const { return allocator_; }
  /// The block of a storage that is alive.
  BlockId block(StorageId storage) const { return blocks_[storage].id; }

 private:
  struct Held {
    BlockId id = 0;
    Stream stream = Stream::compute;
  };
  CachingAllocator allocator_;
  std::vector<Held> blocks_;                                    // by storage
  std::array<std::deque<Nanos>, stream_names.size()> waiting_;  // when each event of a stream is reached
};

}  // namespace tidemark
