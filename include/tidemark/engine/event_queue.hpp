/// Which storages are still to be freed by streams that lag behind the host, and which goes next?
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/base/vocabulary.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

struct PendingFree {
  Nanos time;
  std::uint64_t sequence = 0;  // the host's; decides between equal times
  StorageId storage = no_id;
  OpId op = no_id;
  friend bool operator==(const PendingFree&, const PendingFree&) = default;
};

/// Ordered by time, then host sequence. A stream's own times never decrease, so each stream is a plain queue and the
/// next event is the least of four heads: no heap, whatever the backlog.
class EventQueue {
 public:
  static constexpr Nanos never{std::numeric_limits<std::int64_t>::max()};

  /// `pending.time` is not before that of an earlier push on the same stream.
  void push(Stream stream, const PendingFree& pending);
  /// `never` when nothing is pending.
  Nanos next_time() const { return next_time_; }
  /// The next one; only when something is pending.
  PendingFree pop();

 private:
  struct Fifo {
    std::vector<PendingFree> items;
    std::size_t head = 0;
    bool empty() const { return head == items.size(); }
    const PendingFree& front() const { return items[head]; }
  };
  void find_next();

  std::array<Fifo, stream_names.size()> streams_;
  std::size_t next_stream_ = 0;
  Nanos next_time_ = never;
};

}  // namespace tidemark
