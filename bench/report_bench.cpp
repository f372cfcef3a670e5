// How fast is a finished timeline summed up and written out?

#include <benchmark/benchmark.h>

#include <string>

#include "tidemark/engine/simulate.hpp"
#include "tidemark/report/chart.hpp"
#include "tidemark/report/csv.hpp"
#include "tidemark/report/json.hpp"
#include "tidemark/report/summary.hpp"
#include "tidemark/step/emitter.hpp"

namespace {

using namespace tidemark;

/// A training step of `layers` layers with names as long as real ones: forward keeps two tensors a layer, backward
/// frees them in reverse.
Step long_step(int layers) {
  Step step;
  Emitter emit(step);
  std::vector<StorageId> kept;
  const auto op = [&](Phase phase, int layer, const std::string& name) {
    StepOp made;
    made.phase = phase;
    made.layer = layer;
    made.has_time = true;
    made.time = Nanos{1000};
    made.flops = 1'000'000;
    emit.begin_op(made, name);
  };
  for (int i = 0; i < layers; ++i) step.layers.push_back("layers." + std::to_string(i));
  for (int i = 0; i < layers; ++i) {
    const std::string name = step.layers[static_cast<std::size_t>(i)] + ".attention.core_attn.softmax";
    op(Phase::forward, i, name);
    kept.push_back(emit.alloc(name, Bytes{402'653'184}, Category::activation, i));
    kept.push_back(emit.alloc(name + ".statistics", Bytes{4'194'304}, Category::activation, i));
    emit.compute({kept[kept.size() - 2], kept.back()});
  }
  for (int i = layers - 1; i >= 0; --i) {
    op(Phase::backward, i, step.layers[static_cast<std::size_t>(i)] + ".attention.core_attn.softmax");
    emit.compute({kept[kept.size() - 2], kept.back()});
    for (int k = 0; k < 2; ++k, kept.pop_back()) emit.release(kept.back());
  }
  return step;
}

void export_csv(benchmark::State& state, void (*write)(const Step&, const Timeline&, const TextSink&)) {
  const Step step = long_step(static_cast<int>(state.range(0)));
  const Timeline timeline = simulate(step, Device{});
  std::int64_t bytes = 0;
  for (auto _ : state)
    write(step, timeline, [&](std::string_view text) { bytes += static_cast<std::int64_t>(text.size()); });
  state.SetBytesProcessed(bytes);
}

void timeline_csv(benchmark::State& state) { export_csv(state, write_timeline_csv); }
void ops_csv(benchmark::State& state) { export_csv(state, write_ops_csv); }

void summary(benchmark::State& state) {
  const Step step = long_step(static_cast<int>(state.range(0)));
  const Timeline timeline = simulate(step, Device{});
  for (auto _ : state) benchmark::DoNotOptimize(summarize(step, timeline, {}));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(timeline.events.size()));
}

void chart(benchmark::State& state) {
  const Step step = long_step(static_cast<int>(state.range(0)));
  const Timeline timeline = simulate(step, Device{});
  for (auto _ : state) benchmark::DoNotOptimize(tide_chart(step, timeline, {.limit = {}}, {}));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(timeline.events.size()));
}

}  // namespace

BENCHMARK(timeline_csv)->Arg(1 << 10)->Arg(1 << 18)->Unit(benchmark::kMillisecond);
BENCHMARK(ops_csv)->Arg(1 << 18)->Unit(benchmark::kMillisecond);
BENCHMARK(summary)->Arg(1 << 10)->Arg(1 << 18)->Unit(benchmark::kMillisecond);
BENCHMARK(chart)->Arg(1 << 18)->Unit(benchmark::kMillisecond);
