// How long do the recorded PyTorch configurations take: program, plan, lowering and simulation, one after the other?
//
// `configurations` are simulated in each iteration; run from the source tree.
#include <benchmark/benchmark.h>

#include <vector>

#include "support/csv.hpp"
#include "support/torch_nets.hpp"
#include "support/torch_plans.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/step/lower.hpp"

namespace {

using namespace tidemark;

void recorded_configurations(benchmark::State& state) {
  const std::vector<test::Row> rows = test::table("tests/oracle/data/torch_steps.csv");
  std::size_t events = 0;
  for (auto _ : state) {
    events = 0;
    for (const test::Row& row : rows) {
      const Program program = test::torch_net(row.at("family"), test::settings(row.at("net")));
      const Step step =
          lower(program, test::torch_plan(program, test::settings(row.at("policy"))), test::torch_training(row));
      events += simulate(step, {}).events.size();
    }
  }
  state.counters["configurations"] = static_cast<double>(rows.size());
  state.counters["events"] = static_cast<double>(events);
}
BENCHMARK(recorded_configurations)->Unit(benchmark::kMillisecond);

}  // namespace
