/// What does an allocator's model say of a run, beyond how much it reserved?
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/report/json_writer.hpp"

namespace tidemark {

/// From which step on is every step like the one before, in all four of the allocator's curves, event for event?
struct SteadyState {
  std::optional<int> first;  // step 0, 1, ...; none: not within `replayed`
  int replayed = 0;          // steps
  Bytes reserved;            // at most, in the last step replayed
  friend bool operator==(const SteadyState&, const SteadyState&) = default;
};

/// One piece of reserved memory with free parts that blocks in use hold apart.
struct SplitSegment {
  Bytes bytes;         // all of it
  Bytes free;          // its free parts
  Bytes largest_free;  // one of them
  std::int64_t holes = 0;
  std::vector<std::string> between;  // the tensors beside the holes, the largest first, each name once
  friend bool operator==(const SplitSegment&, const SplitSegment&) = default;
};

/// Where the reserved bytes are at the moment at which they are most (out of memory: at that moment).
struct Fragmentation {
  std::string op, layer;  // "" at the start, before any op
  std::string phase;
  int step = 0;
  Bytes reserved;
  Bytes live;      // requested, of blocks in use
  Bytes rounding;  // of those blocks beyond what was requested, unsplit rests included
  Bytes waiting;   // freed, but another stream has yet to pass
  Bytes free;      // in holes of segments in use
  Bytes unused;    // in segments no block is in
  std::int64_t holes = 0;
  Bytes largest_free;
  std::vector<SplitSegment> segments;  // the most free bytes first
  friend bool operator==(const Fragmentation&, const Fragmentation&) = default;
};

/// An arena's height, and below which none can be.
struct ArenaFigures {
  Bytes height, lower_bound, live_peak;
  std::int64_t storages = 0;
  friend bool operator==(const ArenaFigures&, const ArenaFigures&) = default;
};

struct AllocatorFindings {
  std::string kind;  // cuda_caching, arena; "" without a model
  std::int64_t retries = 0;
  std::optional<SteadyState> steady;
  std::optional<Fragmentation> fragmentation;
  std::optional<ArenaFigures> arena;
  friend bool operator==(const AllocatorFindings&, const AllocatorFindings&) = default;
};

/// The members of the summary's `allocator` object.
void write_findings(JsonWriter& out, const AllocatorFindings& findings);

}  // namespace tidemark
