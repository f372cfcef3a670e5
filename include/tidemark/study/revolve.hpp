/// How few forward steps reverse a uniform chain with a given number of checkpoint slots?
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tidemark {

/// Griewank and Walther 2000: forward steps in all, the one before each backward included; the slot that holds step 0
/// counts. n >= 1, slots >= 1.
std::int64_t revolve_forward_steps(std::int64_t n, std::int64_t slots);

/// A schedule that attains it, as a rotor sequence.
std::string revolve_sequence(std::int64_t n, std::int64_t slots);

/// Steps first .. first + n - 1 of a longer chain, to the end of `out`; the loss follows the last where `to_end`.
void write_revolve(std::int64_t first, std::int64_t n, std::int64_t slots, bool to_end, std::string& out);

/// Schedules for chains of up to `longest` steps where each of `most_units` units of memory holds either what a step is
/// restarted from or the adjoint data of one step (Maddison 2024). Adjoint data that is used at once needs no unit.
class Mixed {
 public:
  /// longest >= 1, most_units >= 1; takes longest^2 x most_units / 2 steps.
  Mixed(std::int64_t longest, std::int64_t most_units);
  /// All forward steps, of n <= longest in units <= most_units.
  std::int64_t forward_steps(std::int64_t n, std::int64_t units) const;
  /// A schedule that attains it, as a rotor sequence: Fc where a unit holds a restart, Fe where it holds adjoint data.
  std::string sequence(std::int64_t n, std::int64_t units) const;

 private:
  struct Choice {
    std::int64_t steps = 0;
    std::int64_t advance = 0;  // to the next restart; 0: the first step's adjoint data is kept
  };
  std::size_t at(std::int64_t n, std::int64_t units) const {
    return static_cast<std::size_t>(n * (most_units_ + 1) + units);
  }
  std::int64_t most_units_;
  std::vector<Choice> choices_;  // by n, by units
};

}  // namespace tidemark
