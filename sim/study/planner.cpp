#include "tidemark/study/planner.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <variant>

#include "tidemark/base/errors.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/input/yaml_map.hpp"
#include "tidemark/plan/choices.hpp"
#include "tidemark/report/peak.hpp"
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
#include "tidemark/study/revolve.hpp"
#include "tidemark/study/rotor.hpp"
#include "tidemark/study/saved_bytes.hpp"
#include "tidemark/study/two_level.hpp"

namespace tidemark {
namespace {

enum class Kind : std::uint8_t { program, graph, chain, whole_step };

struct Method {
  std::string name;
  std::vector<Kind> kinds;
};

const std::vector<Kind> layered = {Kind::program, Kind::graph, Kind::chain};
const std::vector<Method>& methods() {
  static const std::vector<Method> all = {
      {"auto", {Kind::program, Kind::graph, Kind::chain, Kind::whole_step}},
      {"uniform", layered},
      {"block", layered},
      {"chen", layered},
      {"knapsack", layered},
      {"revolve", {Kind::chain}},
      {"mixed", {Kind::chain}},
      {"two_level", {Kind::chain}},
      {"rotor", {Kind::chain}},
      {"rotor_tight", {Kind::chain}},
      {"chain_exact", {Kind::chain}},
      {"checkmate", {Kind::whole_step}},
      {"dtr", {Kind::whole_step}},
      {"search", {Kind::program, Kind::graph, Kind::chain, Kind::whole_step}},
  };
  return all;
}

Kind kind_of(const Scenario& scenario) {
  const auto* graph = std::get_if<LayerGraph>(&scenario.model);
  if (graph == nullptr) return Kind::program;
  return graph->is_whole_step ? Kind::whole_step : graph->is_chain ? Kind::chain : Kind::graph;
}

std::string_view name_of(Kind kind) {
  constexpr std::array<std::string_view, 4> names = {"models of ops", "layer graphs", "chains",
                                                     "graphs whose rows are the whole step"};
  return names[static_cast<std::size_t>(kind)];
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
    if (kind_ == Kind::whole_step) return;
    const Flops least = least_recompute(step, evaluator_.model(), budget);
    if (least > Flops{}) answer_.bound = {"bytes kept at the end of forward", {}, least, false};
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
    if (method == "revolve") most_that_fits([&](int slots) { return revolve_sequence(blocks_, slots); });
    if (method == "mixed") mixed_plan();
    if (method == "two_level") two_level_plan();
    if (method == "rotor") rotor_plan("rotor", RotorVariant::published);
    if (method == "rotor_tight") rotor_plan("rotor_tight", RotorVariant::tight);
    if (method == "chain_exact") chain_exact_plan();
    if (method == "checkmate") checkmate_plan(settings_.seconds);
    if (method == "dtr") dtr_plan();
  }

