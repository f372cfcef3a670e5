#include "tidemark/study/stage_planner.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/document.hpp"
#include "tidemark/input/policy_reader.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/input/stage_policies.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;

namespace {

const std::string chain =
    "model: {family: chain, layers: 8, layer_activation: [90 B, 100 B, 130 B, 70 B, 100 B, 100 B, 100 B, 60 B], "
    "boundary: 10 B, gradient: 10 B, forward_time: [2 ms, 2 ms, 3 ms, 2 ms, 1 ms, 2 ms, 4 ms, 2 ms], "
    "backward_time: 5 ms, weight_time: 2 ms, weight_activation: 40 B}\n";

const std::string gpt =
    "profile: megatron\n"
    "model: {family: transformer, model_type: gpt2, layers: 4, hidden: 64, heads: 4, ffn_hidden: 256, vocab: 512, "
    "max_positions: 128, activation: gelu, attention: eager}\n"
    "batch: {size: 2, sequence: 128}\ndtype: {parameters: bfloat16, main_gradients: float32, master: float32}\n"
    "optimizer: {kind: adam, fused: true}\ndevice: a100-80gb\n";

Scenario scenario(const std::string& model, const std::string& parallel) {
  return parse_scenario(model + "parallel: {" + parallel + "}\n", "t.yaml");
}

Scenario under(Scenario scenario, const StagePlanAnswer& answer) {
  scenario.pipeline->policies.clear();
  for (const StageChoice& stage : answer.stages) scenario.pipeline->policies.push_back(stage.policy);
  return scenario;
}

Bytes highest(const Run& result) {
  Bytes out;
  for (const StageFigures& stage : result.pipeline->stages) out = std::max(out, stage.peak.bytes);
  return out;
}

std::string message_of(const Scenario& scenario, const std::string& method) {
  try {
    (void)find_stage_policies(scenario, Bytes{1 << 30}, method, "");
  } catch (const InputError& error) {
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("stage planner: what it predicts is what a run of its policies prints") {
  struct Case {
    std::string name, model, parallel;
    std::int64_t percent;  // the budget, of the highest peak without recomputation
  };
  const Case cases[] = {
      {"1f1b", chain, "pipeline: 4, micro_batches: 8, transfer_time: 1 ms", 60},
      {"1f1b, many micro-batches", chain, "pipeline: 2, micro_batches: 64, transfer_time: 1 ms", 60},
      {"uneven layers", chain, "pipeline: 4, layers_per_chunk: [1, 2, 2, 3], micro_batches: 8", 50},
      {"gpipe", chain, "pipeline: 2, micro_batches: 4, schedule: gpipe", 50},
      {"interleaved", chain, "pipeline: 2, virtual: 2, micro_batches: 4, transfer_time: 1 ms", 70},
      {"zb_h1", chain, "pipeline: 4, micro_batches: 8, schedule: zb_h1", 70},
      {"zb_1p, whose order depends on the policies", chain, "pipeline: 4, micro_batches: 8, schedule: zb_1p", 96},
      {"zb_v", chain, "pipeline: 2, micro_batches: 4, schedule: zb_v", 80},
      {"a transformer", gpt, "pipeline: 2, micro_batches: 4", 97},
      {"a transformer in four chunks", gpt, "pipeline: 2, virtual: 2, micro_batches: 4", 97},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Scenario given = scenario(c.model, c.parallel);
    const Run without = run(given);
    const Bytes budget{highest(without).count * c.percent / 100};
    const StagePlanAnswer answer = find_stage_policies(given, budget, "auto", "");
    REQUIRE(answer.stages.size() == without.pipeline->stages.size());
    const Run result = run(under(given, answer));
    CHECK(result.timeline.end == answer.time);
    CHECK(result.pipeline->bubble_rate == answer.bubble_rate);
    CHECK(without.timeline.end == answer.without);
    for (std::size_t stage = 0; stage < answer.stages.size(); ++stage) {
      CHECK(result.pipeline->stages[stage].peak.bytes == answer.stages[stage].peak);
      CHECK(answer.stages[stage].peak <= budget);
      CHECK(without.pipeline->stages[stage].peak.bytes == answer.stages[stage].without);
    }
    const Scenario again = scenario(
        c.model, c.parallel + ", stage_policies: [" + [&] {
          std::string out;
          for (const StageChoice& stage : answer.stages) out += (out.empty() ? "" : ", ") + write_policy(stage.policy);
          return out;
        }() + "]");
    CHECK(again.pipeline->policies == under(given, answer).pipeline->policies);
  }
}

// Two stages of two layers: each stage keeps all, or runs its first or both layers again, in 1 or 2 segments, the last
// one kept or not. All pairs are run.
TEST_CASE("stage planner: no pair of the policies that it tries fits and is faster") {
  const std::string model =
      "model: {family: chain, layers: 4, layer_activation: [50 B, 100 B, 80 B, 70 B], boundary: [9 B, 14 B, 11 B, 5 B, "
      "7 B], gradient: 10 B, forward_time: [2 ns, 5 ns, 4 ns, 1 ns], backward_time: 7 ns}\n";
  const Scenario given = scenario(model, "pipeline: 2, micro_batches: 4, transfer_time: 1 ns");
  std::vector<PolicyKind> kinds = {policy::None{}, policy::Block{1}, policy::Block{2}};
  for (const int n : {1, 2})
    for (const bool last : {true, false}) kinds.emplace_back(policy::Interval{n, last});
  const Bytes all = highest(run(given));
  int found = 0, fewer = 0;
  for (std::int64_t percent = 40; percent <= 100; percent += 5) {
    CAPTURE(percent);
    const Bytes budget{all.count * percent / 100};
    std::optional<Nanos> best;
    for (const PolicyKind& first : kinds)
      for (const PolicyKind& second : kinds) {
        Scenario pair = given;
        pair.pipeline->policies.assign(2, Policy{});
        pair.pipeline->policies[0].kind = first;
        pair.pipeline->policies[1].kind = second;
        const Run result = run(pair);
        if (highest(result) <= budget && (!best || result.timeline.end < *best)) best = result.timeline.end;
      }
    const StagePlanAnswer answer = find_stage_policies(given, budget, "auto", "");
    CHECK(answer.stages.empty() == !best.has_value());
    if (!best || answer.stages.empty()) continue;
    CHECK(answer.time == *best);
    ++found;
    if (answer.stages[0].method != answer.stages[1].method) ++fewer;
  }
  CHECK(found > 3);
  CHECK(fewer > 0);  // stages differ somewhere
}

TEST_CASE("stage planner: the stage that binds is the one whose lifted budget shortens the step most") {
  const Scenario given = scenario(chain, "pipeline: 4, micro_batches: 8, transfer_time: 1 ms");
  const StagePlanAnswer answer = find_stage_policies(given, Bytes{330}, "auto", "");
  REQUIRE(answer.binds);
  for (std::size_t stage = 0; stage < answer.stages.size(); ++stage) {
    CAPTURE(stage);
    Scenario lifted = under(given, answer);
    lifted.pipeline->policies[stage] = Policy{};
    CHECK(answer.time - run(lifted).timeline.end == answer.stages[stage].lifted);
    CHECK(answer.stages[stage].lifted <= answer.stages[*answer.binds].lifted);
  }
  CHECK(answer.stages[*answer.binds].lifted > Nanos{});
  CHECK_FALSE(find_stage_policies(given, Bytes{1 << 20}, "auto", "").binds);
}

TEST_CASE("stage planner: a framework says one thing of all stages") {
  const Scenario given = scenario(gpt, "pipeline: 2, micro_batches: 4");
  const Bytes all = highest(run(given));
  const Bytes budget{all.count * 98 / 100};
  const StagePlanAnswer said = find_stage_policies(given, budget, "auto", "megatron");
  const StagePlanAnswer own = find_stage_policies(given, budget, "auto", "");
  REQUIRE(said.stages.size() == 2);
  CHECK(said.stages[0].policy == said.stages[1].policy);
  CHECK(said.express.starts_with("--recompute-granularity"));
  CHECK(own.time <= said.time);
  CHECK(run(under(given, said)).timeline.end == said.time);
  CHECK(highest(run(under(given, said))) <= budget);
  CHECK(find_stage_policies(given, all, "auto", "megatron").express == "# no flags needed");
}

TEST_CASE("stage planner: where nothing fits, the stage and its lowest peak") {
  const Scenario given = scenario(chain, "pipeline: 4, micro_batches: 8");
  for (const std::string framework : {"", "megatron"}) {
    CAPTURE(framework);
    const StagePlanAnswer answer = find_stage_policies(given, Bytes{100}, "auto", framework);
    CHECK(answer.stages.empty());
    REQUIRE(answer.nearest);
    CHECK(answer.nearest->peak > Bytes{100});
    CHECK(answer.nearest->stage < 4);
  }
}

TEST_CASE("stage planner: methods of one device are refused by name") {
  const Scenario given = scenario(chain, "pipeline: 4, micro_batches: 8");
  for (const std::string method : {"rotor", "checkmate", "dtr", "knapsack", "nonsense"}) {
    CAPTURE(method);
    CHECK(message_of(given, method) ==
          "method '" + method + "' plans one device; for a pipeline's stages there are auto, uniform, block, search");
  }
  CHECK(message_of(given, "block").empty());
}

TEST_CASE("stage policies: what is written is read again") {
  const std::string cases[] = {
      "none",
      "{kind: full}",
      "{kind: interval, interval: 3, checkpoint_last: false}",
      "{kind: sqrt}",
      "{kind: sequential, segments: 2}",
      "{kind: block, layers: 3}",
      "{kind: whole, nested: [4, 2]}",
      "{kind: selective, recompute: ['mlp', 'it''s'], keep: ['mm/2'], discard: ['layernorm'], layers: '0-3,5-5', "
      "every: "
      "2, interval: 2}",
      "{kind: rule, attention_threshold: 5 B, ffn_threshold: 7 B, ffn_max_ratio: 0.25}",
      "{kind: plan, sequence: 'Fe0 L B0'}",
      "{kind: full, schedule: just_in_time, boundaries: hold}",
      "{kind: full, schedule: {on_grad_of: 'mlp.up'}}",
      "{kind: full, checkpointing: {kind: nonreentrant, early_stop: false, preserve_rng: false}}",
      "{kind: none, checkpointing: {kind: offload, parameters: true}}",
      "{kind: block, layers: 2, offload: {modules: ['mlp'], layers: '0-1', min_size: 5 B, fraction: 0.5, prefetch: 0, "
      "wait_after: 3}}",
      "{kind: none, offload: {}}",
  };
  for (const std::string& text : cases) {
    CAPTURE(text);
    const Policy policy = read_policy(parse_yaml(text, {"p.yaml", ""})).policy;
    CHECK(write_policy(policy) == text);
  }
  Policy given;
  given.kind = policy::Given{};
  CHECK_THROWS_AS((void)write_policy(given), InternalError);
}

// Layers of 100 kB and 20 us: a link of 100 GB/s carries one in 1 us, one of 1 GB/s in 100 us.
TEST_CASE("stage planner: copies where they take less time than running again") {
  const std::string model =
      "model: {family: chain, layers: 8, layer_activation: 100 kB, boundary: 10 B, gradient: 10 B, forward_time: 20 "
      "us, "
      "backward_time: 40 us}\n";
  struct Case {
    std::string name, rate, method;
    bool copies;
  };
  const Case cases[] = {
      {"a fast link", "100 GB/s", "auto", true},
      {"a slow link", "1 GB/s", "auto", false},
      {"a fast link, other methods", "100 GB/s", "uniform", false},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Scenario given =
        scenario(model + "device: {copy_bandwidth: {to_host: " + c.rate + ", to_device: " + c.rate + "}}\n",
                 "pipeline: 2, micro_batches: 8");
    const Bytes budget{highest(run(given)).count * 8 / 10};
    const StagePlanAnswer answer = find_stage_policies(given, budget, c.method, "");
    REQUIRE(answer.stages.size() == 2);
    CHECK((answer.stages[0].method == "offload") == c.copies);
    const Run result = run(under(given, answer));
    CHECK(highest(result) <= budget);
    CHECK(result.timeline.end == answer.time);
    if (c.copies) CHECK(answer.time <= find_stage_policies(given, budget, "uniform", "").time);
    if (!c.copies && c.method == "auto") CHECK(answer.tried.back() == "offload");
  }
}
