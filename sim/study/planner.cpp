#include "tidemark/study/planner.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/yaml_map.hpp"
#include "tidemark/plan/choices.hpp"
#include "tidemark/step/op_times.hpp"
#include "tidemark/study/block_search.hpp"
#include "tidemark/study/chain_exact.hpp"
#include "tidemark/study/checkmate.hpp"
#include "tidemark/study/dag_bound.hpp"
#include "tidemark/study/dag_search.hpp"
#include "tidemark/study/dtr.hpp"
#include "tidemark/study/express.hpp"
#include "tidemark/study/kept_bound.hpp"
#include "tidemark/study/linear_program.hpp"
#include "tidemark/study/plan_methods.hpp"
#include "tidemark/study/revolve.hpp"
#include "tidemark/study/rotor.hpp"
#include "tidemark/study/saved_bytes.hpp"
#include "tidemark/study/two_level.hpp"

namespace tidemark {
namespace {

/// Of two plans of the same cost: which runs lower ops again, where they first differ?
bool runs_lower_again(const Plan& a, const Plan& b) {
  const auto again = [](const Plan& plan) {
    std::vector<std::pair<std::int32_t, std::vector<std::int32_t>>> out;
    for (const PlanStep& step : plan.steps)
      if (step.action == Action::recompute) out.emplace_back(step.layer, step.ops);
    std::ranges::sort(out);
    return out;
  };
  return again(a) < again(b);
}

class Planning {
 public:
  Planning(const Scenario& scenario, Bytes budget, const PlanSettings& settings)
      : evaluator_(scenario), budget_(budget), settings_(settings), kind_(kind_of(scenario)) {
    blocks_ = static_cast<int>(block_layers(evaluator_.model()).size());
    const Plan none = evaluator_.plan_of(policy::None{});
    answer_.without = evaluator_.cost(none);
    const Step step = evaluator_.lowered(none);
    for (const StorageId id : step.initial) answer_.static_bytes += step.storages[id].bytes;
    if (budget < answer_.static_bytes)
      throw InputError("the budget of " + pretty(budget) + " is below the " + to_string(answer_.static_bytes) +
                       " bytes that are live before the first op");
    consider({"none", "no recomputation", "", none, answer_.without});
    bound_work(step);
  }

  void run() {
    if (!settings_.express.empty()) return run_expressions();
    const std::string& method = settings_.method;
    if (method == "auto" || method == "search") return run_all(method == "auto");
    answer_.tried = {method};
    if (method == "uniform") uniform();
    if (method == "block") block();
    if (method == "chen") chen();
    if (method == "knapsack") knapsack_plan();
    if (method == "revolve") most_that_fits("revolve", [&](int slots) { return revolve_sequence(blocks_, slots); });
    if (method == "mixed") mixed_plan();
    if (method == "two_level") two_level_plan();
    if (method == "rotor") rotor_plan("rotor", RotorVariant::published);
    if (method == "rotor_tight") rotor_plan("rotor_tight", RotorVariant::tight);
    if (method == "chain_exact") chain_exact_plan();
    if (method == "checkmate") checkmate_plan(settings_.seconds);
    if (method == "dtr") dtr_plan();
  }

  PlanAnswer answer() {
    if (!answer_.best) {
      answer_.nearest = find_nearest(evaluator_, budget_, !settings_.express.empty());
      if (answer_.nearest.peak <= budget_ && settings_.express.empty())
        answer_.notes.emplace_back("other methods have plans that fit: try auto");
    }
    answer_.simulations = evaluator_.simulations();
    settle_bound();
    answer_.outline = evaluator_.model();
    return std::move(answer_);
  }

 private:
  const LayerGraph& graph() const { return std::get<LayerGraph>(evaluator_.scenario().model); }
  int steps() const { return evaluator_.scenario().training.loop.steps; }

