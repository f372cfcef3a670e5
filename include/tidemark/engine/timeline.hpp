/// What was alive at every instant?
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// One alloc or free, 24 bytes. The running total after it is `live`.
struct MemoryEvent {
  Nanos time;
  Bytes live;
  StorageId storage = no_id;
  std::uint32_t op_and_kind = 0;  // op id shifted left by one, lowest bit 1 for alloc; initial events have op no_op

  static constexpr std::uint32_t no_op = std::numeric_limits<std::uint32_t>::max() >> 1;
  bool is_alloc() const { return (op_and_kind & 1U) != 0; }
  OpId op() const { return (op_and_kind >> 1U) == no_op ? no_id : op_and_kind >> 1U; }
  friend bool operator==(const MemoryEvent&, const MemoryEvent&) = default;
};

struct OpSpan {
  Nanos start, end;
  Bytes peak;   // live during the op at most: from its first instruction to its last
  Bytes after;  // live once its script has ended
  friend bool operator==(const OpSpan&, const OpSpan&) = default;
};

/// Allocator figures of an event, by event index; empty when only `live` ran.
struct AllocatorColumn {
  std::vector<Bytes> allocated, reserved;
  friend bool operator==(const AllocatorColumn&, const AllocatorColumn&) = default;
};

struct Timeline {
  std::vector<MemoryEvent> events;  // initial allocs first, then in time order
  std::vector<OpSpan> ops;          // by op id
  Bytes peak;
  std::size_t peak_event = 0;       // the first event that reaches the peak
  Nanos end;                        // when the last stream falls idle
  AllocatorColumn allocator;
  friend bool operator==(const Timeline&, const Timeline&) = default;
};

}  // namespace tidemark
