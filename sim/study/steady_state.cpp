#include "tidemark/study/steady_state.hpp"

#include <algorithm>
#include <vector>

#include "tidemark/study/allocation.hpp"
#include "tidemark/study/pipeline.hpp"

namespace tidemark {
namespace {

constexpr int most_steps = 64;
constexpr std::size_t most_events = 20'000'000;

/// By step, rank after rank: the figures after each of its events.
std::vector<std::vector<AllocatorFigures>> curves(const Step& step, const Timeline& timeline) {
  std::vector<std::vector<std::vector<AllocatorFigures>>> by_rank(
      static_cast<std::size_t>(step.steps),
      std::vector<std::vector<AllocatorFigures>>(static_cast<std::size_t>(step.ranks)));
  const AllocatorColumn& columns = timeline.allocator;
  for (std::size_t i = 0; i < timeline.events.size(); ++i) {
    const OpId op = timeline.events[i].op();
    if (op == no_id) continue;
    by_rank[static_cast<std::size_t>(step.ops[op].step)][static_cast<std::size_t>(step.ops[op].rank)].push_back(
        {columns.allocated[i], columns.active[i], columns.reserved[i], columns.inactive_split[i]});
  }
  std::vector<std::vector<AllocatorFigures>> out;
  for (const auto& ranks : by_rank) {
    auto& all = out.emplace_back();
    for (const auto& curve : ranks) all.insert(all.end(), curve.begin(), curve.end());
  }
  return out;
}

/// The first step that equals all after it; nothing when not even the last two are alike.
std::optional<int> first_steady(const std::vector<std::vector<AllocatorFigures>>& steps) {
  std::size_t first = steps.size() - 1;
  while (first > 0 && steps[first - 1] == steps[first]) --first;
  return first + 1 < steps.size() ? std::optional(static_cast<int>(first)) : std::nullopt;
}

}  // namespace

std::optional<SteadyState> find_steady_state(const Scenario& scenario, const Plan& plan) {
  if (!scenario.caching) return std::nullopt;
  Scenario longer = scenario;
  SteadyState out;
  for (int steps = std::max(3, scenario.training.loop.steps);; steps = std::min(2 * steps, most_steps)) {
    longer.training.loop.steps = steps;
    const Step step = lower(longer, plan);
    const Timeline timeline = simulate_with_allocator(longer, step).timeline;
    if (timeline.out_of_memory) return std::nullopt;
    const auto all = curves(step, timeline);
    out.first = first_steady(all);
    out.replayed = steps;
    out.reserved = {};
    for (const AllocatorFigures& figures : all.back()) out.reserved = std::max(out.reserved, figures.reserved);
    if (out.first || steps >= most_steps || timeline.events.size() > most_events / 2) return out;
  }
}

}  // namespace tidemark