  /// Only what the framework can say; every block alike in kind, so that all of it is tried.
  void run_expressions() {
    answer_.tried = {settings_.express};
    for (const Expression& expression : expressions(settings_.express, evaluator_.model()))
      try_policy(settings_.express, expression.kind, expression.words, expression.text);
  }

  /// `quick`: what takes seconds at most.
  void run_all(bool quick) {
    if (kind_ == ModelKind::whole_step) {
      answer_.tried = {"search"};
      search_whole_step();
      if (!has_linear_solver() || evaluator_.model().layers.size() > most_rows_for_proof || answer_.bound.is_tight)
        return;
      answer_.tried.emplace_back("checkmate");
      return checkmate_plan(quick ? 0.5 : settings_.seconds / 2);
    }
    answer_.tried = {"uniform", "block"};
    uniform();
    block();
    if (kind_ == ModelKind::chain) {
      answer_.tried.emplace_back("rotor_tight");
      rotor_plan("rotor_tight", RotorVariant::tight);
      if (blocks_ <= most_layers_for_proof) {
        answer_.tried.emplace_back("chain_exact");
        chain_exact_plan();
      }
      if (may_copy()) {
        answer_.tried.emplace_back("two_level");
        two_level_plan();
      }
    }
    if (kind_ != ModelKind::ops && quick && blocks_ > most_layers_to_search) return;
    answer_.tried.emplace_back("search");
    const Offer offer = [&](std::string words, Plan plan, const PlanCost& cost) {
      consider({"search", std::move(words), "", std::move(plan), cost});
    };
    if (kind_ == ModelKind::ops) {
      for (const std::string& framework : frameworks())
        for (const Expression& expression : expressions(framework, evaluator_.model())) try_expression(expression);
      return search_levels(evaluator_, budget_, offer);
    }
    search_layers(evaluator_, budget_, 1000, offer);
  }

  /// The cheapest stays; of equal ones that which runs lower ops again, and then the first.
  void consider(Proposal proposal) {
    if (proposal.cost.peak > budget_) return;
    const bool better = !answer_.best || is_cheaper(proposal.cost, answer_.best->cost) ||
                        (proposal.cost == answer_.best->cost && runs_lower_again(proposal.plan, answer_.best->plan));
    if (better) answer_.best = std::move(proposal);
  }

  /// Whether it fits.
  bool try_plan(const std::string& method, Plan plan, std::string words, std::string express = "") {
    const PlanCost cost = evaluator_.cost(plan);
    consider({method, std::move(words), std::move(express), std::move(plan), cost});
    return cost.peak <= budget_;
  }
  void try_policy(const std::string& method, const PolicyKind& kind, std::string words, std::string express = "") {
    try_plan(method, evaluator_.plan_of(kind), std::move(words), std::move(express));
  }
  /// In the search for any plan, what the rest of the policy does not take (kept results, when checkpointing is
  /// re-entrant) is none.
  void try_expression(const Expression& expression) {
    Plan plan;
    try {
      plan = evaluator_.plan_of(expression.kind);
    } catch (const InputError&) {
      return;
    }
    try_plan("search", std::move(plan), expression.words);
  }
  /// A schedule may rest on what rotor's convention lets go and the scenario's does not: then it is no plan here.
  /// Whether it fits.
  bool try_sequence(const std::string& method, const std::string& sequence) {
    try {
      Plan plan = evaluator_.plan_of(policy::Sequence{sequence});
      std::string words = "a schedule of " + std::to_string(plan.steps.size()) + " steps";
      return try_plan(method, std::move(plan), std::move(words));
    } catch (const InputError&) {
      const std::string note = "the schedule of " + method + " needs the rules of convention rotor";
      const bool is_said = !answer_.notes.empty() && answer_.notes.back() == note;
      if (settings_.method == method && !is_said) answer_.notes.push_back(note);
      return false;
    }
  }

