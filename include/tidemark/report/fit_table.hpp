/// What does `fit` answer: the largest value of a key with which a scenario fits, and why the next does not?
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/base/units.hpp"

namespace tidemark {

/// One full simulation.
struct FitTrial {
  std::int64_t value = 0;
  bool fits = false;
  std::optional<Bytes> peak;      // live
  std::optional<Bytes> reserved;  // with an allocator model
  std::optional<Bytes> margin;
  std::string peak_at;  // the op, phase and step of the live peak
  std::string why;      // it does not fit, in a sentence; "" when it does
  std::size_t events = 0;
};

struct FitAnswer {
  std::string scenario, key;
  std::string by;          // "reserved" or "live"
  std::string limit_name;  // "the budget", or the device's name
  std::optional<Bytes> limit;
  Bytes non_torch;                  // outside the framework, taken off the limit
  std::optional<FitTrial> best;     // nothing fits: none
  std::optional<FitTrial> failing;  // the first value above `best` that does not fit; none: the search ended before
  std::int64_t checked_above = 0;   // values right above `best` that were simulated; none of them fits
  std::string ended;                // why nothing larger was tried, where `failing` is absent
  std::vector<FitTrial> trials;     // by value
  /// Tried values below `best` that do not fit: more is not always worse.
  std::vector<std::int64_t> exceptions() const;
};

std::string fit_text(const FitAnswer& answer);
std::string fit_json(const FitAnswer& answer);

}  // namespace tidemark
