/// Which blocks and segments does a framework's allocator hold for the storages a step asks for?
///
/// The engine's one virtual seam. `simulate` calls it in host issue order. `live` is the engine's own running total
/// and needs no allocator; a model of a real one (caching, arena) stands behind this interface.
#pragma once

#include <cstddef>
#include <optional>

#include "tidemark/base/units.hpp"
#include "tidemark/base/vocabulary.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// What an allocator's own counters say at one moment (M12).
struct AllocatorFigures {
  Bytes allocated;       // blocks handed out, after rounding
  Bytes active;          // allocated, and freed blocks that wait for another stream
  Bytes reserved;        // segments taken from the device
  Bytes inactive_split;  // free parts of segments in use: fragmentation
  friend bool operator==(const AllocatorFigures&, const AllocatorFigures&) = default;
};

/// Why a request failed, and what would not have.
struct Shortage {
  Bytes requested;
  Bytes needed;             // rounded, as a new reservation
  Bytes device_free;        // left on the device for this process
  Bytes largest_free;       // block of this stream that could be handed out
  Bytes would_have_fitted;  // the largest request that would have been served
  friend bool operator==(const Shortage&, const Shortage&) = default;
};

/// An answer, not an error: the request that the device could not serve.
struct OutOfMemory {
  std::size_t event = 0;  // index into Timeline::events of the alloc that failed
  StorageId storage = no_id;
  OpId op = no_id;
  Bytes requested;
  Stream stream = Stream::compute;
  AllocatorFigures figures;               // when it failed
  std::optional<Shortage> shortage = {};  // where the allocator can tell
  friend bool operator==(const OutOfMemory&, const OutOfMemory&) = default;
};

class Allocator {
 public:
  virtual ~Allocator() = default;
  /// The host asks for `bytes` > 0 for `storage`, in the pool of `stream`, at host time `now` (never decreasing).
  /// false: out of memory, and the allocator is not called again.
  [[nodiscard]] virtual bool alloc(StorageId storage, Bytes bytes, Stream stream, Nanos now) = 0;
  /// The host lets go at `now`. The storage was last used on `stream`, which has done all that was issued to it at
  /// `ready` >= now. A block of another stream's pool stays active until then (record_stream); one of the same
  /// stream's pool can be handed out again at once, as the stream's own order protects it.
  virtual void free(StorageId storage, Stream stream, Nanos now, Nanos ready) = 0;
  virtual AllocatorFigures figures() const = 0;

 protected:
  Allocator() = default;
  Allocator(const Allocator&) = default;
  Allocator& operator=(const Allocator&) = default;
};

/// The exact lower bound behind the seam: no rounding, no caching, no deferral. Every figure is what is handed out.
class LiveAllocator final : public Allocator {
 public:
  explicit LiveAllocator(const Step& step) : step_(&step) {}
  bool alloc(StorageId storage, Bytes bytes, Stream stream, Nanos now) override;
  void free(StorageId storage, Stream stream, Nanos now, Nanos ready) override;
  AllocatorFigures figures() const override { return {live_, live_, live_, {}}; }

 private:
  const Step* step_;
  Bytes live_;
};

}  // namespace tidemark