  PlanAnswer answer() {
    if (!answer_.best) describe_nearest();
    answer_.simulations = evaluator_.simulations();
    if (answer_.best && answer_.bound.time.count > 0 && answer_.best->cost.time == answer_.bound.time)
      answer_.bound.is_tight = true;
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
    if (kind_ == Kind::whole_step) {
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
    if (kind_ == Kind::chain) {
      answer_.tried.emplace_back("rotor_tight");
      rotor_plan("rotor_tight", RotorVariant::tight);
      if (blocks_ <= most_layers_for_proof) {
        answer_.tried.emplace_back("chain_exact");
        chain_exact_plan();
      }
    }
    if (kind_ != Kind::program && quick && blocks_ > most_layers_to_search) return;
    answer_.tried.emplace_back("search");
    const Offer offer = [&](std::string words, Plan plan, const PlanCost& cost) {
      consider({"search", std::move(words), "", std::move(plan), cost});
    };
    if (kind_ == Kind::program) {
      for (const std::string& framework : frameworks())
        for (const Expression& expression : expressions(framework, evaluator_.model())) try_expression(expression);
      return search_levels(evaluator_, budget_, offer);
    }
    search_layers(evaluator_, budget_, 1000, offer);
  }

  void consider(Proposal proposal) {
    if (proposal.cost.peak > budget_) return;
    if (!answer_.best || is_cheaper(proposal.cost, answer_.best->cost)) answer_.best = std::move(proposal);
  }

  void try_plan(const std::string& method, Plan plan, std::string words, std::string express = "") {
    const PlanCost cost = evaluator_.cost(plan);
    consider({method, std::move(words), std::move(express), std::move(plan), cost});
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
  void try_sequence(const std::string& method, const std::string& sequence) {
    try {
      Plan plan = evaluator_.plan_of(policy::Sequence{sequence});
      std::string words = "a schedule of " + std::to_string(plan.steps.size()) + " steps";
      try_plan(method, std::move(plan), std::move(words));
    } catch (const InputError&) {
      if (settings_.method == method)
        answer_.notes.push_back("the schedule of " + method + " needs the rules of convention rotor");
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
    const ChainExact found = chain_exact(chain_costs(graph()), budget_.count);
    if (found.schedule) try_sequence("chain_exact", found.schedule->sequence);
    const bool timed = answer_.without.time.count > 0;
    const bool same_rules = evaluator_.scenario().convention == Convention::rotor;
    if (timed && same_rules && found.bound > 0)
      answer_.bound = {"shortest path", Nanos{found.bound * steps()}, {}, false};
    if (settings_.method != "chain_exact" || found.schedule) return;
    answer_.notes.emplace_back(found.is_proven ? "proven: no schedule of a chain fits"
                                               : "the states ran out before a schedule was found");
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
  void most_that_fits(const SequenceOf& sequence_of) {
    for (int slots = blocks_; slots >= 1 && !(answer_.best && answer_.best->method == settings_.method); --slots)
      try_sequence(settings_.method, sequence_of(slots));
  }

  void refuse_above(int layers) const {
    if (blocks_ > layers)
      throw InputError("method " + settings_.method + " plans chains of at most " + std::to_string(layers) +
                       " layers; this one has " + std::to_string(blocks_));
  }

  void mixed_plan() {
    refuse_above(most_layers_for_tables);
    const Mixed mixed(blocks_, blocks_);
    most_that_fits([&](int units) { return mixed.sequence(blocks_, units); });
  }

  /// With the chain's mean step; the outer level is the host, behind the device's link, and without a limit.
  void two_level_plan() {
    refuse_above(most_layers_for_tables);
    answer_.bound = {};  // it is of what runs again, and a copy is no run
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
    most_that_fits([&](int slots) { return two_level(blocks_, slots, blocks_, costs).sequence; });
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

  /// No schedule of one step costs less than this.
  void bound_cost(std::int64_t cost, const Dag& of, const std::string& proof) {
    const bool timed = answer_.without.time.count > 0;
    LowerBound& bound = answer_.bound;
    const Nanos time{timed ? cost * steps() : 0};
    const Flops recompute{timed ? 0 : cost - of.total()};
    if (bound.proof.empty() || time > bound.time || recompute > bound.recompute)
      bound = {proof, time, recompute, false};
  }

  void search_whole_step() {
    const Dag of = dag();
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(settings_.seconds);
    const auto stop = [end] { return std::chrono::steady_clock::now() >= end; };
    const DagBound bound = bound_dag(of, budget_.count, programs_for_bound, stop);
    bound_cost(bound.cost, of,
               bound.programs > 0 ? "linear programs at " + std::to_string(bound.programs) + " moments"
                                  : "fractional knapsacks");
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
    bound_cost(found.bound, of, "the integer program");
    answer_.bound.is_tight = found.is_proven;
  }

  /// As the online run goes; thrashing where repetition costs ten times the step.
  void dtr_plan() {
    const auto heuristic = find_heuristic(settings_.heuristic);
    if (!heuristic)
      throw InputError("no heuristic is called '" + settings_.heuristic + "'; known are " + joined(heuristic_names()));
    const Dag of = dag();
    const DtrRun run = run_dtr(dtr_log(of), budget_.count, *heuristic, 10 * of.total());
    if (run.end == DtrRun::End::ok) return try_schedule("dtr", dtr_schedule(run, of), of);
    answer_.notes.push_back(settings_.heuristic + (run.end == DtrRun::End::thrashing
                                                       ? " repeats more than ten times the step's cost"
                                                       : " finds nothing left to evict"));
  }

  // ---- what to say where nothing fits

  /// The lowest limit at which a short search of the whole step finds a schedule.
  void lower_whole_step() {
    const Dag of = dag();
    std::int64_t low = std::max(widest_row(of) - 1, budget_.count), high = answer_.without.peak.count;
    while (high - low > std::max<std::int64_t>(1, high / 1000)) {
      const std::int64_t middle = low + (high - low) / 2;
      const DagSearchAnswer found = search_dag(of, middle, {short_decodings, 0, nullptr});
      if (found.schedule) (void)evaluator_.cost(to_plan(*found.schedule, of));
      (found.schedule ? high : low) = found.schedule ? found.schedule->peak : middle;
    }
  }

  /// Plans of low peaks, whatever the method; its own schedules may not have been simulated.
  void lower_layers() {
    for (int k = 1; k <= blocks_; ++k) (void)evaluator_.cost(evaluator_.plan_of(policy::Interval{k, true}));
    for (int slots = 1; kind_ == Kind::chain && slots <= 4; ++slots) try {
        (void)evaluator_.cost(evaluator_.plan_of(policy::Sequence{revolve_sequence(blocks_, slots)}));
      } catch (const InputError&) {  // it rests on the rules of convention rotor
      }
    if (evaluator_.least_peak() <= budget_) answer_.notes.emplace_back("other methods have plans that fit: try auto");
  }

  void describe_nearest() {
    if (kind_ == Kind::whole_step) lower_whole_step();
    if (kind_ != Kind::whole_step && settings_.express.empty()) lower_layers();
    const Step step = evaluator_.lowered(evaluator_.lowest());
    const Timeline timeline = simulate(step, evaluator_.scenario().device);
    answer_.nearest.peak = evaluator_.least_peak();
    if (timeline.events.empty()) return;
    const OpId op = timeline.events[timeline.peak_event].op();
    if (op != no_id) answer_.nearest.op = step.names[step.ops[op].name];
    for (const PeakStorage& storage : peak_storages(step, timeline)) {
      const StepStorage& of = step.storages[storage.storage];
      answer_.nearest.alive.emplace_back(step.names[of.name], of.bytes);
    }
  }

  static constexpr std::size_t most_rows_for_proof = 64;
  static constexpr int most_layers_for_proof = 12, most_layers_for_tables = 1000, most_layers_to_search = 400;
  static constexpr int programs_for_bound = 48;
  static constexpr std::int64_t fewest_decodings = 2'000, short_decodings = 200;

  PlanEvaluator evaluator_;
  Bytes budget_;
  const PlanSettings& settings_;
  Kind kind_;
  int blocks_ = 0;
  PlanAnswer answer_;
};

}  // namespace

const std::vector<std::string>& plan_methods() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Method& method : methods()) out.push_back(method.name);
    return out;
  }();
  return names;
}

PlanAnswer find_plan(const Scenario& scenario, Bytes budget, const PlanSettings& settings) {
  const auto method = std::ranges::find(methods(), settings.method, &Method::name);
  if (method == methods().end())
    throw InputError("no planner is called '" + settings.method + "'; known are " + joined(plan_methods()));
  const Kind kind = kind_of(scenario);
  if (std::ranges::find(method->kinds, kind) == method->kinds.end()) {
    std::vector<std::string> others;
    for (const Method& other : methods())
      if (std::ranges::find(other.kinds, kind) != other.kinds.end()) others.push_back(other.name);
    throw InputError("method '" + settings.method + "' does not plan " + std::string(name_of(kind)) + "; there are " +
                     joined(others));
  }
  if (!settings.express.empty() && settings.method != "auto")
    throw InputError("--express searches all that the framework can say; leave out the method");
  Planning planning(scenario, budget, settings);
  planning.run();
  return planning.answer();
}

}  // namespace tidemark
