#include "tidemark/study/stage_planner.hpp"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include "tidemark/base/errors.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/input/yaml_map.hpp"
#include "tidemark/plan/choices.hpp"
#include "tidemark/report/stages.hpp"
#include "tidemark/step/op_times.hpp"
#include "tidemark/step/weave.hpp"
#include "tidemark/study/express.hpp"
#include "tidemark/study/plan_evaluator.hpp"
#include "tidemark/study/stages.hpp"

namespace tidemark {
namespace {

/// A policy that a stage could have.
struct Candidate {
  Policy policy;
  std::string words, method;
  PlanCost cost;  // of one micro-batch through the stage's chunks; no peak
};

std::string first_blocks(int n, int of) {
  return "the first " + std::to_string(n) + " of " + std::to_string(of) + " blocks";
}

/// What several blocks give up, as rules.
struct Level {
  std::string words;
  policy::Selective rule;
};
const std::vector<Level>& levels() {
  static const std::vector<Level> all = {
      {"core_attn", {{"core_attn"}, {}, {}}},
      {"mlp", {{"mlp"}, {}, {}}},
      {"attention", {{"attention"}, {}, {}}},
      {"activations", {{"activation"}, {}, {}}},
      {"norms and activations", {{"norm", "activation"}, {}, {}}},
      {"all but products", {{}, {"matmul"}, {}}},
      {"all but products and attention", {{}, {"matmul", "attention"}, {}}},
  };
  return all;
}

class StagePlanning {
 public:
  StagePlanning(const Scenario& scenario, Bytes budget) : scenario_(scenario), budget_(budget) {
    PipelineSettings& pipeline = *scenario_.pipeline;
    pipeline.stage.reset();
    pipeline.steady = true;  // the same figures, sooner
    for (int stage = 0; stage < pipeline.stages; ++stage) {
      Policy policy = pipeline.policies.empty() ? scenario_.policy : pipeline.policies[index(stage)];
      policy.kind = policy::None{};
      none_.push_back(std::move(policy));
    }
    pipeline.policies = none_;
    base_ = lower_chunks(scenario_);
    chunks_.resize(none_.size());
    for (std::size_t c = 0; c < base_.chunks.size(); ++c) chunks_[rank_of(c)].push_back(c);
    candidates_.resize(none_.size());
    next_.assign(none_.size(), 0);
    lowest_.resize(none_.size());
    const Whole without = run_all(none_);
    answer_.without = without.time;
    without_ = without.peaks;
  }

  void search(const std::vector<std::string>& methods) {
    answer_.tried = methods;
    in_parallel(none_.size(), [&](std::size_t stage) {
      propose(stage, methods);
      next_[stage] = first_fit(stage, 0);
    });
    const bool copies = methods.size() > 1 && can_copy();
    if (copies) answer_.tried.emplace_back("offload");
    for (std::size_t stage = 0; copies && stage < none_.size(); ++stage)
      if (next_[stage] == candidates_[stage].size()) next_[stage] = fewest_copies(stage);
    if (!all_found()) return describe_nearest();
    // Together others' transfers end at other times: what fits in one stage's simulation nearly always fits here.
    for (;;) {
      const Whole whole = run_all(chosen());
      bool fits = true;
      for (std::size_t stage = 0; stage < none_.size(); ++stage) {
        if (whole.peaks[stage] <= budget_) continue;
        fits = false;
        note_peak(stage, whole.peaks[stage], "");
        next_[stage] = first_fit(stage, next_[stage] + 1);
      }
      if (fits) return answer(copies ? with_copies(whole) : whole);
      if (!all_found()) return describe_nearest();
    }
  }

