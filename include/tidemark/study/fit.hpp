/// What is the largest value of a scenario's key with which it still fits?
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/report/fit_table.hpp"

namespace tidemark {

struct FitRequest {
  std::string scenario;               // path
  std::string key;                    // a whole number of the scenario: "batch.size", "policy.interval"
  std::vector<std::string> sets;      // key.path=value, in order
  std::optional<Bytes> budget;        // in place of the scenario's
  std::optional<std::int64_t> start;  // else the scenario's own value, else 1
  std::int64_t most = 1 << 20;        // the largest value that is tried
};

/// Doubles (or halves) from the start until one value fits and one does not, then halves between them; each value is a
/// simulation in full. Where neither the start nor less fits, its next three doublings are tried. A value that the
/// scenario refuses (a sequence longer than the model's positions) does not fit. More is not always worse (a request
/// can meet a luckier cache, more chunks need less), so the 8 values right above the answer are simulated too, and the
/// search goes on from one that fits. Throws InputError for a key that is no whole number of a scenario, for a start
/// that the scenario refuses, and where nothing limits the run.
FitAnswer find_fit(const FitRequest& request);

}  // namespace tidemark
