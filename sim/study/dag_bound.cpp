#include "tidemark/study/dag_bound.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/study/linear_program.hpp"

namespace tidemark {
namespace {

constexpr double relax_seconds = 60;  // a program takes a fraction of a second

std::size_t at(std::int32_t row) { return static_cast<std::size_t>(row); }

/// Which rows a row needs, directly or not: one bit a row.
class Ancestors {
 public:
  explicit Ancestors(const Dag& dag) : words_((dag.cost.size() + 63) / 64), bits_(words_ * dag.cost.size(), 0) {
    for (std::int32_t row = 0; row < dag.rows(); ++row)
      for (const std::int32_t input : dag.inputs[at(row)]) {
        for (std::size_t w = 0; w < words_; ++w) bits_[at(row) * words_ + w] |= bits_[at(input) * words_ + w];
        bits_[at(row) * words_ + at(input) / 64] |= std::uint64_t{1} << (at(input) % 64);
      }
  }
  /// `row` needs `of`.
  bool has(std::int32_t row, std::int32_t of) const {
    return ((bits_[at(row) * words_ + at(of) / 64] >> (at(of) % 64)) & 1) != 0;
  }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

class Bounds {
 public:
  Bounds(const Dag& dag, std::int64_t limit) : dag_(dag), limit_(limit), ancestors_(dag) {}

  /// The best moment for one knapsack, and its bound.
  std::pair<std::int32_t, std::int64_t> best_moment() const {
    std::vector<std::int32_t> by_price(dag_.cost.size());
    std::iota(by_price.begin(), by_price.end(), 0);
    std::ranges::stable_sort(by_price, [&](std::int32_t a, std::int32_t b) {
      return Int128{dag_.cost[at(a)]} * dag_.bytes[at(b)] < Int128{dag_.cost[at(b)]} * dag_.bytes[at(a)];
    });
    std::pair<std::int32_t, std::int64_t> best{-1, 0};
    for (std::int32_t moment = 0; moment < dag_.rows(); ++moment)
      if (const std::int64_t bound = knapsack(moment, by_price); best.first < 0 || bound > best.second)
        best = {moment, bound};
    return best;
  }

  /// The rows of a longest path, in order.
  std::vector<std::int32_t> longest_path() const {
    std::vector<std::int32_t> length(dag_.cost.size(), 0), next(dag_.cost.size(), -1);
    for (std::int32_t row = dag_.rows(); row-- > 0;)
      for (const std::int32_t reader : dag_.readers[at(row)])
        if (length[at(reader)] + 1 > length[at(row)]) {
          length[at(row)] = length[at(reader)] + 1;
          next[at(row)] = reader;
        }
    std::vector<std::int32_t> path;
    for (auto row = static_cast<std::int32_t>(std::ranges::max_element(length) - length.begin()); row >= 0;
         row = next[at(row)])
      path.push_back(row);
    return path;
  }

  std::optional<LinearProgram> program(std::int32_t moment) const;

 private:
  /// Of what descendants of the moment read of its ancestors, the cheapest a byte runs again; a part of one, in part.
  std::int64_t knapsack(std::int32_t moment, const std::vector<std::int32_t>& by_price) const {
    Int128 excess = dag_.bytes[at(moment)] - limit_;
    std::vector<bool> needed(dag_.cost.size(), false);
    for (std::int32_t row = 0; row < moment; ++row) {
      if (!ancestors_.has(moment, row)) continue;
      const auto& readers = dag_.readers[at(row)];
      needed[at(row)] =
          std::ranges::any_of(readers, [&](std::int32_t reader) { return ancestors_.has(reader, moment); });
      if (needed[at(row)]) excess += dag_.bytes[at(row)];
    }
    Int128 cost = 0;
    for (const std::int32_t row : by_price) {
      if (excess <= 0) break;
      if (!needed[at(row)]) continue;
      const Int128 bytes = dag_.bytes[at(row)];
      cost += bytes <= excess ? Int128{dag_.cost[at(row)]} : Int128{dag_.cost[at(row)]} * excess / bytes;
      excess -= bytes;
    }
    return static_cast<std::int64_t>(cost);
  }

