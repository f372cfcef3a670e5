// Is a Plan the same after it was written and read, and is a plan that does not fit its model refused?
#include "tidemark/input/plan_file.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/plan/policy.hpp"

using namespace tidemark;

namespace {

/// embedding, two blocks of three ops, a head whose name needs quotes.
Outline small_outline() {
  Outline outline;
  outline.layers.resize(4);
  outline.layers[0].name = "embedding";
  outline.layers[1].name = "layers.0";
  outline.layers[2].name = "layers.1";
  outline.layers[3].name = "lm head: \"x\"";
  for (const std::size_t block : {1, 2}) {
    outline.layers[block].is_block = true;
    for (const std::string op : {"attention.scores", "attention.soft max", "mlp"})
      outline.layers[block].ops.push_back({op, "matmul", {}, {}, {}, {}});
  }
  return outline;
}

std::string error_of(const std::string& yaml) {
  try {
    parse_plan(yaml, "p.yaml", small_outline());
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("plan file: how a plan is written") {
  Plan plan;
  plan.steps = {{Action::forward, 0, {}, Keep::all, -1},      {Action::forward, 1, {}, Keep::input, 0},
                {Action::forward, 2, {}, Keep::none, 0},      {Action::forward, 3, {}, Keep::all, -1},
                {Action::loss, -1, {}, Keep::all, -1},        {Action::drop, 1, {0, 1}, Keep::all, -1},
                {Action::recompute, 2, {1}, Keep::all, 0},    {Action::backward, 2, {}, Keep::all, -1},
                {Action::discard_input, 4, {}, Keep::all, -1}};
  plan.hold_boundaries = true;
  plan.checkpointing.kind = Checkpointing::Kind::reentrant;
  plan.warnings = {"interval 50 is above the 36 layers: one segment"};
  const std::string text = write_plan(plan, small_outline());
  CHECK(text ==
        "checkpointing: {kind: reentrant, early_stop: true, preserve_rng: true}\n"
        "boundaries: hold\n"
        "warnings:\n"
        "  - \"interval 50 is above the 36 layers: one segment\"\n"
        "steps:\n"
        "  - {op: forward, layer: embedding}\n"
        "  - {op: forward, layer: 0, keep: input, region: 0}\n"
        "  - {op: forward, layer: 1, keep: none, region: 0}\n"
        "  - {op: forward, layer: \"lm head: \\\"x\\\"\"}\n"
        "  - {op: loss}\n"
        "  - {op: drop, layer: 0, ops: [attention.scores, \"attention.soft max\"]}\n"
        "  - {op: recompute, layer: 1, ops: [\"attention.soft max\"], region: 0}\n"
        "  - {op: backward, layer: 1}\n"
        "  - {op: discard_input, layer: 2}\n");
  CHECK(parse_plan(text, "p.yaml", small_outline()) == plan);
  CHECK(parse_plan(write_plan(Plan{}, small_outline()), "p.yaml", small_outline()) == Plan{});
}

TEST_CASE("plan file: every policy's plan comes back as it was") {
  const std::string chain = "model: {family: chain, layers: 7, forward_flops: 100 FLOP, attention_fraction: 0.5}\n";
  const std::string mlp = "model: {family: mlp, layers: 5}\n";
  const std::string decoder =
      "model: {family: transformer, model_type: llama, layers: 3, hidden: 64, heads: 4, ffn_hidden: 96, vocab: 100}\n";
  const std::vector<std::string> policies = {"none",
                                             "full",
                                             "{kind: interval, interval: 2}",
                                             "{kind: interval, interval: 50, boundaries: hold}",
                                             "{kind: sqrt, schedule: up_front}",
                                             "{kind: interval, interval: 3, schedule: just_in_time}",
                                             "{kind: sequential, segments: 2, checkpointing: nonreentrant}",
                                             "whole",
                                             "{kind: block, layers: 2}"};
  for (const std::string& model : {chain, mlp, decoder})
    for (const std::string& policy : policies) {
      CAPTURE(model);
      CAPTURE(policy);
      const Scenario scenario = parse_scenario(model + "policy: " + policy, "s.yaml");
      const Outline seen = outline(scenario);
      const Plan plan = make_plan(scenario.policy, seen);
      CHECK_FALSE(plan.steps.empty());
      CHECK(parse_plan(write_plan(plan, seen), "p.yaml", seen) == plan);
    }
  for (const std::string policy : {"{kind: selective, recompute: [attention]}", "{kind: selective, keep: [matmul]}",
                                   "{kind: selective, recompute: softmax, schedule: just_in_time}"}) {
    CAPTURE(policy);
    const Scenario scenario = parse_scenario(decoder + "policy: " + policy, "s.yaml");
    const Outline seen = outline(scenario);
    const Plan plan = make_plan(scenario.policy, seen);
    CHECK(parse_plan(write_plan(plan, seen), "p.yaml", seen) == plan);
  }
}

TEST_CASE("plan file: a scenario runs the plan of its file") {
  const auto path = std::filesystem::temp_directory_path() / "tidemark_plan_test.yaml";
  const std::string model = "model: {family: chain, layers: 4}\npolicy: ";
  const Scenario interval = parse_scenario(model + "{kind: interval, interval: 2}", "s.yaml");
  const Plan plan = make_plan(interval.policy, outline(interval));
  std::ofstream(path) << write_plan(plan, outline(interval));
  const Scenario given = parse_scenario(model + "{kind: plan, file: " + path.string() + "}", "s.yaml");
  CHECK(make_plan(given.policy, outline(given)) == plan);
  std::filesystem::remove(path);
}

TEST_CASE("plan file: what is refused") {
  struct Case {
    std::string name;
    std::string yaml;
    std::string error;
  };
  const Case cases[] = {
      {"no steps", "boundaries: hold", "p.yaml:1:1: error: missing key 'steps' in 'plan'"},
      {"steps that are none", "steps: 3", "p.yaml:1:8: error: 'steps' must be a list of steps, not '3'"},
      {"an unknown key", "steps: []\nstep: 1",
       "p.yaml:2:1: error: unknown key 'step' in 'plan'; did you mean 'steps'?"},
      {"a step that is a word", "steps: [loss]",
       "p.yaml:1:9: error: 'plan_step' must be a map of keys such as 'op: ...', not 'loss'"},
      {"an unknown op", "steps: [{op: forwards, layer: 0}]",
       "p.yaml:1:14: error: 'op' must be one of forward, recompute, loss, backward, drop, discard_input, "
       "discard_saved, "
       "copy_out, copy_in, copy_wait, not 'forwards'; did you mean 'forward'?"},
      {"no layer", "steps: [{op: forward}]", "p.yaml:1:9: error: missing key 'layer' in 'plan_step'"},
      {"a block that is not there", "steps: [{op: forward, layer: 2}]",
       "p.yaml:1:30: error: 'layer' 2 is not one of the 2 blocks, which count from 0"},
      {"a layer that is not there", "steps: [{op: forward, layer: head}]",
       "p.yaml:1:30: error: unknown layer 'head'; expected one of: embedding, layers.0, layers.1, lm head: \"x\""},
      {"half a block", "steps: [{op: forward, layer: 1.5}]",
       "p.yaml:1:30: error: unknown layer '1.5'; expected one of: embedding, layers.0, layers.1, lm head: \"x\""},
      {"an op that is not there", "steps: [{op: drop, layer: 0, ops: [mpl]}]",
       "p.yaml:1:36: error: layer 'layers.0' has no op 'mpl'; did you mean 'mlp'?"},
      {"ops out of order", "steps: [{op: drop, layer: 0, ops: [mlp, attention.scores]}]",
       "p.yaml:1:41: error: op 'attention.scores' is out of order; expected the layer's own order, each op once"},
      {"no ops", "steps: [{op: drop, layer: 0, ops: []}]",
       "p.yaml:1:35: error: 'ops' is empty; leave it out for the whole layer"},
      {"ops of nothing", "steps: [{op: loss, ops: [mlp]}]", "p.yaml:1:25: error: 'ops' needs a 'layer'"},
      {"an unknown keep", "steps: [{op: forward, layer: 0, keep: some}]",
       "p.yaml:1:39: error: 'keep' must be one of none, input, all, not 'some'; did you mean 'none'?"},
      {"a negative region", "steps: [{op: forward, layer: 0, region: -1}]",
       "p.yaml:1:41: error: 'region' must be a whole number from 0, not '-1'"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(error_of(c.yaml) == c.error);
  }
}
