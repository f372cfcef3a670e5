#include "tidemark/engine/allocator.hpp"

namespace tidemark {

bool LiveAllocator::alloc(StorageId /*storage*/, Bytes bytes, Stream /*stream*/, Nanos /*now*/) {
  live_ += bytes;
  return true;
}

void LiveAllocator::free(StorageId storage, Stream /*stream*/, Nanos /*now*/, Nanos /*ready*/) {
  live_ -= step_->storages[storage].bytes;
}

}  // namespace tidemark
