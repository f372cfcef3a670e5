/// What is still to happen on streams that lag behind the host, and what comes next?
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/base/vocabulary.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

struct Pending {
  enum class What : std::uint8_t { free, op_start, op_end };
  Nanos time;
  std::uint32_t sequence = 0;  // the host's; decides between equal times
  StorageId storage = no_id;   // of a free
  OpId op = no_id;
  What what = What::free;
  friend bool operator==(const Pending&, const Pending&) = default;
};

/// Ordered by time, then host sequence. A stream's own times never decrease, so each stream is a plain queue and the
/// next event is the least of four heads: no heap, whatever the backlog.
class EventQueue {
 public:
  static constexpr Nanos never{std::numeric_limits<std::int64_t>::max()};

  /// `pending.time` is not before that of an earlier push on the same stream.
  void push(Stream stream, const Pending& pending);
  /// `never` when nothing is pending.
  Nanos next_time() const { return next_time_; }
  /// The next one; only when something is pending.
  Pending pop();

 private:
  struct Fifo {
    std::vector<Pending> items;
    std::size_t head = 0;
    bool empty() const { return head == items.size(); }
    const Pending& front() const { return items[head]; }
  };
  void find_next();

  std::array<Fifo, stream_names.size()> streams_;
  std::size_t next_stream_ = 0;
  Nanos next_time_ = never;
};

}  // namespace tidemark