  /// Exact over its parameter.
  void uniform() {
    for (int k = 1; k <= blocks_; ++k)
      for (const bool last : {true, false})
        try_policy("uniform", policy::Interval{k, last},
                   "segments of " + std::to_string(k) + " blocks" + (last ? "" : ", the last one kept"));
  }

  void block() {
    for (int n = 1; n <= blocks_; ++n)
      try_policy("block", policy::Block{n},
                 "the first " + std::to_string(n) + " of " + std::to_string(blocks_) + " blocks in full");
  }

  void rotor_plan(const std::string& method, RotorVariant variant) {
    const SlottedChain slotted = in_slots(chain_costs(graph()), budget_.count, 500);
    if (const auto schedule = rotor(slotted.costs, slotted.limit, variant)) try_sequence(method, schedule->sequence);
  }

  void chain_exact_plan() {
    const ChainCosts costs = chain_costs(graph());
    const ChainExact found = chain_exact(costs, budget_.count);
    if (found.schedule) try_sequence("chain_exact", found.schedule->sequence);
    const bool same_rules = evaluator_.scenario().convention == Convention::rotor;
    if (same_rules) bound_cost("shortest path", found.bound, total_time(costs));
    if (settings_.method != "chain_exact" || found.schedule) return;
    const std::string none_below = same_rules ? ": none takes less than " + pretty(Nanos{found.bound}) : std::string();
    answer_.notes.emplace_back(found.is_proven ? "proven: no schedule of a chain fits"
                                               : "the states ran out before a schedule was found" + none_below);
  }

  /// Segments of sqrt(L) blocks, and greedy ones of so many bytes (Chen et al. 2016).
  void chen() {
    try_policy("chen", policy::Sqrt{}, "segments of sqrt(L) blocks");
    const Bytes all = saved_by_blocks(evaluator_.model());
    for (int part = 1; part <= 32; ++part) {
      const Bytes most{static_cast<std::int64_t>(Int128{all.count} * part / 32)};
      const Choices choices = greedy_segments(evaluator_.model(), most);
      try_plan("chen", evaluator_.plan_of(choices, evaluator_.scenario().policy.schedule),
               std::to_string(choices.regions.size()) + " greedy segments of at most " + pretty(most));
    }
  }

  /// From nothing kept to everything, by tenths of what blocks save: what the rule counts, and the true peak.
  void knapsack_plan() {
    const auto* layers = std::get_if<LayerGraph>(&evaluator_.scenario().model);
    const std::vector<std::int64_t> worth = worth_of(evaluator_.model(), layers);
    const Bytes all = saved_by_blocks(evaluator_.model());
    // A framework that carries the plan out says itself when it recomputes.
    const bool up_front = evaluator_.scenario().policy.checkpointing.kind == Checkpointing::Kind::direct;
    const std::string again = std::string(", all else runs again ") + (up_front ? "up front" : "in its turn");
    for (int tenths = 10; tenths >= 0; --tenths) {
      const Bytes most{static_cast<std::int64_t>(Int128{all.count} * tenths / 10)};
      const SavedChoice choice = knapsack(evaluator_.model(), worth, most);
      Plan plan =
          evaluator_.plan_of(choice.choices, up_front ? RecomputeSchedule::up_front : RecomputeSchedule::per_segment);
      const PlanCost cost = evaluator_.cost(plan);
      const std::string kept = pretty(choice.saved) + " of " + pretty(all) + " saved";
      answer_.notes.push_back("knapsack " + std::string(tenths == 10 ? "1.0" : "0." + std::to_string(tenths)) + ": " +
                              kept + ", peak " + pretty(cost.peak) +
                              (cost.peak <= budget_ ? "" : ", above the budget"));
      consider({"knapsack", "a knapsack keeps " + kept + again, "", std::move(plan), cost});
    }
  }

  /// The method's schedule for the most slots of memory with which it fits.
  template <class SequenceOf>
  void most_that_fits(const std::string& method, const SequenceOf& sequence_of) {
    int slots = blocks_;
    while (slots >= 1 && !try_sequence(method, sequence_of(slots))) --slots;
  }

