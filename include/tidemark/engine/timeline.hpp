/// What was alive at every instant?
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/engine/allocator.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// One alloc or free, 24 bytes. The running total after it, of the storage's rank, is `live`.
struct MemoryEvent {
  Nanos time;
  Bytes live;
  StorageId storage = no_id;
  std::uint32_t op_and_kind = 0;  // op id shifted left by one, lowest bit 1 for alloc; initial events have op no_op

  static constexpr std::uint32_t no_op = std::numeric_limits<std::uint32_t>::max() >> 1;
  static constexpr std::uint32_t pack(OpId op, bool is_alloc) { return (op << 1U) | (is_alloc ? 1U : 0U); }
  bool is_alloc() const { return (op_and_kind & 1U) != 0; }
  OpId op() const { return (op_and_kind >> 1U) == no_op ? no_id : op_and_kind >> 1U; }
  friend bool operator==(const MemoryEvent&, const MemoryEvent&) = default;
};

/// When an op's kernel ran (an op without one: when its script did).
struct OpSpan {
  static constexpr Nanos never_ran{-1};
  Nanos start = never_ran, end = never_ran;
  Bytes peak;   // live at most, while its script is issued and while its kernel runs
  Bytes after;  // live once its script has ended; on a stream that lags, once the stream has done it
  friend bool operator==(const OpSpan&, const OpSpan&) = default;
};

/// The allocator's figures after each event, by event index; empty when only `live` ran. They end with the last
/// event before an out-of-memory: from there on only live bytes are known.
struct AllocatorColumn {
  std::vector<Bytes> allocated, active, reserved, inactive_split;
  friend bool operator==(const AllocatorColumn&, const AllocatorColumn&) = default;
};

struct Timeline {
  std::vector<MemoryEvent> events;  // initial allocs first, then in time order
  std::vector<OpSpan> ops;          // by op id
  Bytes peak;
  std::size_t peak_event = 0;  // the first event that reaches the peak
  Nanos end;                   // when the last stream falls idle
  AllocatorColumn allocator;
  std::optional<OutOfMemory> out_of_memory;  // the first, of any rank
  friend bool operator==(const Timeline&, const Timeline&) = default;
};

}  // namespace tidemark