  /// A framework says the same of all stages.
  void express(const std::string& framework) {
    answer_.tried = {framework};
    const auto largest = static_cast<std::size_t>(std::ranges::max_element(scenario_.pipeline->layers_per_chunk) -
                                                  scenario_.pipeline->layers_per_chunk.begin());
    std::vector<Expression> said = expressions(framework, outline_of_chunk(scenario_, largest));
    struct Trial {
      Nanos time;
      Flops recompute;
      std::size_t index;
    };
    std::vector<Trial> trials;
    for (std::size_t i = 0; i < said.size(); ++i) {
      if (!propose_everywhere(said[i])) continue;
      Flops recompute;
      for (const std::vector<Candidate>& stage : candidates_) recompute += stage.back().cost.recompute;
      trials.push_back({makespan(chosen()), recompute, i});
      for (std::vector<Candidate>& stage : candidates_) stage.clear();
    }
    std::ranges::stable_sort(trials, [](const Trial& a, const Trial& b) {
      return std::pair(a.time, a.recompute) < std::pair(b.time, b.recompute);
    });
    for (const Trial& trial : trials) {
      propose_everywhere(said[trial.index]);
      const Whole whole = run_all(chosen());
      bool fits = true;
      for (std::size_t stage = 0; stage < none_.size(); ++stage) {
        note_peak(stage, whole.peaks[stage], "");
        fits = fits && whole.peaks[stage] <= budget_;
      }
      if (fits) {
        answer_.express = said[trial.index].text;
        return answer(whole);
      }
      for (std::vector<Candidate>& stage : candidates_) stage.clear();
    }
    describe_nearest();
  }

  StagePlanAnswer answer() {
    answer_.simulations = simulations_;
    return std::move(answer_);
  }

 private:
  struct Whole {
    std::vector<Bytes> peaks;
    Nanos time;
    std::optional<double> bubble_rate;
  };
  struct Low {
    std::optional<Bytes> peak;
    std::string op;
  };
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  std::size_t rank_of(std::size_t chunk) const { return index(base_.schedule.rank_of_chunk[chunk]); }

  /// Policies of all stages, exactly as a run has them.
  Whole run_all(const std::vector<Policy>& policies) {
    scenario_.pipeline->policies = policies;
    const StageChunks stages = lower_chunks(scenario_);
    StagesRun run = run_stages(scenario_, stages, std::nullopt, false);
    ++simulations_;
    const Timeline& timeline = run.allocation.timeline;
    const PipelineFigures figures =
        pipeline_figures(run.step, timeline.ops, peaks_by_rank(run.step, timeline), std::move(run.stands_for));
    Whole out{.peaks = {}, .time = timeline.end, .bubble_rate = figures.bubble_rate};
    for (const StageFigures& stage : figures.stages) out.peaks.push_back(stage.peak.bytes);
    return out;
  }

  /// Each pass one op: when the last of all stages ends.
  Nanos makespan(const std::vector<Policy>& policies) {
    constexpr int no_rank = -1;
    scenario_.pipeline->policies = policies;
    const StageChunks stages = lower_chunks(scenario_);
    const Transfers& transfers = scenario_.pipeline->transfers;
    const Step step = weave_rank(stages.chunks, stages.schedule, transfers, no_rank, scenario_.device);
    return simulate(step, scenario_.device).end;
  }

  std::vector<ChunkStep> lowered(std::size_t stage, const Policy& policy) const {
    std::vector<ChunkStep> out;
    for (const std::size_t c : chunks_[stage]) out.push_back(lower_chunk(scenario_, c, policy));
    return out;
  }

  /// Nothing where the policy does not fit the chunks: a pattern that matches nothing, kept results under re-entrant
  /// checkpointing.
  void add(std::size_t stage, const PolicyKind& kind, std::string words, std::string method) {
    Candidate out{none_[stage], std::move(words), std::move(method), {}};
    out.policy.kind = kind;
    std::vector<ChunkStep> chunks;
    try {
      chunks = lowered(stage, out.policy);
    } catch (const InputError&) {
      return;
    }
    const OpTimes times(scenario_.device);
    for (const ChunkStep& chunk : chunks)
      for (const StepOp& op : chunk.step.ops) {
        if (op.step != 0 || op.micro_batch + 1 != chunk.pieces) continue;
        out.cost.time += times.of(op);
        out.cost.total += Flops{op.flops};
        if (op.phase != Phase::recompute) continue;
        out.cost.recompute += Flops{op.flops};
        ++out.cost.recomputes;
      }
    candidates_[stage].push_back(std::move(out));
  }