  void refuse_above(int layers) const {
    if (blocks_ > layers)
      throw InputError("method " + settings_.method + " plans chains of at most " + std::to_string(layers) +
                       " layers; this one has " + std::to_string(blocks_));
  }

  void mixed_plan() {
    refuse_above(most_layers_for_tables);
    const Mixed mixed(blocks_, blocks_);
    most_that_fits("mixed", [&](int units) { return mixed.sequence(blocks_, units); });
  }

  /// With the chain's mean step; the outer level is the host, behind the device's link, and without a limit.
  void two_level_plan() {
    refuse_above(most_layers_for_tables);
    const Device& device = evaluator_.scenario().device;
    const OpTimes times(device);
    TwoLevelCosts costs{0, 0, 0, 0};  // of all steps together: of one of them times their number
    for (const StepOp& op : evaluator_.lowered(evaluator_.plan_of(policy::None{})).ops)
      (op.phase == Phase::backward ? costs.backward : costs.forward) += op.step == 0 ? times.of(op).count : 0;
    Bytes boundaries = graph().input;
    for (const LayerCost& layer : graph().layers) boundaries += layer.output;
    costs.write = copy_duration(device.copy_to_host, boundaries).count;
    costs.read = copy_duration(device.copy_to_device, boundaries).count;
    if (costs.forward == 0 && costs.write == 0 && costs.read == 0) costs.forward = 1;  // no times: all that counts
    most_that_fits("two_level", [&](int slots) { return two_level(blocks_, slots, blocks_, costs).sequence; });
  }

  // ---- what no plan that fits goes below

  /// Auto then tries plans that copy a chain's boundaries to the host.
  bool may_copy() const {
    const Device& device = evaluator_.scenario().device;
    return kind_ == ModelKind::chain && settings_.method == "auto" && settings_.express.empty() &&
           device.copy_to_host > 0 && device.copy_to_device > 0 && blocks_ <= most_layers_to_copy;
  }

  /// By the scenario's own copies and those of two_level; auto's come after its bound.
  bool copies() const {
    const Policy& policy = evaluator_.scenario().policy;
    return policy.offload || policy.checkpointing.kind == Checkpointing::Kind::offload ||
           settings_.method == "two_level";
  }

  void bound_work(const Step& none) {
    const Device& device = evaluator_.scenario().device;
    every_op_once_ = least_work(none, nullptr, device, budget_, true).time;
    const auto* layers = std::get_if<LayerGraph>(&evaluator_.scenario().model);
    const LeastWork least = least_work(none, layers, device, budget_, copies());
    const bool again = least.recomputes > 0;
    answer_.bound = {again ? "what must be there at one moment" : "every op runs once", least.time, least.recompute,
                     least.recomputes, false};
  }

  /// No schedule of one step costs less than this, in which each op once costs `total`.
  void bound_cost(const std::string& proof, std::int64_t cost, std::int64_t total) {
    const bool timed = answer_.without.time.count > 0;
    LowerBound& bound = answer_.bound;
    const Nanos time{timed ? cost * steps() : 0};
    const Flops recompute{timed ? 0 : Int128{cost - total} * steps()};
    if (time > bound.time || recompute > bound.recompute) bound = {proof, time, recompute, bound.recomputes, false};
  }

  /// Where plans copy to the host, bounds of what runs again are of those that do not.
  void settle_bound() {
    LowerBound& bound = answer_.bound;
    if (may_copy() && answer_.best && answer_.best->cost.time < bound.time)
      bound = {"every op runs once", every_op_once_, {}, 0, false};
    if (may_copy() && bound.proof != "every op runs once") bound.proof += ", nothing copied to the host";
    if (answer_.best && bound.time.count > 0 && answer_.best->cost.time == bound.time) bound.is_tight = true;
  }

  // ---- graphs whose rows are the whole step

