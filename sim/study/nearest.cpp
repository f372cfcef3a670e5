#include "tidemark/study/nearest.hpp"

#include <algorithm>
#include <variant>

#include "tidemark/base/errors.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/plan/choices.hpp"
#include "tidemark/report/peak.hpp"
#include "tidemark/study/dag_search.hpp"
#include "tidemark/study/plan_methods.hpp"
#include "tidemark/study/revolve.hpp"
#include "tidemark/study/rotor.hpp"

namespace tidemark {
namespace {

constexpr int most_layers_to_halve = 200;
constexpr std::int64_t short_decodings = 200;

/// The least limit above `low` at which `peak_within` has a plan, to a thousandth; `high` has one. It gives the plan's
/// peak, or nothing.
template <class PeakWithin>
void halve(std::int64_t low, std::int64_t high, const PeakWithin& peak_within) {
  while (high - low > std::max<std::int64_t>(1, high / 1000)) {
    const std::int64_t middle = low + (high - low) / 2;
    const std::optional<std::int64_t> peak = peak_within(middle);
    (peak ? high : low) = peak ? std::min(*peak, middle) : middle;
  }
}

void lower_whole_step(PlanEvaluator& evaluator, Bytes budget) {
  const Scenario& scenario = evaluator.scenario();
  const Dag dag = make_dag(std::get<LayerGraph>(scenario.model), scenario.convention == Convention::dtr);
  halve(std::max(widest_row(dag) - 1, budget.count), evaluator.least_peak().count,
        [&](std::int64_t limit) -> std::optional<std::int64_t> {
          const DagSearchAnswer found = search_dag(dag, limit, {short_decodings, 0, nullptr});
          if (!found.schedule) return std::nullopt;
          return evaluator.cost(to_plan(*found.schedule, dag)).peak.count;
        });
}

std::optional<std::int64_t> peak_of(PlanEvaluator& evaluator, const std::string& sequence) {
  try {
    return evaluator.cost(evaluator.plan_of(policy::Sequence{sequence})).peak.count;
  } catch (const InputError&) {  // it rests on the rules of convention rotor
    return std::nullopt;
  }
}

void lower_chain(PlanEvaluator& evaluator, Bytes budget, int blocks) {
  for (int slots = 1; slots <= 4; ++slots) (void)peak_of(evaluator, revolve_sequence(blocks, slots));
  if (blocks > most_layers_to_halve) return;
  const ChainCosts costs = chain_costs(std::get<LayerGraph>(evaluator.scenario().model));
  halve(budget.count, evaluator.least_peak().count, [&](std::int64_t limit) -> std::optional<std::int64_t> {
    const SlottedChain slotted = in_slots(costs, limit, 500);
    const auto schedule = rotor(slotted.costs, slotted.limit, RotorVariant::tight);
    return schedule ? peak_of(evaluator, schedule->sequence) : std::nullopt;
  });
}

}  // namespace

Nearest find_nearest(PlanEvaluator& evaluator, Bytes budget, bool as_it_is) {
  const ModelKind kind = kind_of(evaluator.scenario());
  const int blocks = static_cast<int>(block_layers(evaluator.model()).size());
  if (kind == ModelKind::whole_step) lower_whole_step(evaluator, budget);
  if (kind != ModelKind::whole_step && !as_it_is) {
    for (int k = 1; k <= blocks; ++k) (void)evaluator.cost(evaluator.plan_of(policy::Interval{k, true}));
    if (kind == ModelKind::chain) lower_chain(evaluator, budget, blocks);
  }
  const Step step = evaluator.lowered(evaluator.lowest());
  const Timeline timeline = simulate(step, evaluator.scenario().device);
  Nearest out;
  out.peak = evaluator.least_peak();
  if (timeline.events.empty()) return out;
  const OpId op = timeline.events[timeline.peak_event].op();
  if (op != no_id) out.op = step.names[step.ops[op].name];
  for (const PeakStorage& storage : peak_storages(step, timeline)) {
    const StepStorage& of = step.storages[storage.storage];
    out.alive.emplace_back(step.names[of.name], of.bytes);
  }
  return out;
}

}  // namespace tidemark
