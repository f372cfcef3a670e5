/// What does every point of a grid of settings cost?
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/input/study_file.hpp"

namespace tidemark {

struct SweepOptions {
  int jobs = 0;                             // threads; 0: one a core
  const std::atomic<bool>* stop = nullptr;  // set from outside: finish what runs, and end
  std::function<void(std::int64_t done, std::int64_t all)> progress = {};
};

struct SweepOutcome {
  std::int64_t points = 0;  // of the study
  std::int64_t done = 0;    // rows written
  std::int64_t failed = 0;  // rows with an error
};

/// The number of points; nothing past 2^63.
std::optional<std::int64_t> point_count(const Study& study);

/// One CSV row a point, in order, the same bytes for any number of threads: `index`, a column an axis, the scalars of
/// the summary, `pareto` (1: no other point has less peak and no more time, or the other way round; by FLOPs where
/// times are 0; empty when the sweep was stopped), `error`. A point that fails is a row with its error.
SweepOutcome sweep(const Study& study, const SweepOptions& options, const std::function<void(std::string_view)>& sink);

}  // namespace tidemark
