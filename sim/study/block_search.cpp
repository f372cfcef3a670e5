#include "tidemark/study/block_search.hpp"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/plan/choices.hpp"

namespace tidemark {
namespace {

/// Of a block: what one gives up.
struct Level {
  std::string name;
  std::vector<OpChoice> choices;  // by op
};

class LevelSearch {
 public:
  LevelSearch(PlanEvaluator& evaluator, Bytes budget, const Offer& offer)
      : evaluator_(evaluator), budget_(budget), offer_(offer), layers_(block_layers(evaluator.model())) {}

  void run() {
    if (layers_.empty()) return;
    const std::vector<Level> all = levels();
    const int blocks = static_cast<int>(layers_.size());
    std::vector<int> alone(all.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      alone[i] = fewest([&](int n) { return fits(all[i], n, nullptr, 0); }, blocks);
    // As many of the stronger one as are needed for each number of the cheaper one.
    for (std::size_t strong = 0; strong < all.size(); ++strong) {
      const int most = std::min(alone[strong], blocks);
      for (std::size_t light = 0; light < all.size(); ++light) {
        if (light == strong) continue;
        for (int n = 1; n < most; n += std::max(1, most / 8))
          fewest([&](int m) { return fits(all[strong], n, &all[light], m); }, blocks - n);
      }
    }
  }

 private:
  std::vector<Level> levels() const {
    const auto first = static_cast<std::size_t>(layers_.front());
    const std::size_t ops = evaluator_.model().layers[first].ops.size();
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
    std::vector<Level> out;
    for (const auto& [name, kind] : kinds) {
      try {
        Policy policy = evaluator_.scenario().policy;
        policy.kind = kind;
        Level level{name, choose(kind, evaluator_.model(), views_run_along(policy)).ops[first]};
        if (level.choices.size() != ops) continue;
        (void)mixed(level, 1, nullptr, 0);
        out.push_back(std::move(level));
      } catch (const InputError&) {
        continue;  // the pattern matches nothing in this model, or the rest of the policy does not take such choices
      }
    }
    return out;
  }

  Plan mixed(const Level& a, int count_a, const Level* b, int count_b) const {
    Choices choices = choose(policy::None{}, evaluator_.model());
    for (int i = 0; i < count_a + count_b; ++i) {
      const Level& level = i < count_a ? a : *b;
      const std::int32_t layer = layers_[static_cast<std::size_t>(i)];
      auto& ops = choices.ops[static_cast<std::size_t>(layer)];
      if (ops.size() != level.choices.size()) continue;
      ops = level.choices;
      choices.regions.push_back({layer});
    }
    return evaluator_.plan_of(choices, evaluator_.scenario().policy.schedule);
  }

  bool fits(const Level& a, int count_a, const Level* b, int count_b) {
    std::string words = std::to_string(count_a) + " of " + std::to_string(layers_.size()) + " blocks: " + a.name;
    if (count_b > 0) words += "; the next " + std::to_string(count_b) + ": " + b->name;
    Plan plan = mixed(a, count_a, b, count_b);
    const PlanCost cost = evaluator_.cost(plan);
    offer_(std::move(words), std::move(plan), cost);
    return cost.peak <= budget_;
  }

  /// The fewest blocks at which `test` holds, by bisection; `most` + 1 when none do.
  static int fewest(const std::function<bool(int)>& test, int most) {
    int low = 0, high = most + 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (middle > most) break;
      if (test(middle))
        high = middle;
      else
        low = middle + 1;
    }
    return high;
  }

  PlanEvaluator& evaluator_;
  Bytes budget_;
  const Offer& offer_;
  std::vector<std::int32_t> layers_;
};

/// What a layer does: keep what it saves, or run again, together with the layer before it or as the first of a segment.
enum class Role : std::uint8_t { keep, first, joins };

class LayerSearch {
 public:
  LayerSearch(PlanEvaluator& evaluator, Bytes budget, const Offer& offer)
      : evaluator_(evaluator), budget_(budget), offer_(offer), roles_(evaluator.model().layers.size(), Role::keep) {}

  void run(int plans) {
    const std::size_t layers = roles_.size();
    for (std::size_t length = 1; length <= layers && plans > 0; ++length, --plans) {
      std::vector<Role> segments(layers, Role::joins);
      for (std::size_t i = 0; i < layers; i += length) segments[i] = Role::first;
      consider(segments);
    }
    for (; plans > 0 && layers > 0; --plans) {
      std::vector<Role> roles = roles_;
      const std::size_t changes = 1 + random_() % 3;
      for (std::size_t n = 0; n < changes; ++n) roles[random_() % layers] = static_cast<Role>(random_() % 3);
      consider(roles);
    }
  }

 private:
  /// Of two that do not fit the one of the lower peak is better.
  void consider(const std::vector<Role>& roles) {
    Choices choices = choose(policy::None{}, evaluator_.model());
    std::size_t again = 0;
    for (std::size_t i = 0; i < roles.size(); ++i) {
      if (roles[i] == Role::keep) continue;
      ++again;
      choices.ops[i].assign(choices.ops[i].size(), OpChoice::rerun);
      if (roles[i] == Role::joins && i > 0 && roles[i - 1] != Role::keep)
        choices.regions.back().push_back(static_cast<std::int32_t>(i));
      else
        choices.regions.push_back({static_cast<std::int32_t>(i)});
    }
    Plan plan = evaluator_.plan_of(choices, RecomputeSchedule::per_segment);
    const PlanCost cost = evaluator_.cost(plan);
    const auto excess = [&](const PlanCost& of) { return std::max(Bytes{}, of.peak - budget_); };
    const bool better =
        !cost_ || excess(cost) < excess(*cost_) || (excess(cost) == excess(*cost_) && !is_cheaper(*cost_, cost));
    if (better) {
      roles_ = roles;
      cost_ = cost;
    }
    offer_(std::to_string(again) + " of " + std::to_string(roles.size()) + " layers run again, in " +
               std::to_string(choices.regions.size()) + " segments",
           std::move(plan), cost);
  }

  PlanEvaluator& evaluator_;
  Bytes budget_;
  const Offer& offer_;
  std::mt19937_64 random_{20260729};
  std::vector<Role> roles_;
  std::optional<PlanCost> cost_;
};

}  // namespace

void search_levels(PlanEvaluator& evaluator, Bytes budget, const Offer& offer) {
  LevelSearch(evaluator, budget, offer).run();
}

void search_layers(PlanEvaluator& evaluator, Bytes budget, int plans, const Offer& offer) {
  LayerSearch(evaluator, budget, offer).run(plans);
}

}  // namespace tidemark
