#include "tidemark/study/planner.hpp"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>
#include <variant>

#include "tidemark/base/errors.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/formula/formula.hpp"
#include "tidemark/plan/choices.hpp"
#include "tidemark/plan/order.hpp"
#include "tidemark/step/lower.hpp"
#include "tidemark/step/op_times.hpp"
#include "tidemark/study/chain_exact.hpp"
#include "tidemark/study/pipeline.hpp"
#include "tidemark/study/revolve.hpp"
#include "tidemark/study/rotor.hpp"

namespace tidemark {
namespace {

/// The scenario with its model built once, so that a plan costs a lowering and a scan.
class Evaluator {
 public:
  explicit Evaluator(const Scenario& scenario) : scenario_(scenario) {
    outline_ = outline(scenario);
    const bool reference = scenario.training.profile.runtime == "reference";
    if (const auto* spec = std::get_if<TransformerSpec>(&scenario.model))
      scenario_.model = make_transformer(*spec, scenario.training);
    else if (const auto* mlp = std::get_if<MlpSpec>(&scenario.model); mlp != nullptr && !reference)
      scenario_.model = make_mlp(*mlp, scenario.training);
  }

  PlanCost cost(const Plan& plan) {
    ++simulations;
    const Step step = lower(scenario_, plan);
    PlanCost out;
    out.peak = live_peak(step).bytes;
    const OpTimes times(scenario_.device);
    for (const StepOp& op : step.ops) {
      out.time += times.of(op);
      out.total += Flops{op.flops};
      if (op.phase == Phase::recompute) out.recompute += Flops{op.flops};
    }
    least_peak = simulations == 1 ? out.peak : std::min(least_peak, out.peak);
    return out;
  }

  Plan plan_of(const PolicyKind& kind) const {
    Policy policy = scenario_.policy;
    policy.kind = kind;
    return make_plan(policy, outline_);
  }

  const Scenario& scenario() const { return scenario_; }
  const Outline& model() const { return outline_; }
  std::int64_t simulations = 0;
  Bytes least_peak;

 private:
  Scenario scenario_;
  Outline outline_;
};

class Planning {
 public:
  Planning(const Scenario& scenario, Bytes budget) : evaluator_(scenario), budget_(budget) {
    blocks_ = static_cast<int>(block_layers(evaluator_.model()).size());
    const Plan none = evaluator_.plan_of(policy::None{});
    answer_.without = evaluator_.cost(none);
    const Step step = lower(evaluator_.scenario(), none);
    for (const StorageId id : step.initial) answer_.static_bytes += step.storages[id].bytes;
    if (budget < answer_.static_bytes)
      throw InputError("the budget of " + pretty(budget) + " is below the " + to_string(answer_.static_bytes) +
                       " bytes that are live before the first op");
    consider({"none", "no recomputation", "", none, answer_.without});
    answer_.recompute_bound = bound(step);
  }

  void run(const std::string& method) {
    const auto* graph = std::get_if<LayerGraph>(&evaluator_.scenario().model);
    const bool chain = graph != nullptr && graph->is_chain;
    if (method == "auto") {
      uniform();
      block();
      if (chain && blocks_ <= static_cast<int>(max_exact_stages)) chain_exact_plan();
      if (chain) rotor_plan("rotor_tight", RotorVariant::tight);
      if (graph == nullptr) search();
    } else if (method == "uniform") {
      uniform();
    } else if (method == "block") {
      block();
    } else if (method == "chen") {
      chen();
    } else if (method == "search") {
      uniform();
      block();
      if (graph == nullptr) search();
    } else if (!chain) {
      throw InputError("method '" + method +
                       "' plans chains; for this model there are auto, uniform, block, chen, search");
    } else if (method == "revolve") {
      revolve_plan();
    } else if (method == "rotor") {
      rotor_plan("rotor", RotorVariant::published);
    } else if (method == "rotor_tight") {
      rotor_plan("rotor_tight", RotorVariant::tight);
    } else {
      chain_exact_plan();
    }
  }

  PlanAnswer answer() {
    answer_.simulations = evaluator_.simulations;
    answer_.least_peak = evaluator_.least_peak;
    answer_.outline = evaluator_.model();
    return std::move(answer_);
  }

 private:
  void consider(Proposal proposal) {
    if (proposal.cost.peak > budget_) return;
    if (!answer_.best || is_cheaper(proposal.cost, answer_.best->cost)) answer_.best = std::move(proposal);
  }