  int largest_chunk(std::size_t stage) const {
    int blocks = 0;
    for (const std::size_t c : chunks_[stage]) blocks = std::max(blocks, scenario_.pipeline->layers_per_chunk[c]);
    return blocks;
  }

  void propose(std::size_t stage, const std::vector<std::string>& methods) {
    const int blocks = largest_chunk(stage);
    const auto asks = [&](const char* method) { return std::ranges::find(methods, method) != methods.end(); };
    add(stage, policy::None{}, "no recomputation", "none");
    for (int n = 1; n <= blocks && asks("uniform"); ++n)
      for (const bool last : {true, false})
        add(stage, policy::Interval{n, last},
            "segments of " + std::to_string(n) + " blocks" + (last ? "" : ", the last one kept"), "uniform");
    for (int n = 1; n <= blocks && asks("block"); ++n)
      add(stage, policy::Block{n}, first_blocks(n, blocks) + " in full", "block");
    for (const Level& level : levels())
      for (int n = 1; n <= blocks && asks("search"); ++n) {
        policy::Selective rule = level.rule;
        if (n < blocks) rule.layers = {{0, n - 1}};
        add(stage, rule, first_blocks(n, blocks) + ": " + level.words, "search");
      }
    std::ranges::stable_sort(candidates_[stage],
                             [](const Candidate& a, const Candidate& b) { return is_cheaper(a.cost, b.cost); });
  }

  bool propose_everywhere(const Expression& expression) {
    for (std::size_t stage = 0; stage < none_.size(); ++stage) {
      add(stage, expression.kind, expression.words, answer_.tried.front());
      if (!candidates_[stage].empty()) continue;
      for (std::vector<Candidate>& other : candidates_) other.clear();
      return false;
    }
    std::ranges::fill(next_, 0);
    return true;
  }

  /// A stage that waits for its weights copies nothing, and one that copies already is not told otherwise.
  bool can_copy() const {
    const bool has_link = scenario_.device.copy_to_host > 0 && scenario_.device.copy_to_device > 0;
    const bool is_free = std::ranges::none_of(none_, [](const Policy& policy) { return policy.offload.has_value(); });
    return has_link && is_free && !scenario_.pipeline->splits_backward();
  }

  /// Nothing runs again, the fewest first blocks that suffice lie on the host; the number of candidates where none do.
  std::size_t fewest_copies(std::size_t stage) {
    const int blocks = largest_chunk(stage);
    for (int n = 1; n <= blocks; ++n) {
      Candidate copied{none_[stage], first_blocks(n, blocks) + " copied to the host", "offload", {}};
      copied.policy.offload = Offload{.layers = {{0, n - 1}}};
      try {
        if (peak(stage, copied) > budget_) continue;
      } catch (const InputError&) {  // those blocks hold nothing that could move, or a chunk has fewer
        continue;
      }
      candidates_[stage].push_back(std::move(copied));
      return candidates_[stage].size() - 1;
    }
    return candidates_[stage].size();
  }

  /// Stage by stage, copies in place of what runs again where the whole step is then shorter.
  Whole with_copies(Whole best) {
    for (std::size_t stage = 0; stage < none_.size(); ++stage) {
      const std::size_t before = next_[stage];
      if (before == 0 || candidates_[stage][before].method == "offload") continue;
      const std::size_t copied = fewest_copies(stage);
      if (copied == candidates_[stage].size()) continue;
      next_[stage] = copied;
      Whole whole = run_all(chosen());
      const bool fits = std::ranges::all_of(whole.peaks, [&](Bytes peak) { return peak <= budget_; });
      if (fits && whole.time < best.time)
        best = std::move(whole);
      else
        next_[stage] = before;
    }
    return best;
  }

  std::size_t first_fit(std::size_t stage, std::size_t from) {
    for (std::size_t i = from; i < candidates_[stage].size(); ++i)
      if (peak(stage, candidates_[stage][i]) <= budget_) return i;
    return candidates_[stage].size();
  }

