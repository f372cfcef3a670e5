// How many memory events a second, and how far is that from a plain scan of an array and from the memory's bandwidth?
//
// A Step of 3 million ops: 12 million allocs and frees on 4 streams. `events/s` counts allocs and frees. Two baselines
// run beside it, over the same changes of live bytes in one plain array of 64-bit numbers:
//   scans      our time in units of a prefix maximum over that array (1: as fast as can be)
//   bandwidth  our bytes a second, of Step read and Timeline written, by those of a plain sum over it (1: the memory's)
#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <limits>
#include <random>

#include "tidemark/engine/composition.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/engine/simulate.hpp"

namespace {

using namespace tidemark;

constexpr std::uint32_t op_count = 3'000'000;

/// Each op allocates two storages and frees two older ones; about a thousand are live. On four streams, one op in four
/// is a copy or a collective, whose frees lag behind the host.
Step make_step(int streams) {
  std::mt19937_64 random(7);
  Step step;
  step.layers = {"layer"};
  step.storages.reserve(2 * std::size_t{op_count});
  step.ops.reserve(op_count);
  step.instructions.reserve(5 * std::size_t{op_count});
  std::vector<StorageId> live;
  const NameId op_name = step.names.id("op");
  const NameId name = step.names.id("tensor");
  for (OpId id = 0; id < op_count; ++id) {
    const bool other = streams > 1 && random() % 4 == 0;
    const auto stream =
        other ? static_cast<Stream>(1 + random() % static_cast<unsigned>(streams - 1)) : Stream::compute;
    StepOp op;
    op.name = op_name;
    op.stream = stream;
    op.flops = static_cast<std::int64_t>(random() % 1'000'000'000);
    op.moved = Bytes{static_cast<std::int64_t>(random() % 1'000'000)};
    op.read_begin = op.read_end = static_cast<std::uint32_t>(step.reads.size());
    step.ops.push_back(op);
    for (int k = 0; k < 2; ++k) {
      const auto storage = static_cast<StorageId>(step.storages.size());
      step.storages.push_back({Bytes{static_cast<std::int64_t>(random() % 1'000'000 + 1)}, name, 0});
      step.instructions.push_back({Do::alloc, stream, id, storage});
      live.push_back(storage);
    }
    step.instructions.push_back({Do::compute, stream, id, id});
    const bool last = id + 1 == op_count;
    for (int k = 0; !live.empty() && (last || (k < 2 && live.size() > 1000)); ++k) {
      std::swap(live[random() % live.size()], live.back());
      step.instructions.push_back({Do::free, stream, id, live.back()});
      live.pop_back();
    }
  }
  return step;
}

const Step& step_of(int streams) {
  static const Step one = make_step(1);
  static const Step four = make_step(4);
  return streams == 1 ? one : four;
}

Device device() {
  Device device;
  device.flops.fill(312e12);
  device.memory_bandwidth = 2039e9;
  device.launch_time = Nanos{4000};
  return device;
}

/// The changes of live bytes alone, in order: what a scan could not do without.
std::vector<std::int64_t> changes(const Step& step) {
  std::vector<std::int64_t> all;
  all.reserve(2 * step.storages.size());
  for (const Instruction& at : step.instructions)
    if (at.what == Do::alloc || at.what == Do::free)
      all.push_back((at.what == Do::alloc ? 1 : -1) * step.storages[at.index].bytes.count);
  return all;
}

std::int64_t scan(const std::vector<std::int64_t>& changes) {
  std::int64_t live = 0, peak = 0;
  for (const std::int64_t change : changes) {
    live += change;
    peak = std::max(peak, live);
  }
  return peak;
}

std::int64_t sum(const std::vector<std::int64_t>& changes) {
  std::int64_t total = 0;
  for (const std::int64_t change : changes) total += change;
  return total;
}

/// Processor time: other programs on the machine do not count.
template <class Work>
double seconds_of(Work work) {
  const std::clock_t start = std::clock();
  benchmark::DoNotOptimize(work());
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

template <class Work>
double best_seconds(Work work) {
  double best = seconds_of(work);
  for (int i = 0; i < 9; ++i) best = std::min(best, seconds_of(work));
  return best;
}

double resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  double total = 0, resident = 0;
  statm >> total >> resident;
  return resident * 4096;
}

/// Runs `work` in the benchmark's loop and reports the best run; it moves `bytes` through memory.
template <class Work>
void measure(benchmark::State& state, const Step& step, double bytes, Work work) {
  double seconds = std::numeric_limits<double>::infinity();
  for (auto _ : state) seconds = std::min(seconds, seconds_of(work));
  const std::vector<std::int64_t> all = changes(step);
  const auto array_bytes = static_cast<double>(all.size() * sizeof(all[0]));
  state.counters["events/s"] = static_cast<double>(all.size()) / seconds;
  state.counters["scans"] = seconds / best_seconds([&] { return scan(all); });
  state.counters["bandwidth"] = bytes / seconds / (array_bytes / best_seconds([&] { return sum(all); }));
}

double script_bytes(const Step& step) {
  return static_cast<double>(step.instructions.size() * sizeof(Instruction) +
                             step.storages.size() * sizeof(StepStorage));
}

void plain_scan(benchmark::State& state) {
  const std::vector<std::int64_t> all = changes(step_of(1));
  measure(state, step_of(1), static_cast<double>(all.size() * sizeof(all[0])), [&] { return scan(all); });
}

void peak_of_one_stream(benchmark::State& state) {
  const Step& step = step_of(1);
  measure(state, step, script_bytes(step), [&] { return live_peak(step).bytes.count; });
}

void timeline(benchmark::State& state) {
  const Step& step = step_of(static_cast<int>(state.range(0)));
  const Device on = device();
  const double step_bytes = script_bytes(step) + static_cast<double>(step.ops.size() * sizeof(StepOp));
  const auto events = static_cast<double>(changes(step).size());
  const double timeline_bytes = events * sizeof(MemoryEvent) + static_cast<double>(step.ops.size() * sizeof(OpSpan));
  double resident = 0;
  measure(state, step, step_bytes + timeline_bytes, [&] {
    const double before = resident_bytes();
    const Timeline made = simulate(step, on);
    resident = resident_bytes() - before;
    return made.peak.count;
  });
  state.counters["bytes/event"] = (step_bytes + resident) / events;
}

/// A million equal layers.
void peak_of_equal_layers(benchmark::State& state) {
  const Stretch layer{Bytes{2}, Bytes{5}, 1, 3};
  for (auto _ : state) benchmark::DoNotOptimize(power(layer, 1'000'000).crest.count);
}

/// The referee over the four-stream timeline.
void judged(benchmark::State& state) {
  const Step& step = step_of(4);
  const Timeline made = simulate(step, device());
  const double bytes = script_bytes(step) + static_cast<double>(made.events.size() * sizeof(MemoryEvent));
  if (const std::optional<Violation> found = referee(step, made)) state.SkipWithError(found->message.c_str());
  measure(state, step, bytes, [&] { return referee(step, made).has_value(); });
}

}  // namespace

BENCHMARK(plain_scan)->Unit(benchmark::kMillisecond);
BENCHMARK(peak_of_one_stream)->Unit(benchmark::kMillisecond);
BENCHMARK(peak_of_equal_layers)->Unit(benchmark::kNanosecond);
BENCHMARK(judged)->Unit(benchmark::kMillisecond);
BENCHMARK(timeline)->Arg(1)->Arg(4)->ArgName("streams")->Unit(benchmark::kMillisecond);