  void try_policy(const std::string& method, const PolicyKind& kind, std::string words, std::string megatron) {
    Plan plan = evaluator_.plan_of(kind);
    const PlanCost cost = evaluator_.cost(plan);
    consider({method, std::move(words), std::move(megatron), std::move(plan), cost});
  }

  /// Exact over its parameter.
  void uniform() {
    for (int k = 1; k <= blocks_; ++k)
      for (const bool last : {true, false})
        try_policy(
            "uniform", policy::Interval{k, last},
            "segments of " + std::to_string(k) + " blocks" + (last ? "" : ", the last one kept"),
            last ? "--recompute-granularity full --recompute-method uniform --recompute-num-layers " + std::to_string(k)
                 : "");
  }

  void block() {
    for (int n = 1; n <= blocks_; ++n)
      try_policy("block", policy::Block{n},
                 "the first " + std::to_string(n) + " of " + std::to_string(blocks_) + " blocks in full",
                 "--recompute-granularity full --recompute-method block --recompute-num-layers " + std::to_string(n));
  }

  /// Chen et al. 2016, segments of sqrt(L).
  void chen() { try_policy("chen", policy::Sqrt{}, "segments of sqrt(L) blocks", ""); }

  void try_sequence(const std::string& method, const std::string& sequence) {
    Plan plan = evaluator_.plan_of(policy::Sequence{sequence});
    const PlanCost cost = evaluator_.cost(plan);
    consider({method, "a schedule of " + std::to_string(plan.steps.size()) + " steps", "", std::move(plan), cost});
  }

  void rotor_plan(const std::string& method, RotorVariant variant) {
    const ChainCosts costs = chain_costs(std::get<LayerGraph>(evaluator_.scenario().model));
    const SlottedChain slotted = in_slots(costs, budget_.count, 500);
    if (const auto schedule = rotor(slotted.costs, slotted.limit, variant)) try_sequence(method, schedule->sequence);
  }

  void chain_exact_plan() {
    const ChainCosts costs = chain_costs(std::get<LayerGraph>(evaluator_.scenario().model));
    if (const auto schedule = chain_exact(costs, budget_.count)) try_sequence("chain_exact", schedule->sequence);
  }

  /// The most slots whose schedule fits.
  void revolve_plan() {
    for (int slots = blocks_; slots >= 1; --slots) {
      try_sequence("revolve", revolve_sequence(blocks_, slots));
      if (answer_.best && answer_.best->method == "revolve") return;
    }
  }

  // ---- search: levels of recomputation, each over a run of blocks

  struct Level {
    std::string name;
    std::vector<OpChoice> choices;  // by op of a block
    std::string megatron;
  };

  /// What one block can give up.
  std::vector<Level> levels() const {
    const std::int32_t first = block_layers(evaluator_.model()).front();
    const std::size_t ops = evaluator_.model().layers[static_cast<std::size_t>(first)].ops.size();
    std::vector<Level> out;
    const std::vector<std::pair<std::string, PolicyKind>> kinds = {
        {"everything but products and attention", policy::Selective{{}, {"matmul", "attention"}, {}, 1}},
        {"everything but products", policy::Selective{{}, {"matmul"}, {}, 1}},
        {"core_attn", policy::Selective{{"core_attn"}, {}, {}, 1}},
        {"norms and activations", policy::Selective{{"norm", "activation"}, {}, {}, 1}},
        {"activations", policy::Selective{{"activation"}, {}, {}, 1}},
        {"mlp", policy::Selective{{"mlp"}, {}, {}, 1}},
        {"attention", policy::Selective{{"attention"}, {}, {}, 1}},
        {"full", policy::Full{}},
    };
    for (const auto& [name, kind] : kinds) {
      Choices choices;
      try {
        choices = choose(kind, evaluator_.model());
      } catch (const InputError&) {
        continue;  // the pattern matches nothing in this model
      }
      Level level{name, choices.ops[static_cast<std::size_t>(first)], ""};
      if (level.choices.size() != ops) continue;
      if (name == "core_attn") level.megatron = "--recompute-granularity selective --recompute-modules core_attn";
      out.push_back(level);
    }
    return out;
  }

  Plan mixed(const std::vector<std::pair<const Level*, int>>& runs) const {
    Choices choices = choose(policy::None{}, evaluator_.model());
    const std::vector<std::int32_t> layers = block_layers(evaluator_.model());
    std::size_t next = 0;
    for (const auto& [level, count] : runs)
      for (int i = 0; i < count && next < layers.size(); ++i, ++next) {
        const auto layer = static_cast<std::size_t>(layers[next]);
        if (choices.ops[layer].size() != level->choices.size()) continue;
        choices.ops[layer] = level->choices;
        choices.regions.push_back({layers[next]});
      }
    Policy policy = evaluator_.scenario().policy;
    policy.kind = policy::None{};
    return put_in_order(choices, policy, evaluator_.model());
  }