  const Dag& dag_;
  std::int64_t limit_;
  Ancestors ancestors_;
};

/// Columns: alive(v), when the moment first runs; later(v), v runs again after it. Only ancestors of the moment have
/// them; what else is alive only makes room scarcer. Nothing where the moment's own needs pass the limit.
std::optional<LinearProgram> Bounds::program(std::int32_t moment) const {
  const std::int64_t unit = dag_.unit();
  const auto size = [&](std::int32_t row) { return dag_.bytes[at(row)] / unit; };

  LinearProgram out;
  std::vector<std::int32_t> alive(dag_.cost.size(), -1);
  const auto& read = dag_.inputs[at(moment)];
  for (std::int32_t row = 0; row < moment; ++row) {
    if (!ancestors_.has(moment, row)) continue;
    alive[at(row)] = out.add_column(0, std::ranges::binary_search(read, row) ? 1 : 0, 1, false);
    out.add_column(dag_.cost[at(row)], 0, 1, false);
  }
  const auto later = [&](std::int32_t row) { return alive[at(row)] + 1; };
  std::vector<LinearProgram::Term> memory;
  for (std::int32_t row = 0; row < moment; ++row) {
    if (alive[at(row)] < 0) continue;
    if (size(row) > 0) memory.push_back({alive[at(row)], -size(row)});
    for (const std::int32_t input : dag_.inputs[at(row)])
      out.add_row({{alive[at(input)], 1}, {later(input), 1}, {later(row), -1}}, 0);
  }
  const std::int64_t room = limit_ / unit - size(moment);
  if (room < 0) return std::nullopt;
  out.add_row(std::move(memory), -room);
  for (std::int32_t row = moment + 1; row < dag_.rows(); ++row) {
    if (!ancestors_.has(row, moment)) continue;
    for (const std::int32_t input : dag_.inputs[at(row)])
      if (alive[at(input)] >= 0) out.add_row({{alive[at(input)], 1}, {later(input), 1}}, 1);
  }
  return out;
}

}  // namespace

DagBound bound_dag(const Dag& dag, std::int64_t limit, int programs, const std::function<bool()>& stop) {
  DagBound out{dag.total(), 0};
  if (dag.rows() == 0) return out;
  const Bounds bounds(dag, limit);
  const auto [best_row, knapsack] = bounds.best_moment();
  out.cost += knapsack;
  if (!has_linear_solver()) return out;

  // Moments spread along a longest path, then between the best and its neighbours, ever closer.
  const std::vector<std::int32_t> path = bounds.longest_path();
  std::map<std::size_t, std::int64_t> tried;  // by place on the path
  const auto try_row = [&](std::int32_t row) {
    const auto program = bounds.program(row);
    const std::int64_t bound = program ? dag.total() + relax(*program, relax_seconds).proven : 0;
    ++out.programs;
    out.cost = std::max(out.cost, bound);
    return bound;
  };
  const auto done = [&] { return out.programs >= programs || (stop && stop()); };
  try_row(best_row);
  const std::size_t spread =
      std::max<std::size_t>(1, path.size() / static_cast<std::size_t>(std::max(1, programs / 2)));
  for (std::size_t place = 0; place < path.size() && !done(); place += spread) tried[place] = try_row(path[place]);
  while (!tried.empty() && !done()) {
    const auto best = std::ranges::max_element(tried, {}, [](const auto& entry) { return entry.second; });
    const std::size_t place = best->first;
    const std::size_t before = best == tried.begin() ? 0 : std::prev(best)->first;
    const std::size_t after = std::next(best) == tried.end() ? path.size() - 1 : std::next(best)->first;
    const std::size_t left = (before + place) / 2, right = (place + after + 1) / 2;
    if (tried.contains(left) && tried.contains(right)) break;
    for (const std::size_t next : {left, right})
      if (!tried.contains(next) && !done()) tried[next] = try_row(path[next]);
  }
  return out;
}

}  // namespace tidemark
