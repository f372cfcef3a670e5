/// Can this timeline have happened?
///
/// Replays a finished Timeline against its Step, and shares no code with the simulator. Also judges a bare list of
/// rows, such as a CSV somebody else wrote.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tidemark/base/units.hpp"
#include "tidemark/base/vocabulary.hpp"
#include "tidemark/engine/timeline.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

enum class Fault : std::uint8_t {
  unknown,         // a storage, an op or an id that the step does not have
  time_goes_back,  // an event before its predecessor
  double_alloc,
  double_free,
  free_of_nothing,  // never allocated
  read_of_nothing,  // read before it is allocated
  read_of_freed,    // read after, or while, it is freed
  read_too_early,   // read before the op that makes it has ended
  leak,             // live after the last event, and not meant to be
  wrong_size,       // a free of another size than its alloc
  wrong_total,      // the running total is not the sum of what is live
  wrong_peak,       // the timeline's or an op's peak is not that of its events
  wrong_order,      // allocations out of the host's order
  wrong_op,         // an event under another op than the step's
  missing_event,    // an alloc or free of the step has none
  missing_op,       // a kernel that never ran
  repeated_op,      // a kernel that ran more than once: its FLOPs count twice
  wrong_time,       // an event or an op at another time than its streams give it
  early_start,      // an op that starts before what its stream waits for
};
inline constexpr std::array<std::string_view, 19> fault_names = {
    "unknown",         "time_goes_back", "double_alloc",   "double_free", "free_of_nothing",
    "read_of_nothing", "read_of_freed",  "read_too_early", "leak",        "wrong_size",
    "wrong_total",     "wrong_peak",     "wrong_order",    "wrong_op",    "missing_event",
    "missing_op",      "repeated_op",    "wrong_time",     "early_start"};
constexpr std::string_view to_string(Fault fault) { return fault_names[static_cast<std::size_t>(fault)]; }

struct Violation {
  static constexpr std::size_t no_event = static_cast<std::size_t>(-1);
  Fault fault = Fault::unknown;
  std::size_t event = no_event;  // index of the event or row at fault, where there is one
  OpId op = no_id;               // the op at fault, where the Step knows one
  std::string message;           // "op 'B' reads 'x', which op 'A' freed"
  friend bool operator==(const Violation&, const Violation&) = default;
};

/// The first violation, or nothing. What is checked, in this order: each event by itself (pairs, totals, order, ops),
/// what is left at the end, each kernel's reads in host order, each op's span (streams, waits, reads in time).
std::optional<Violation> referee(const Step& step, const Timeline& timeline);
/// The same of the events alone: no ops' times.
std::optional<Violation> referee(const Step& step, std::span<const MemoryEvent> events);

/// One row of a timeline CSV (docs/output.md), or what a recording knows of one.
struct TimelineRow {
  Nanos time;
  int step = 0, rank = 0;
  Stream stream = Stream::compute;
  bool is_alloc = false;
  std::string op;
  std::optional<Phase> phase = Phase::initial;  // none: the recording does not say; so too the category
  std::string tensor;
  std::optional<Category> category = Category::activation;
  Bytes bytes, live;
  std::optional<Bytes> allocated = std::nullopt, reserved = std::nullopt;
  std::uint64_t id = 0;  // pairs alloc and free
  friend bool operator==(const TimelineRow&, const TimelineRow&) = default;
};

/// Rows alone: times, pairs, sizes and totals by rank. What is still live at the end is no fault: rows do not say what
/// must be.
std::optional<Violation> referee(std::span<const TimelineRow> rows);
/// Rows against the Step they are said to be of: besides, reads, leaks and missing ops. A rank's n-th alloc row stands
/// for its n-th alloc in the Step.
std::optional<Violation> referee(const Step& step, std::span<const TimelineRow> rows);

/// The rows' own rules, a row at a time, for files that need not fit in memory.
class RowReferee {
 public:
  std::optional<Violation> next(const TimelineRow& row);

 private:
  struct Held {
    std::string tensor;
    Bytes bytes;
  };
  /// Ids may be used again after their free, as addresses are.
  struct Rank {
    Bytes total;
    std::unordered_map<std::uint64_t, Held> live;  // by id; looked up, never walked
    std::unordered_set<std::uint64_t> freed;
  };
  std::optional<Violation> alloc(const TimelineRow& row, Rank& rank);
  std::optional<Violation> free(const TimelineRow& row, Rank& rank);
  std::optional<Violation> total(const TimelineRow& row, Rank& rank) const;
  Violation fault(Fault fault, std::string message) const { return {fault, rows_, no_id, std::move(message)}; }

  std::size_t rows_ = 0;
  Nanos time_;
  std::map<int, Rank> ranks_;
};

}  // namespace tidemark