  Dag dag() const { return make_dag(graph(), evaluator_.scenario().convention == Convention::dtr); }

  void try_schedule(const std::string& method, const DagSchedule& schedule, const Dag& of) {
    const auto runs = static_cast<std::size_t>(
        std::ranges::count_if(schedule.moves, [](const DagMove& move) { return !move.is_drop; }));
    const std::size_t more = runs - of.cost.size();
    try_plan(method, to_plan(schedule, of),
             std::to_string(runs) + " runs of " + std::to_string(of.cost.size()) + " rows, " + std::to_string(more) +
                 " of them again");
  }

  void bound_whole_step(const Dag& of, const DagBound& bound) {
    bound_cost(bound.programs > 0 ? "linear programs at " + std::to_string(bound.programs) + " moments"
                                  : "fractional knapsacks",
               bound.cost, of.total());
  }

  void search_whole_step() {
    const Dag of = dag();
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(settings_.seconds);
    const auto stop = [end] { return std::chrono::steady_clock::now() >= end; };
    const DagBound bound = bound_dag(of, budget_.count, programs_for_bound, stop);
    bound_whole_step(of, bound);
    const DagSearchAnswer found =
        search_dag(of, budget_.count, {fewest_decodings + std::int64_t{10} * of.rows(), bound.cost, stop});
    if (!found.schedule) return;
    try_schedule("search", *found.schedule, of);
    answer_.bound.is_tight = found.schedule->cost == bound.cost;
  }

  void checkmate_plan(double seconds) {
    const Dag of = dag();
    const CheckmateAnswer found = checkmate(of, budget_.count, seconds);
    if (found.schedule) try_schedule("checkmate", *found.schedule, of);
    if (settings_.method != "checkmate") return;  // other shapes of schedule may cost less
    if (!found.schedule)
      answer_.notes.emplace_back(found.is_proven ? "proven: no schedule of this shape fits"
                                                 : "the time was over before a schedule was found");
    if (!found.schedule && found.is_proven) return;  // where there is no schedule, none is the cheapest
    bound_cost("the integer program", found.bound, of.total());
    answer_.bound.is_tight = found.is_proven;
  }

  /// As the online run goes; thrashing where repetition costs ten times the step.
  void dtr_plan() {
    const auto heuristic = find_heuristic(settings_.heuristic);
    if (!heuristic)
      throw InputError("no heuristic is called '" + settings_.heuristic + "'; known are " + joined(heuristic_names()));
    const Dag of = dag();
    bound_whole_step(of, bound_dag(of, budget_.count, 1));
    const DtrRun run = run_dtr(dtr_log(of), budget_.count, *heuristic, 10 * of.total());
    if (run.end == DtrRun::End::ok) return try_schedule("dtr", dtr_schedule(run, of), of);
    answer_.notes.push_back(settings_.heuristic + (run.end == DtrRun::End::thrashing
                                                       ? " repeats more than ten times the step's cost"
                                                       : " finds nothing left to evict"));
  }

  static constexpr std::size_t most_rows_for_proof = 64;
  static constexpr int most_layers_to_copy = 200;
  static constexpr int most_layers_for_proof = 12, most_layers_for_tables = 1000, most_layers_to_search = 400;
  static constexpr int programs_for_bound = 48;
  static constexpr std::int64_t fewest_decodings = 2'000;

  PlanEvaluator evaluator_;
  Bytes budget_;
  const PlanSettings& settings_;
  ModelKind kind_;
  int blocks_ = 0;
  Nanos every_op_once_;
  PlanAnswer answer_;
};

}  // namespace

PlanAnswer find_plan(const Scenario& scenario, Bytes budget, const PlanSettings& settings) {
  check_method(settings.method, kind_of(scenario));
  if (!settings.express.empty() && settings.method != "auto")
    throw InputError("--express searches all that the framework can say; leave out the method");
  Planning planning(scenario, budget, settings);
  planning.run();
  return planning.answer();
}

}  // namespace tidemark
