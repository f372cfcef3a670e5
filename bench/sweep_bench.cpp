// How many policies a second, on one thread and on two, and how many more than by full simulation?
//
// The study of docs/sweep.md: GPT-3 (96 blocks, op by op), 1,023 sets of ops in regions of 1 to 96 blocks. One
// repetition runs all of it on one thread and on two, and some of its points in full; run several for the spread:
//   benchmarks --benchmark_filter=policies --benchmark_repetitions=5
// `policies/s` is on two threads, `of_one_thread` on one, `speedup` their ratio, `over_full` the ratio of one thread to
// the full simulation on one thread.
#include <benchmark/benchmark.h>

#include <chrono>
#include <string>
#include <string_view>

#include "tidemark/study/sweep.hpp"

namespace {

using namespace tidemark;

/// Rows a second.
double rate(const Study& study, const SweepOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const SweepOutcome outcome = sweep(study, options, [](std::string_view) {});
  return static_cast<double>(outcome.rows) /
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void policies(benchmark::State& state) {
  const Study study = read_study(std::string(STUDIES) + "/gpt3-selective.yaml", {});
  for (auto _ : state) {
    const double one = rate(study, {.jobs = 1, .verify = 0});
    const double two = rate(study, {.jobs = 2, .verify = 0});
    const double full = rate(study, {.jobs = 1, .limit = 50, .compose = false});
    state.counters["policies/s"] = two;
    state.counters["of_one_thread"] = one;
    state.counters["speedup"] = two / one;
    state.counters["over_full"] = one / full;
  }
}
BENCHMARK(policies)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
