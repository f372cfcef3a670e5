#include "tidemark/study/frontier.hpp"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "tidemark/plan/sequence.hpp"

namespace tidemark {
namespace {

/// The lowest budget that the method meets, to a thousandth, by bisection.
Bytes lowest_budget(const Scenario& scenario, Bytes without, Bytes least, const PlanSettings& settings) {
  Bytes low = least, high = without;
  for (int i = 0; i < 10 && low < high; ++i) {
    const Bytes middle{low.count + (high.count - low.count) / 2};
    const PlanAnswer answer = find_plan(scenario, middle, settings);
    if (answer.best)
      high = answer.best->cost.peak;
    else
      low = middle + Bytes{1};
  }
  return high;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

}  // namespace

std::vector<FrontierPoint> find_frontier(const Scenario& scenario, int points, const PlanSettings& settings) {
  PlanEvaluator evaluator(scenario);
  const Plan none = evaluator.plan_of(policy::None{});
  const PlanCost without = evaluator.cost(none);
  Bytes least;
  const Step step = evaluator.lowered(none);
  for (const StorageId id : step.initial) least += step.storages[id].bytes;
  PlanSettings each = settings;
  each.seconds = settings.seconds / points;
  const Bytes low = lowest_budget(scenario, without.peak, least, each);

  std::vector<std::optional<FrontierPoint>> slots(static_cast<std::size_t>(points));
  tbb::parallel_for(0, points, [&](int i) {
    const Int128 part = Int128{(without.peak - low).count} * i / std::max(points - 1, 1);
    const Bytes budget = low + Bytes{static_cast<std::int64_t>(part)};
    PlanAnswer answer = find_plan(scenario, budget, each);
    if (answer.best) slots[static_cast<std::size_t>(i)] = FrontierPoint{budget, std::move(*answer.best)};
  });
  std::vector<FrontierPoint> found;
  for (auto& slot : slots)
    if (slot) found.push_back(std::move(*slot));
  std::ranges::stable_sort(found, [](const FrontierPoint& a, const FrontierPoint& b) {
    return std::tuple(a.plan.cost.peak, a.plan.cost.time, a.plan.cost.total) <
           std::tuple(b.plan.cost.peak, b.plan.cost.time, b.plan.cost.total);
  });
  std::vector<FrontierPoint> out;
  for (FrontierPoint& point : found)
    if (out.empty() || std::tuple(point.plan.cost.time, point.plan.cost.total) <
                           std::tuple(out.back().plan.cost.time, out.back().plan.cost.total))
      out.push_back(std::move(point));
  return out;
}

std::string frontier_csv(const std::vector<FrontierPoint>& points, const Outline& outline) {
  std::string out = "budget_bytes,peak_bytes,time_ns,recompute_flops,total_flops,method,words,sequence\n";
  for (const auto& [budget, plan] : points)
    out += to_string(budget) + "," + to_string(plan.cost.peak) + "," + to_string(plan.cost.time) + "," +
           to_string(plan.cost.recompute) + "," + to_string(plan.cost.total) + "," + plan.method + "," +
           quoted(plan.words) + "," + quoted(to_sequence(plan.plan, outline)) + "\n";
  return out;
}

}  // namespace tidemark
