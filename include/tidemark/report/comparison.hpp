/// Are two timelines the same; where do they part; how do their peaks, levels and times compare?
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/report/summary.hpp"
#include "tidemark/report/terminal.hpp"

namespace tidemark {

/// What one side's rows say. Of several ranks, the one that reaches the peak.
struct SideFigures {
  std::string name;
  bool is_measured = false;
  bool is_bare = false;  // a recording of sizes alone: no ops, phases or tensors
  std::size_t events = 0;
  Moment peak;
  std::size_t peak_event = 0;  // from 0
  ByCategory at_peak{};
  bool has_categories = false;  // else all of the peak is unknown
  ByPhase phase_peaks;          // initial: the level at which the first op begins
  /// Time between two rows belongs to the op of the first when that is an alloc (its kernel follows), else to the op
  /// of the second.
  std::array<Nanos, phase_names.size()> time{};
  Nanos end;  // of the last row
};

/// Bytes at the peak of which no category is known.
Bytes unknown_at_peak(const SideFigures& side);

/// The first rows that are not equal. Times and ids are no part of equality, nor an allocator's figures.
struct FirstDifference {
  std::size_t equal_events = 0;        // before it
  std::optional<TimelineRow> a, b;     // none: that side has ended
  SourceLoc where_a, where_b;          // of a measured side
  std::string what;                    // "another tensor", "A has ended"
  std::optional<std::size_t> a_later;  // B has A's row this many events later
  std::optional<std::size_t> b_later;  // A has B's row this many events later
};

/// Storages at the peak that stand there for one reason.
struct PeakGroup {
  std::string what;  // "rebuilt by recomputation"
  Bytes bytes;
  std::size_t tensors = 0;
  std::string largest, held_by;  // one of them
  bool untouchable = false;      // no policy that recomputes blocks can remove it
};

/// Why is the peak where it is?
struct PeakExplanation {
  bool of_b = true;  // whose peak it is about
  std::string sentence;
  std::vector<PeakGroup> groups;  // the largest first; they add up to the peak
};

struct Comparison {
  SideFigures a, b;
  bool is_bare = false;                          // one side is, so both were compared as such
  bool compares_blocks = true;                   // which block a free is of
  std::optional<FirstDifference> difference;     // none: equal in every event
  std::optional<PeakExplanation> explanation{};  // of two scenarios
};

std::string comparison_text(const Comparison& comparison, const TerminalStyle& style);
std::string comparison_json(const Comparison& comparison);

}  // namespace tidemark
