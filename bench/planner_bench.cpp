// How long do the planners take, and how far is what they find from what is proven?
//
//   cpu_s          rotor: CPU seconds of all threads
//   sums           rotor: our time in units of the same number of least-of-sums over arrays that stay in the cache, on
//                  one core (1: as fast as that)
//   writes         revolve: our time in units of writing the sequence's text alone
//   commands/s     log entries that online eviction runs under half the memory; runs and evictions are moves/s
//   replays        online eviction: our time in units of replaying the schedule that it chose
//   of_cbc         search: our CPU time in that of the integer program; gap_percent is then above its optimum (below 0:
//                  other shapes of schedule are cheaper)
//   gap_percent    cost above the bound: of the integer program after half a second, of the search in a minute
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/whole_steps.hpp"
#include "tidemark/study/checkmate.hpp"
#include "tidemark/study/dag_bound.hpp"
#include "tidemark/study/dag_search.hpp"
#include "tidemark/study/dtr.hpp"
#include "tidemark/study/linear_program.hpp"
#include "tidemark/study/revolve.hpp"
#include "tidemark/study/rotor.hpp"

namespace {

using namespace tidemark;

ChainCosts chain(int stages) {
  std::mt19937_64 random(1);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  ChainCosts out;
  for (int i = 0; i <= stages; ++i) {
    out.boundary.push_back(between(1, 4));
    out.saved.push_back(i == 0 ? 0 : between(4, 12));
    out.backward_time.push_back(i == stages ? 1 : between(10, 40));
    out.backward_workspace.push_back(i == stages ? 0 : between(0, 2));
    if (i == stages) continue;
    out.forward_time.push_back(between(5, 20));
    out.forward_workspace.push_back(between(0, 2));
  }
  return out;
}

/// CPU seconds of all threads.
double cpu() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// CPU seconds that one call takes, of many.
template <class Work>
double seconds_of(const Work& work) {
  const double begin = cpu();
  int calls = 0;
  do {
    work();
    ++calls;
  } while (cpu() - begin < 0.2);
  return (cpu() - begin) / calls;
}

/// Runs the work as often as the benchmark wants; gives the CPU seconds of one call.
template <class Work>
double measured(benchmark::State& state, const Work& work) {
  const double begin = cpu();
  for (auto _ : state) work();
  return (cpu() - begin) / static_cast<double>(state.iterations());
}

void rotor_500_slots(benchmark::State& state) {
  const auto stages = static_cast<int>(state.range(0));
  const ChainCosts costs = chain(stages);
  std::vector<std::uint32_t> a(500, 1), b(500, 2), least(500, 100);
  const double sums = seconds_of([&] {
    for (std::size_t m = 0; m < least.size(); ++m) least[m] = std::min(least[m], 3 + a[m] + b[m]);
    benchmark::DoNotOptimize(least.data());
    benchmark::ClobberMemory();
  });
  const double ours = measured(state, [&] { benchmark::DoNotOptimize(rotor(costs, 500, RotorVariant::tight)); });
  state.counters["sums"] = ours / (sums * stages * stages * stages / 6);
  state.counters["cpu_s"] = ours;
}
BENCHMARK(rotor_500_slots)->Arg(50)->Arg(100)->Arg(200)->Arg(500)->UseRealTime()->Unit(benchmark::kMillisecond);

void revolve_schedule(benchmark::State& state) {
  const std::string made = revolve_sequence(state.range(0), 50);
  const double writes = seconds_of([&] {
    std::string out;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < made.size(); ++i)
      if (made[i] == ' ') {
        out.append(made, begin, i - begin);
        begin = i;
      }
    benchmark::DoNotOptimize(out.data());
  });
  const double ours = measured(state, [&] { benchmark::DoNotOptimize(revolve_sequence(state.range(0), 50)); });
  state.counters["writes"] = ours / writes;
}
BENCHMARK(revolve_schedule)->Arg(100'000)->Unit(benchmark::kMillisecond);

/// Forward, then a gradient of each layer that reads the layer's input; unit costs and bytes.
Dag unit_chain(int layers) {
  const int rows = 2 * layers + 1;
  Dag dag;
  dag.cost.assign(static_cast<std::size_t>(rows), 1);
  dag.bytes = dag.cost;
  dag.inputs.resize(dag.cost.size());
  dag.readers.resize(dag.cost.size());
  dag.stays.assign(dag.cost.size(), false);
  for (int row = 1; row < rows; ++row) {
    auto& inputs = dag.inputs[static_cast<std::size_t>(row)];
    if (row > layers + 1) inputs.push_back(2 * layers - row);
    inputs.push_back(row - 1);
    for (const std::int32_t input : inputs) dag.readers[static_cast<std::size_t>(input)].push_back(row);
  }
  return dag;
}

/// The same with values and costs of all sizes, so that scores differ.
Dag mixed_chain(int layers) {
  Dag dag = unit_chain(layers);
  std::mt19937_64 random(1);
  for (std::int64_t& bytes : dag.bytes) bytes = 1 + static_cast<std::int64_t>(random() % 64);
  for (std::int64_t& cost : dag.cost) cost = 1 + static_cast<std::int64_t>(random() % 64);
  return dag;
}

/// As `tidemark plan --method dtr` runs it: thrashing ends at ten times the step's cost.
void online_eviction(benchmark::State& state) {
  const Dag dag = mixed_chain(500);
  const DtrLog log = dtr_log(dag);
  const auto heuristic = static_cast<DtrHeuristic>(state.range(0));
  std::vector<std::int32_t> order(dag.cost.size());
  std::iota(order.begin(), order.end(), 0);
  const std::int64_t budget = measure(dag, order)->peak / 2;
  const DtrRun run = run_dtr(log, budget, heuristic, 10 * dag.total());
  state.SetLabel(heuristic_names()[static_cast<std::size_t>(state.range(0))] +
                 (run.end == DtrRun::End::ok ? "" : ", thrashing"));
  const double ours =
      measured(state, [&] { benchmark::DoNotOptimize(run_dtr(log, budget, heuristic, 10 * dag.total())); });
  state.counters["commands/s"] = static_cast<double>(log.commands.size()) / ours;
  state.counters["moves/s"] = static_cast<double>(run.moves.size()) / ours;
  if (run.end != DtrRun::End::ok) return;
  const DagSchedule schedule = dtr_schedule(run, dag);
  state.counters["replays"] = ours / seconds_of([&] { benchmark::DoNotOptimize(measure(dag, schedule.moves)); });
}
BENCHMARK(online_eviction)->DenseRange(0, 5)->Unit(benchmark::kMillisecond);

void checkmate_33_rows(benchmark::State& state) {
  if (!has_linear_solver()) return state.SkipWithError("no CBC");
  const Dag dag = unit_chain(16);
  double gap = 0;
  for (auto _ : state) {
    const CheckmateAnswer answer = checkmate(dag, state.range(0), 0.5);
    gap = answer.schedule
              ? 100.0 * static_cast<double>(answer.schedule->cost - answer.bound) / static_cast<double>(answer.bound)
              : 100;
  }
  state.counters["gap_percent"] = gap;
}
BENCHMARK(checkmate_33_rows)->Arg(3)->Arg(6)->Arg(9)->Arg(12)->Iterations(1)->UseRealTime()->Unit(benchmark::kSecond);

/// Our CPU time in CBC's, and what we found above its optimum, after so many decodings.
void against_cbc(benchmark::State& state, const Dag& dag, std::int64_t budget, std::int64_t decodings,
                 const std::string& name = "") {
  if (!has_linear_solver()) return state.SkipWithError("no CBC");
  const double begin = cpu();
  const CheckmateAnswer exact = checkmate(dag, budget, 20);
  const double theirs = cpu() - begin;
  DagSearchAnswer found;
  const double ours = measured(state, [&] { found = search_dag(dag, budget, {decodings, dag.total(), nullptr}); });
  state.counters["cbc_s"] = theirs;
  state.counters["of_cbc"] = ours / theirs;
  state.SetLabel(name + (exact.is_proven ? "" : ", CBC did not end"));
  if (found.schedule && exact.schedule)
    state.counters["gap_percent"] =
        100.0 * static_cast<double>(found.schedule->cost) / static_cast<double>(exact.schedule->cost) - 100;
}

/// Linear steps of so many layers within so many bytes: 1,500 decodings.
void search_against_cbc(benchmark::State& state) {
  const Dag dag = mixed_chain(static_cast<int>(state.range(0)));
  std::vector<std::int32_t> order(dag.cost.size());
  std::iota(order.begin(), order.end(), 0);
  const std::int64_t low = widest_row(dag);
  against_cbc(state, dag, low + (measure(dag, order)->peak - low) * state.range(1) / 100, 1'500);
}
BENCHMARK(search_against_cbc)->ArgsProduct({{5, 8, 10}, {20, 40, 60}})->Unit(benchmark::kMillisecond);

struct Published {
  std::string name;
  Dag dag;
  std::int64_t budget;
};

/// Every published row that has an optimum (tests/oracle/data/planners).
std::vector<Published> published() {
  const std::string folder = PLANNER_DATA;
  std::map<std::string, Dag> dags;
  for (const test::Row& row : test::table(folder + "/dags.csv"))
    dags[row.at("graph")] = make_dag(test::whole_step(row), false);
  std::vector<Published> out;
  for (const test::Row& row : test::table(folder + "/dag_optima.csv"))
    if (!row.at("optimum").empty())
      out.push_back(
          {row.at("graph") + " in " + row.at("budget"), dags.at(row.at("graph")), std::stoll(row.at("budget"))});
  return out;
}

/// By the row's number: 300 decodings, as many as the tests give it.
void search_on_published(benchmark::State& state) {
  static const std::vector<Published> rows = published();
  const auto i = static_cast<std::size_t>(state.range(0));
  if (i >= rows.size()) return state.SkipWithError("no such row");
  against_cbc(state, rows[i].dag, rows[i].budget, 300, rows[i].name);
}
BENCHMARK(search_on_published)->DenseRange(0, 52)->Unit(benchmark::kMillisecond);

/// A decoder of 89 blocks, 14 ops each, with a gradient of each op: 2,494 rows. Bytes of GPT-3 at one sequence of 2,048
/// tokens; times of products at 300 TFLOP/s, of all else at 2 TB/s.
class Decoder {
 public:
  explicit Decoder(int blocks) {
    std::int32_t x = op(2 * wide, wide, {}, {}, false);
    for (int b = 0; b < blocks; ++b) x = block(x);
    gradients(x);
    dag_.readers.resize(dag_.cost.size());
    dag_.stays.assign(dag_.cost.size(), false);
    for (std::size_t row = 0; row < dag_.inputs.size(); ++row)
      for (const std::int32_t input : dag_.inputs[row])
        dag_.readers[static_cast<std::size_t>(input)].push_back(static_cast<std::int32_t>(row));
  }
  const Dag& dag() const { return dag_; }

 private:
  using Rows = std::vector<std::int32_t>;
  static constexpr std::int64_t rows = 2048, width = 12288, heads = 96;
  static constexpr std::int64_t wide = rows * width * 2, square = heads * rows * rows * 2;
  static constexpr std::int64_t product = 2 * rows * width * width / 300'000;

  std::int32_t add(std::int64_t cost, std::int64_t bytes, Rows inputs) {
    std::ranges::sort(inputs);
    inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
    dag_.cost.push_back(cost);
    dag_.bytes.push_back(bytes);
    dag_.inputs.push_back(std::move(inputs));
    return static_cast<std::int32_t>(dag_.cost.size()) - 1;
  }
  /// `moved` bytes, or a product's time; what backward needs of its inputs, and of itself.
  std::int32_t op(std::int64_t moved, std::int64_t bytes, Rows inputs, Rows saved, bool saves_itself) {
    return timed(moved / 2000 + 1, bytes, std::move(inputs), std::move(saved), saves_itself);
  }
  std::int32_t timed(std::int64_t time, std::int64_t bytes, Rows inputs, Rows saved, bool saves_itself) {
    const std::int32_t row = add(time, bytes, std::move(inputs));
    if (saves_itself) saved.push_back(row);
    saved_.push_back(std::move(saved));
    return row;
  }

  std::int32_t block(std::int32_t x) {
    constexpr std::int64_t scores_time = 2 * rows * rows * width / 300'000;
    const auto norm = op(2 * wide, wide, {x}, {x}, false);
    const auto qkv = timed(3 * product, 3 * wide, {norm}, {norm}, false);
    const auto heads_split = op(6 * wide, 3 * wide, {qkv}, {}, false);
    const auto scores = timed(scores_time, square, {heads_split}, {heads_split}, false);
    const auto softmax = op(2 * square, square, {scores}, {}, true);
    const auto dropout = op(2 * square, square, {softmax}, {}, false);
    const auto context = timed(scores_time, wide, {dropout, heads_split}, {dropout, heads_split}, false);
    const auto projection = timed(product, wide, {context}, {context}, false);
    const auto middle = op(3 * wide, wide, {x, projection}, {}, false);
    const auto norm2 = op(2 * wide, wide, {middle}, {middle}, false);
    const auto up = timed(4 * product, 4 * wide, {norm2}, {norm2}, false);
    const auto gelu = op(8 * wide, 4 * wide, {up}, {up}, false);
    const auto down = timed(4 * product, wide, {gelu}, {gelu}, false);
    return op(3 * wide, wide, {middle, down}, {}, false);
  }

  void gradients(std::int32_t last) {
    std::map<std::int32_t, Rows> of;
    of[last] = {add(2 * wide / 1000, wide, {last})};
    for (std::int32_t row = last; row >= 1; --row) {
      const Rows inputs = dag_.inputs[static_cast<std::size_t>(row)];
      Rows needed = of[row];
      const Rows& saved = saved_[static_cast<std::size_t>(row)];
      needed.insert(needed.end(), saved.begin(), saved.end());
      const std::int64_t time = dag_.cost[static_cast<std::size_t>(row)];
      const std::int32_t gradient = add(time >= product / 2 ? 2 * time : time * 3 / 2,
                                        dag_.bytes[static_cast<std::size_t>(inputs.front())], needed);
      for (const std::int32_t input : inputs) of[input].push_back(gradient);
    }
  }

  Dag dag_;
  std::vector<Rows> saved_;
};

/// The argument is a twentieth of the way from the widest row to no recomputation.
void search_2494_rows(benchmark::State& state) {
  static const Decoder decoder(89);
  const Dag& dag = decoder.dag();
  std::vector<std::int32_t> order(dag.cost.size());
  std::iota(order.begin(), order.end(), 0);
  const std::int64_t low = widest_row(dag), high = measure(dag, order)->peak;
  const std::int64_t budget = low + (high - low) / 20 * state.range(0);
  state.counters["budget_bytes"] = static_cast<double>(budget);
  double gap = -1;
  for (auto _ : state) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const auto stop = [end] { return std::chrono::steady_clock::now() >= end; };
    const DagBound bound = bound_dag(dag, budget, 48, stop);
    const DagSearchAnswer found = search_dag(dag, budget, {20'000, bound.cost, stop});
    if (found.schedule)
      gap = 100.0 * static_cast<double>(found.schedule->cost - bound.cost) / static_cast<double>(bound.cost);
  }
  state.counters["gap_percent"] = gap;
}
BENCHMARK(search_2494_rows)->DenseRange(1, 20)->Iterations(1)->UseRealTime()->Unit(benchmark::kSecond);

}  // namespace
