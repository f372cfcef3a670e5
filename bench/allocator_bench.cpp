// How many requests a second does the caching allocator answer, and how much memory does a long replay need?
//
// The requests are those of a GPT-2's training steps. `requests/s` counts allocs and frees, of one core's time. Beside
// it runs a baseline: the C library's own malloc and free, asked for the same sizes over 4096 in the same order.
//   mallocs   our time in units of the C library's
// The replay reads 10 million events from an event CSV, twice, as `tidemark replay` does.
//   peak_MiB  the most memory the process had meanwhile
#include <benchmark/benchmark.h>

#include <charconv>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "tidemark/engine/caching_allocator.hpp"
#include "tidemark/input/caching_settings.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/study/pipeline.hpp"
#include "tidemark/study/replay.hpp"

namespace {

using namespace tidemark;

struct Request {
  bool is_alloc;
  StorageId storage;
  Bytes bytes;
};

/// Allocs and frees of three training steps in host order, and frees of what is left, so that it can start again.
std::vector<Request> training_trace() {
  const Step step = run(parse_scenario("model: {family: transformer, model_type: gpt2, layers: 12, hidden: 768, heads: "
                                       "12, vocab: 50257, max_positions: 1024}\n"
                                       "batch: {size: 8, sequence: 1024}\noptimizer: adamw\nsteps: 3\n",
                                       "gpt2.yaml"))
                        .step;
  std::vector<Request> out;
  std::vector<bool> alive(step.storages.size());
  const auto add = [&](bool is_alloc, StorageId storage) {
    alive[storage] = is_alloc;
    out.push_back({is_alloc, storage, step.storages[storage].bytes});
  };
  for (const StorageId storage : step.initial) add(true, storage);
  for (const Instruction& at : step.instructions)
    if (at.what == Do::alloc || at.what == Do::free) add(at.what == Do::alloc, at.index);
  for (StorageId storage = 0; storage < alive.size(); ++storage)
    if (alive[storage]) add(false, storage);
  return out;
}

double seconds_since(std::clock_t start) { return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC; }

double malloc_seconds(const std::vector<Request>& requests, std::size_t storages) {
  constexpr std::int64_t scale = 4096;
  std::vector<void*> blocks(storages);
  const std::clock_t start = std::clock();
  for (const Request& r : requests) {
    if (r.is_alloc)
      benchmark::DoNotOptimize(blocks[r.storage] = std::malloc(static_cast<std::size_t>(r.bytes.count / scale + 1)));
    else
      std::free(blocks[r.storage]);
  }
  return seconds_since(start);
}

void caching_allocator(benchmark::State& state, const std::string& conf) {
  const std::vector<Request> requests = training_trace();
  const std::size_t storages = requests.size();
  std::vector<BlockId> blocks(storages);
  CachingAllocator allocator(parse_alloc_conf(conf));
  double ours = 0, theirs = 0;
  for (auto _ : state) {
    const std::clock_t start = std::clock();
    for (const Request& r : requests) {
      if (r.is_alloc)
        blocks[r.storage] = *allocator.allocate(r.bytes);
      else
        allocator.free(blocks[r.storage]);
    }
    ours += seconds_since(start);
    theirs += malloc_seconds(requests, storages);
    state.SetIterationTime(0);
  }
  const double all = static_cast<double>(state.iterations()) * static_cast<double>(requests.size());
  state.counters["requests/s"] = all / ours;
  state.counters["mallocs"] = ours / theirs;
  state.counters["requests"] = static_cast<double>(requests.size());
}
BENCHMARK_CAPTURE(caching_allocator, default_settings, "")->Iterations(300)->UseManualTime();
BENCHMARK_CAPTURE(caching_allocator, expandable, "expandable_segments:True")->Iterations(300)->UseManualTime();
BENCHMARK_CAPTURE(caching_allocator, split_128, "max_split_size_mb:128")->Iterations(300)->UseManualTime();

constexpr std::int64_t replayed_events = 10'000'000;

/// HTA's event CSV: about a thousand blocks alive, each with addresses of its own.
void write_event_csv(const std::string& path) {
  std::ofstream out(path);
  out << "t_us,addr,bytes,total_allocated,total_reserved\n";
  std::mt19937_64 random(11);
  struct Block {
    std::int64_t address, bytes;
  };
  std::vector<Block> live;
  std::int64_t next = 1 << 20, total = 0;
  std::string line;
  const auto row = [&](std::int64_t time, std::int64_t address, std::int64_t bytes) {
    char digits[20];
    const auto end = std::to_chars(digits, digits + sizeof digits, address, 16).ptr;
    line = std::to_string(time) + "," + std::string(digits, end) + "," + std::to_string(bytes) + "," +
           std::to_string(total) + ",0\n";
    out << line;
  };
  for (std::int64_t i = 0; i < replayed_events; ++i) {
    if (live.size() < 1000 || random() % 2 == 0) {
      const auto bytes = static_cast<std::int64_t>(512 * (1 + random() % (1U << 16)));
      live.push_back({next, bytes});
      next += bytes;
      total += bytes;
      row(i, live.back().address, bytes);
    } else {
      std::swap(live[random() % live.size()], live.back());
      total -= live.back().bytes;
      row(i, live.back().address, -live.back().bytes);
      live.pop_back();
    }
  }
}

double peak_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  return 0;
}

void replay_of_10_million_events(benchmark::State& state) {
  const std::string path = (std::filesystem::temp_directory_path() / "tidemark_allocator_bench.csv").string();
  write_event_csv(path);
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts anew
  const std::clock_t start = std::clock();
  for (auto _ : state) benchmark::DoNotOptimize(replay({.recording = path}));
  state.counters["events/s"] =
      static_cast<double>(state.iterations()) * static_cast<double>(replayed_events) / seconds_since(start);
  state.counters["peak_MiB"] = peak_mib();
  std::filesystem::remove(path);
}
BENCHMARK(replay_of_10_million_events)->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
