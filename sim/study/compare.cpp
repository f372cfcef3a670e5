#include "tidemark/study/compare.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>

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
  Scan(Side side, bool is_bare) : side_(std::move(side)), is_bare_(is_bare) {
    out_.name = side_.name;
    out_.is_measured = side_.is_measured;
    out_.is_bare = side_.is_bare;
  }

  /// The next row to compare. Of a bare comparison those of rank 0, for a recording is of one device, after the start,
  /// with blocks numbered by their allocs.
  std::optional<TimelineRow> next() {
    while (std::optional<TimelineRow> row = side_.next()) {
      if (is_bare_ && row->rank != 0) continue;
      take(*row);
      if (!is_bare_) return row;
      row->id = number_of(*row);
      if (row->phase != Phase::initial) return row;
    }
    return std::nullopt;
  }
  SourceLoc where() const { return side_.where(); }
  SideFigures figures() const { return out_; }

 private:
  void take(const TimelineRow& row) {
    const std::size_t event = out_.events++;
    count_time(row);
    if (row.category) {
      out_.has_categories = true;
      Bytes& category = categories_[row.rank][static_cast<std::size_t>(*row.category)];
      category += row.is_alloc ? row.bytes : Bytes{} - row.bytes;
    }
    if (row.phase) {
      std::optional<Bytes>& highest = out_.phase_peaks[static_cast<std::size_t>(*row.phase)];
      highest = std::max(highest.value_or(Bytes{}), row.live);
    }
    if (!row.is_alloc || row.live <= out_.peak.bytes) return;
    out_.peak = {row.live, row.step, row.time, row.op, "", row.phase.value_or(Phase::initial)};
    out_.peak_event = event;
    out_.at_peak = categories_[row.rank];
  }

  void count_time(const TimelineRow& row) {
    if (last_ && row.phase) {
      const Phase phase = last_->is_alloc && last_->phase != Phase::initial ? last_->phase : *row.phase;
      out_.time[static_cast<std::size_t>(phase)] += row.time - last_->time;
    }
    out_.end = row.time;
    if (row.phase) last_ = {row.time, *row.phase, row.is_alloc};
  }

  /// Which alloc after the start, from 1, made the block; 0: it was there.
  std::uint64_t number_of(const TimelineRow& row) {
    if (row.is_alloc) return blocks_[row.id] = row.phase == Phase::initial ? 0 : ++allocs_;
    return blocks_[row.id];
  }

  struct Last {
    Nanos time;
    Phase phase;
    bool is_alloc;
  };
  Side side_;
  bool is_bare_;
  std::unordered_map<std::uint64_t, std::uint64_t> blocks_;
  std::uint64_t allocs_ = 0;
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

Bytes rounded_up(Bytes bytes, std::int64_t granularity) {
  return Bytes{(bytes.count + granularity - 1) / granularity * granularity};
}

struct BareRule {
  std::int64_t granularity = 1;
  bool compares_blocks = true;
};
std::string unlike_bare(const TimelineRow& a, const TimelineRow& b, const BareRule& rule) {
  if (a.is_alloc != b.is_alloc) return a.is_alloc ? "A allocates, B frees" : "A frees, B allocates";
  if (rounded_up(a.bytes, rule.granularity) != rounded_up(b.bytes, rule.granularity)) return "another size";
  return a.id == b.id || !rule.compares_blocks ? "" : "another block";
}

/// What stands in the same place of both sides until they part; then where each finds the other's row again.
class Alignment {
 public:
  /// `unlike` says what is not the same in two rows; "" when they are equal.
  using Unlike = std::function<std::string(const TimelineRow&, const TimelineRow&)>;
  Alignment(Scan& a, Scan& b, Unlike unlike) : a_(a), b_(b), unlike_(std::move(unlike)) {}

  std::optional<FirstDifference> find() {
    for (std::size_t equal = 0;; ++equal) {
      std::optional<TimelineRow> a = a_.next(), b = b_.next();
      if (!a && !b) return std::nullopt;
      std::string what = !a ? "A has ended" : !b ? "B has ended" : unlike_(*a, *b);
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
  std::optional<std::size_t> drain(Scan& side, const std::optional<TimelineRow>& now, TimelineRow wanted) const {
    std::optional<std::size_t> later;
    if (!now) return later;
    std::size_t events = 0;
    while (const std::optional<TimelineRow> row = side.next()) {
      ++events;
      if (later) continue;
      wanted.live = row->live;
      if (unlike_(wanted, *row).empty()) later = events;
    }
    return later;
  }

  Scan& a_;
  Scan& b_;
  Unlike unlike_;
};

}  // namespace

Side simulated_side(std::string name, const Run& run) {
  Side side;
  side.name = std::move(name);
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
  Comparison out;
  out.is_bare = a.is_bare || b.is_bare;
  out.compares_blocks = !a.pairs_by_size && !b.pairs_by_size;
  const BareRule rule{std::max(a.granularity, b.granularity), out.compares_blocks};
  Scan scan_a(std::move(a), out.is_bare), scan_b(std::move(b), out.is_bare);
  Alignment alignment(scan_a, scan_b, [&out, &rule](const TimelineRow& one, const TimelineRow& other) {
    return out.is_bare ? unlike_bare(one, other, rule) : unlike(one, other);
  });
  out.difference = alignment.find();
  out.a = scan_a.figures();
  out.b = scan_b.figures();
  return out;
}

}  // namespace tidemark