  bool try_mixed(const Level& a, int count_a, const Level* b, int count_b) {
    std::vector<std::pair<const Level*, int>> runs = {{&a, count_a}};
    std::string words = std::to_string(count_a) + " of " + std::to_string(blocks_) + " blocks: " + a.name;
    if (b != nullptr && count_b > 0) {
      runs.emplace_back(b, count_b);
      words += "; the next " + std::to_string(count_b) + ": " + b->name;
    }
    Plan plan = mixed(runs);
    const PlanCost cost = evaluator_.cost(plan);
    const bool fits = cost.peak <= budget_;
    const bool all = count_a == blocks_ && count_b == 0;
    consider({"search", std::move(words), all ? a.megatron : "", std::move(plan), cost});
    return fits;
  }

  /// The fewest blocks at which `fits` holds, by bisection; blocks_ + 1 when none do.
  int fewest(const std::function<bool(int)>& fits, int most) const {
    int low = 0, high = most + 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (middle > most) break;
      if (fits(middle))
        high = middle;
      else
        low = middle + 1;
    }
    return high;
  }

  void search() {
    if (blocks_ == 0) return;
    const std::vector<Level> all = levels();
    std::vector<int> alone(all.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      alone[i] = fewest([&](int n) { return try_mixed(all[i], n, nullptr, 0); }, blocks_);
    // Two levels: as many of the stronger one as are needed for each number of the cheaper one.
    for (std::size_t strong = 0; strong < all.size(); ++strong) {
      const int most = std::min(alone[strong], blocks_);
      for (std::size_t light = 0; light < all.size(); ++light) {
        if (light == strong) continue;
        for (int n = 1; n < most; n += std::max(1, most / 8))
          fewest([&](int m) { return try_mixed(all[strong], n, &all[light], m); }, blocks_ - n);
      }
    }
  }

  /// A lower bound on recomputed FLOPs of one micro-batch; see the header.
  Flops bound(const Step& step) const {
    Bytes live = answer_.static_bytes, end;
    for (const Instruction& i : step.instructions) {
      if (i.op != no_id && step.ops[i.op].phase == Phase::backward) break;
      if (i.what == Do::alloc) live += step.storages[i.index].bytes;
      if (i.what == Do::free) live -= step.storages[i.index].bytes;
      end = live;
    }
    if (end <= budget_) return {};
    Int128 excess = (end - budget_).count;
    struct Item {
      Int128 bytes, flops;
    };
    std::vector<Item> items;
    for (const OutlineLayer& layer : evaluator_.model().layers)
      for (const OutlineOp& op : layer.ops)
        // What an op makes comes back only by running it again: its outputs, and what it saved beside its inputs.
        if (const Bytes made = op.output_bytes + op.saved_bytes; made.count > 0)
          items.push_back({made.count, op.forward_flops.count});
    std::ranges::stable_sort(items, [](const Item& a, const Item& b) { return a.flops * b.bytes < b.flops * a.bytes; });
    Int128 flops = 0;
    for (const Item& item : items) {
      if (excess <= 0) break;
      if (item.bytes <= excess)
        flops += item.flops;
      else
        flops += item.flops * excess / item.bytes;
      excess -= item.bytes;
    }
    return Flops{flops};
  }

  Evaluator evaluator_;
  Bytes budget_;
  int blocks_ = 0;
  PlanAnswer answer_;
};

}  // namespace

bool is_cheaper(const PlanCost& a, const PlanCost& b) {
  return std::tuple(a.time, a.recompute, a.peak) < std::tuple(b.time, b.recompute, b.peak);
}

const std::vector<std::string>& plan_methods() {
  static const std::vector<std::string> names = {"auto",  "uniform",     "block",       "chen",  "revolve",
                                                 "rotor", "rotor_tight", "chain_exact", "search"};
  return names;
}

PlanAnswer find_plan(const Scenario& scenario, Bytes budget, const std::string& method) {
  const std::vector<std::string>& known = plan_methods();
  if (std::ranges::find(known, method) == known.end()) {
    std::string list;
    for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
    throw InputError("no planner is called '" + method + "'; known are " + list);
  }
  Planning planning(scenario, budget);
  planning.run(method);
  return planning.answer();
}

}  // namespace tidemark
