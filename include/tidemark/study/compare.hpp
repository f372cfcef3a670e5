/// How do a scenario and a measured timeline compare, or two scenarios?
///
/// Both sides are rows, taken one at a time, so that neither need fit in memory.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tidemark/report/comparison.hpp"
#include "tidemark/study/pipeline.hpp"

namespace tidemark {

/// A timeline CSV says all that a simulation does. Other recordings are bare: they know allocs, frees and sizes, and
/// the comparison is of these, from the first event after the start on: a free is the same when it is of the block
/// whose alloc was the same.
///
/// Whatever hands out the rows of a measured timeline in order and knows where the last one stands: TimelineReader,
/// and the readers of other recordings.
template <class Reader>
concept TimelineSource = requires(Reader reader, const Reader& constant) {
  { reader.next() } -> std::same_as<std::optional<TimelineRow>>;
  { constant.where() } -> std::same_as<SourceLoc>;
};

struct Side {
  std::string name;
  bool is_measured = false;
  bool is_bare = false;
  std::int64_t granularity = 1;  // of a bare side's sizes
  bool pairs_by_size = false;    // a bare side that does not know which block a free is of
  std::function<std::optional<TimelineRow>()> next;
  std::function<SourceLoc()> where = [] { return SourceLoc{}; };
};

/// The run must outlive the side.
Side simulated_side(std::string name, const Run& run);

/// Rows that cannot have happened (a free of nothing, a wrong total) are an InputError that names the line.
template <TimelineSource Reader>
Side measured_side(std::string name, std::shared_ptr<Reader> reader);

/// A recording of any kind (input/recording.hpp), bare. Reads it once before, to see whether all its sizes are
/// multiples of 512 bytes, as a GPU's allocator gives them out: the other side's are rounded up for the comparison
/// then.
Side recorded_side(std::string name, const std::string& path, const std::string& device);

/// Reads both sides to their ends.
Comparison compare(Side a, Side b);

/// Why the peak of the scenario that recomputes (B, unless only A does) is not lower than it is: where it stands, what
/// makes it, who holds that, and what no recomputation could touch.
PeakExplanation explain(const Run& a, const Run& b);

/// The row, or an InputError when `referee` finds a fault in it.
std::optional<TimelineRow> checked(std::optional<TimelineRow> row, RowReferee& referee, const SourceLoc& where);

template <TimelineSource Reader>
Side measured_side(std::string name, std::shared_ptr<Reader> reader) {
  Side side;
  side.name = std::move(name);
  side.is_measured = true;
  side.where = [reader] { return reader->where(); };
  side.next = [reader, referee = std::make_shared<RowReferee>()] {
    const std::optional<TimelineRow> row = reader->next();
    return checked(row, *referee, reader->where());
  };
  return side;
}

}  // namespace tidemark
