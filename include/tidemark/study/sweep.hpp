/// What does every point of a grid of settings cost?
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tidemark/input/study_file.hpp"
#include "tidemark/study/sweep_rows.hpp"

namespace tidemark {

struct SweepOptions {
  int jobs = 0;                             // threads; 0: one a core
  std::optional<std::int64_t> limit = {};   // so many rows at most, from the start of the study
  bool compose = true;                      // points that differ in policy alone share equal stretches
  std::int64_t verify = 4;                  // composed rows, drawn at random, that are simulated too
  std::string resume;                       // the CSV of an interrupted sweep to go on from; "" is none
  const std::atomic<bool>* stop = nullptr;  // set from outside: finish what runs, and end
  /// Places of the grid that are done, of all, and of those the ones that an earlier sweep did.
  std::function<void(std::int64_t done, std::int64_t all, std::int64_t before)> progress = {};
};

struct SweepOutcome {
  std::int64_t rows = 0;      // written
  std::int64_t failed = 0;    // of them, with an error
  bool whole = true;          // every point has its row, or as many as were asked for
  std::int64_t verified = 0;  // composed rows that a full simulation gave too
};

/// Studies with more places in their grid are refused unless there is a limit.
inline constexpr std::int64_t max_points = 1'000'000'000;

/// One CSV row a point, in order, the same bytes for any number of threads: `index` (the place in the grid), a column
/// an axis, the scalars of the summary, `pareto` (1: no other point has less peak and no more time, or the other way
/// round; by FLOPs where times are 0; empty when the sweep was stopped), `error`. A point that fails is a row with its
/// error. Nothing is written before all is known. Throws InputError for a study that is too large, of which
/// `where` leaves no point, or a CSV of another study, InternalError when a composed row is not the simulated one.
SweepOutcome sweep(const Study& study, const SweepOptions& options, const TextSink& sink);

}  // namespace tidemark
