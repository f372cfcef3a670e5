#include "tidemark/study/compare.hpp"

#include <algorithm>
#include <map>

namespace tidemark {
namespace {

TimelineRow row_of(const Step& step, const MemoryEvent& event) {
  const StepStorage& storage = step.storages[event.storage];
  TimelineRow row;
  row.time = event.time;
  row.is_alloc = event.is_alloc();
  row.tensor = step.names[storage.name];
  row.category = storage.category;
  row.bytes = storage.bytes;
  row.live = event.live;
  row.rank = storage.rank;
  row.id = event.storage;
  if (event.op() == no_id) return row;
  const StepOp& op = step.ops[event.op()];
  row.step = op.step;
  row.stream = op.stream;
  row.op = step.names[op.name];
  row.phase = op.phase;
  return row;
}

/// Follows one side's rows.
class Scan {
 public:
  explicit Scan(Side side) : side_(std::move(side)) {
    out_.name = side_.name;
    out_.is_measured = side_.is_measured;
  }

  std::optional<TimelineRow> next() {
    std::optional<TimelineRow> row = side_.next();
    if (row) take(*row);
    return row;
  }
  SourceLoc where() const { return side_.where(); }
  SideFigures figures() const { return out_; }

 private:
  void take(const TimelineRow& row) {
    ++out_.events;
    count_time(row);
    Bytes& category = categories_[row.rank][static_cast<std::size_t>(row.category)];
    if (row.is_alloc)
      category += row.bytes;
    else
      category -= row.bytes;
    std::optional<Bytes>& highest = out_.phase_peaks[static_cast<std::size_t>(row.phase)];
    highest = std::max(highest.value_or(Bytes{}), row.live);
    if (!row.is_alloc || row.live <= out_.peak.bytes) return;
    out_.peak = {row.live, row.step, row.time, row.op, "", row.phase};
    out_.at_peak = categories_[row.rank];
  }

  void count_time(const TimelineRow& row) {
    if (last_) {
      const Phase phase = last_->is_alloc && last_->phase != Phase::initial ? last_->phase : row.phase;
      out_.time[static_cast<std::size_t>(phase)] += row.time - last_->time;
    }
    out_.end = row.time;
    last_ = {row.time, row.phase, row.is_alloc};
  }

  struct Last {
    Nanos time;
    Phase phase;
    bool is_alloc;
  };
  Side side_;
  SideFigures out_;
  std::map<int, ByCategory> categories_;  // by rank: what is live now
  std::optional<Last> last_;
};

/// What is not the same in two rows; "" when they are equal.
std::string unlike(const TimelineRow& a, const TimelineRow& b) {
  if (a.step != b.step) return "another step";
  if (a.rank != b.rank) return "another rank";
  if (a.op != b.op) return "another op";
  if (a.phase != b.phase) return "another phase";
  if (a.stream != b.stream) return "another stream";
  if (a.is_alloc != b.is_alloc) return a.is_alloc ? "A allocates, B frees" : "A frees, B allocates";
  if (a.tensor != b.tensor) return "another tensor";
  if (a.bytes != b.bytes) return "another size";
  if (a.category != b.category) return "another category";
  return a.live == b.live ? "" : "another total";
}

/// What stands in the same place of both sides until they part; then where each finds the other's row again.
class Alignment {
 public:
  Alignment(Scan& a, Scan& b) : a_(a), b_(b) {}

  std::optional<FirstDifference> find() {
    for (std::size_t equal = 0;; ++equal) {
      std::optional<TimelineRow> a = a_.next(), b = b_.next();
      if (!a && !b) return std::nullopt;
      std::string what = !a ? "A has ended" : !b ? "B has ended" : unlike(*a, *b);
      if (what.empty()) continue;
      FirstDifference found{equal,      std::move(a),    std::move(b), a_.where(),
                            b_.where(), std::move(what), std::nullopt, std::nullopt};
      if (found.a) found.a_later = drain(b_, found.b, *found.a);
      if (!found.a) drain(b_, found.b, {});
      if (found.b) found.b_later = drain(a_, found.a, *found.b);
      if (!found.b) drain(a_, found.a, {});
      return found;
    }
  }

 private:
  /// Reads a side to its end; how many events after `now` does `wanted` stand, its total aside?
  static std::optional<std::size_t> drain(Scan& side, const std::optional<TimelineRow>& now, TimelineRow wanted) {
    std::optional<std::size_t> later;
    if (!now) return later;
    std::size_t events = 0;
    while (const std::optional<TimelineRow> row = side.next()) {
      ++events;
      if (later) continue;
      wanted.live = row->live;
      if (unlike(wanted, *row).empty()) later = events;
    }
    return later;
  }

  Scan& a_;
  Scan& b_;
};

}  // namespace

Side simulated_side(std::string name, const Run& run) {
  Side side{std::move(name), false, {}};
  side.next = [&run, at = std::size_t{0}]() mutable -> std::optional<TimelineRow> {
    if (at == run.timeline.events.size()) return std::nullopt;
    return row_of(run.step, run.timeline.events[at++]);
  };
  return side;
}

std::optional<TimelineRow> checked(std::optional<TimelineRow> row, RowReferee& referee, const SourceLoc& where) {
  if (!row) return row;
  if (const std::optional<Violation> found = referee.next(*row))
    throw InputError(where, std::string(to_string(found->fault)) + ": " + found->message);
  return row;
}

Comparison compare(Side a, Side b) {
  Scan scan_a(std::move(a)), scan_b(std::move(b));
  Comparison out;
  out.difference = Alignment(scan_a, scan_b).find();
  out.a = scan_a.figures();
  out.b = scan_b.figures();
  return out;
}

}  // namespace tidemark
