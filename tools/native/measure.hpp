/// How is a native step run so that its times are its own?
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tensor.hpp"

namespace tidemark::native {

struct Measurement {
  Record record;  // of the fastest run
  std::int64_t high_water_bytes = 0;
  std::vector<std::int64_t> run_times_ns;        // of each run, all its steps together
  std::vector<std::int64_t> last_step_times_ns;  // of each run, its last step alone
};

/// Runs a model's steps once to warm the arena, and then `repeats` times, each on a model made anew. `make` gives a
/// model on the machine, `step` runs one step of it. `around` is told when the timed part begins and ends.
template <class Make, class Step, class Around>
Measurement measure(Machine& machine, int steps, int repeats, const Make& make, const Step& step,
                    const Around& around) {
  Measurement out;
  for (int run = 0; run <= repeats; ++run) {
    machine.record.clear();
    machine.arena.forget_high_water();
    auto model = make(machine);
    around(true);
    machine.record.start_clock();
    for (int number = 0; number < steps; ++number) step(model, number);
    around(false);
    if (run == 0 && repeats > 0) continue;
    const std::vector<std::int64_t> times = machine.record.step_times_ns();
    const std::int64_t total = std::accumulate(times.begin(), times.end(), std::int64_t{0});
    out.run_times_ns.push_back(total);
    out.last_step_times_ns.push_back(times.back());
    out.high_water_bytes = machine.arena.high_water_bytes();
    if (*std::min_element(out.run_times_ns.begin(), out.run_times_ns.end()) == total) out.record = machine.record;
  }
  return out;
}

}  // namespace tidemark::native