  /// Of one stage, woven alone.
  Bytes peak(std::size_t stage, const Candidate& candidate) {
    StageChunks trial = base_;
    std::vector<ChunkStep> own = lowered(stage, candidate.policy);
    for (std::size_t i = 0; i < own.size(); ++i) trial.chunks[chunks_[stage][i]] = std::move(own[i]);
    const StagesRun run = run_stages(scenario_, trial, static_cast<int>(stage), false);
    ++simulations_;
    const Moment highest = peaks_by_rank(run.step, run.allocation.timeline)[stage];
    note_peak(stage, highest.bytes, highest.op);
    return highest.bytes;
  }

  void note_peak(std::size_t stage, Bytes peak, const std::string& op) {
    if (!lowest_[stage].peak || peak < *lowest_[stage].peak) lowest_[stage] = {peak, op};
  }

  bool all_found() const {
    for (std::size_t stage = 0; stage < none_.size(); ++stage)
      if (next_[stage] == candidates_[stage].size()) return false;
    return true;
  }

  std::vector<Policy> chosen() const {
    std::vector<Policy> out;
    for (std::size_t stage = 0; stage < none_.size(); ++stage) out.push_back(candidates_[stage][next_[stage]].policy);
    return out;
  }

  void answer(const Whole& whole) {
    answer_.time = whole.time;
    answer_.bubble_rate = whole.bubble_rate;
    for (std::size_t stage = 0; stage < none_.size(); ++stage) {
      Candidate& best = candidates_[stage][next_[stage]];
      answer_.stages.push_back({.policy = best.policy,
                                .words = best.words,
                                .method = best.method,
                                .peak = whole.peaks[stage],
                                .without = without_[stage],
                                .lifted = {}});
    }
    if (answer_.express.empty()) find_binding();
  }

  /// The stage with whose cheapest policy, whatever its memory, the step would be the shortest.
  void find_binding() {
    const std::vector<Policy> now = chosen();
    for (std::size_t stage = 0; stage < none_.size(); ++stage) {
      if (next_[stage] == 0) continue;
      std::vector<Policy> lifted = now;
      lifted[stage] = candidates_[stage].front().policy;
      answer_.stages[stage].lifted = answer_.time - makespan(lifted);
      if (answer_.stages[stage].lifted.count == 0) continue;
      if (!answer_.binds || answer_.stages[stage].lifted > answer_.stages[*answer_.binds].lifted) answer_.binds = stage;
    }
  }

  /// Of the stages above the budget, the one that is furthest above it.
  void describe_nearest() {
    for (std::size_t stage = 0; stage < none_.size(); ++stage) {
      const Low& low = lowest_[stage];
      if (!low.peak || *low.peak <= budget_) continue;
      if (!answer_.nearest || *low.peak > answer_.nearest->peak) answer_.nearest = StageShort{stage, *low.peak, low.op};
    }
  }

  Scenario scenario_;
  Bytes budget_;
  std::vector<Policy> none_;                        // by stage: its policy without recomputation
  StageChunks base_;                                // under those
  std::vector<std::vector<std::size_t>> chunks_;    // by stage
  std::vector<std::vector<Candidate>> candidates_;  // by stage, the cheapest first
  std::vector<std::size_t> next_;                   // by stage: the one that is taken
  std::vector<Low> lowest_;                         // by stage, of all that were simulated
  std::vector<Bytes> without_;
  std::atomic<std::int64_t> simulations_ = 0;
  StagePlanAnswer answer_;
};

}  // namespace

const std::vector<std::string>& stage_plan_methods() {
  static const std::vector<std::string> all = {"auto", "uniform", "block", "search"};
  return all;
}

StagePlanAnswer find_stage_policies(const Scenario& scenario, Bytes budget, const std::string& method,
                                    const std::string& express) {
  check(scenario.pipeline.has_value(), "stages are planned of a pipeline");
  if (std::ranges::find(stage_plan_methods(), method) == stage_plan_methods().end())
    throw InputError("method '" + method + "' plans one device; for a pipeline's stages there are " +
                     joined(stage_plan_methods()));
  StagePlanning planning(scenario, budget);
  if (!express.empty())
    planning.express(express);
  else if (method == "auto" || method == "search")
    planning.search({"uniform", "block", "search"});
  else
    planning.search({method});
  return planning.answer();
}

}  // namespace tidemark
