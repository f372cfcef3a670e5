#include "transformer.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "native/support.hpp"
#include "support/any_policy.hpp"

using namespace tidemark;
using namespace tidemark::test;
using native::Machine;
using native::Transformer;
using native::TransformerShape;

namespace {

struct Setting {
  TransformerShape shape;
  std::string policy = "none";
  native::OptimizerKind optimizer = native::OptimizerKind::adamw;
  int micro_batches = 1, steps = 1;
};

TransformerShape small(std::int64_t layers) {
  return {.layers = layers,
          .hidden = 8,
          .heads = 2,
          .ffn_hidden = 12,
          .vocab = 7,
          .positions = 5,
          .batch = 3,
          .sequence = 4,
          .tied_embeddings = true};
}

std::string scenario_of(const Setting& s) {
  const TransformerShape& m = s.shape;
  const auto number = [](std::string_view key, std::int64_t value) {
    return ", " + std::string(key) + ": " + std::to_string(value);
  };
  std::string text = "profile: reference\nmodel: {family: transformer, model_type: gpt2, attention: eager";
  text += number("layers", m.layers) + number("hidden", m.hidden) + number("heads", m.heads) +
          number("ffn_hidden", m.ffn_hidden) + number("vocab", m.vocab) + number("max_positions", m.positions) +
          ", dropout: 0, tied_embeddings: " + (m.tied_embeddings ? "true" : "false") + "}\n";
  text += "batch: {size: " + std::to_string(m.batch) + number("sequence", m.sequence) +
          number("accumulate", s.micro_batches) + "}\nsteps: " + std::to_string(s.steps) + "\n";
  if (s.optimizer == native::OptimizerKind::adamw) text += "optimizer: adamw\n";
  if (s.optimizer == native::OptimizerKind::adamw_fused) text += "optimizer: {kind: adamw, fused: true}\n";
  return text + "policy: " + s.policy + "\n";
}

native::Record run_native(Machine& machine, const Setting& s, const native::Plan& plan) {
  Transformer model(machine, s.shape, plan, s.optimizer);
  for (int number = 0; number < s.steps; ++number) model.step(number, s.micro_batches, number + 1 == s.steps);
  CHECK(std::isfinite(model.loss()));
  return machine.record;  // as it is before the model goes
}

/// What is not the same on both sides: the first event, or the first op with its FLOPs, or the peak. Memory that is
/// free is poisoned, so that reading any shows in the loss.
std::string unlike(const Setting& setting, const Run& run) {
  Machine machine;
  machine.arena.poison(true);
  const native::Record record = run_native(machine, setting, plan_for_native(run));
  const Rows simulated = rows_of(run), native = rows_of(record);
  std::string difference = first_difference(simulated.events, native.events);
  if (difference.empty()) difference = first_difference(simulated.ops, native.ops);
  if (difference.empty() && machine.arena.high_water_bytes() != run.timeline.peak.count) difference = "the peak";
  return difference;
}

void check_equal(const Setting& setting) {
  const std::string scenario = scenario_of(setting);
  CAPTURE(scenario);
  CHECK(unlike(setting, tidemark::run(parse_scenario(scenario, "case"))) == "");
}

/// The gradients of all parameters after one step under a policy.
std::vector<float> gradients(const TransformerShape& shape, const std::string& policy, int micro_batches) {
  const Setting setting{shape, policy, native::OptimizerKind::none, micro_batches};
  const Run run = tidemark::run(parse_scenario(scenario_of(setting), "case"));
  Machine machine;
  machine.arena.poison(true);
  Transformer model(machine, shape, plan_for_native(run), native::OptimizerKind::none);
  model.step(0, micro_batches, true);
  std::vector<float> all{model.loss()};
  for (const native::Parameter& p : model.parameters())
    all.insert(all.end(), p.gradient.data(), p.gradient.data() + p.gradient.elements());
  return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::string interval(int k) { return "{kind: interval, interval: " + std::to_string(k) + "}"; }

/// Every kind of plan that the native program carries out.
const std::vector<std::string>& policies() {
  static const std::vector<std::string> all = {
      "none",
      "full",
      "sqrt",
      "whole",
      "{kind: block, layers: 2}",
      "{kind: sequential, segments: 2}",
      "{kind: interval, interval: 3, checkpoint_last: false}",
      "{kind: selective, recompute: [core_attn]}",
      "{kind: selective, recompute: [attention]}",
      "{kind: selective, recompute: [softmax]}",
      "{kind: selective, recompute: [mlp, attention_residual]}",
      "{kind: selective, keep: [matmul]}",
      "{kind: selective, keep: [bmm, gelu]}",
      "{kind: selective, recompute: [attention, norm], keep: [softmax, layer_norm]}",
      "{kind: selective, recompute: [core_attn], layers: \"1-2\"}",
      "{kind: selective, every: 2}",
      "{kind: full, schedule: just_in_time}",
      "{kind: full, schedule: up_front}",
      "{kind: selective, recompute: [attention], schedule: just_in_time}",
      "{kind: selective, keep: [matmul], schedule: up_front}",
  };
  return all;
}

}  // namespace

TEST_CASE("native transformer: every event, FLOP and level is the simulated one, segments of any length") {
  std::size_t cases = 0;
  for (const int layers : {4, 5, 9, 16, 36})
    for (const int k : {1, 2, 3, 4, 5, 7, 9, 12, 36})
      if (k <= layers) {
        check_equal({.shape = small(layers), .policy = interval(k)});
        ++cases;
      }
  CHECK(cases > 30);
  MESSAGE(cases << " settings of the block chain in segments, each equal in every event");
}

TEST_CASE("native transformer: every event, FLOP and level is the simulated one, any policy") {
  for (const int layers : {4, 7, 12})
    for (const std::string& policy : policies()) check_equal({.shape = small(layers), .policy = policy});
  const std::size_t cases = 3 * policies().size();
  MESSAGE(cases << " settings of the block chain under other policies, each equal in every event");
}

TEST_CASE("native transformer: every event, FLOP and level is the simulated one, other shapes and loops") {
  struct Case {
    std::string name;
    void (*change)(Setting&);
  };
  const Case cases[] = {
      {"one sequence", [](Setting& s) { s.shape.batch = 1; }},
      {"one head", [](Setting& s) { s.shape.heads = 1; }},
      {"one token", [](Setting& s) { s.shape.sequence = 1; }},
      {"heads one wide", [](Setting& s) { s.shape.heads = 8; }},
      {"one of each", [](Setting& s) { s.shape.batch = s.shape.sequence = s.shape.heads = 1; }},
      {"more tokens than channels", [](Setting& s) { s.shape.sequence = s.shape.positions = 19; }},
      {"a head of its own", [](Setting& s) { s.shape.tied_embeddings = false; }},
      {"two steps", [](Setting& s) { s.steps = 2; }},
      {"two steps, fused", [](Setting& s) { s.steps = 2, s.optimizer = native::OptimizerKind::adamw_fused; }},
      {"two steps without an optimizer", [](Setting& s) { s.steps = 2, s.optimizer = native::OptimizerKind::none; }},
      {"micro-batches", [](Setting& s) { s.micro_batches = 3, s.steps = 2; }},
      {"one layer", [](Setting& s) { s.shape.layers = 1; }},
  };
  for (const Case& c : cases)
    for (const std::string policy : {"none", "full", "{kind: selective, recompute: [attention]}"}) {
      CAPTURE(c.name);
      Setting setting{.shape = small(3), .policy = policy};
      c.change(setting);
      check_equal(setting);
    }
}

TEST_CASE("native transformer: any policy on any small shape") {
  CHECK(rc::check("every event is the simulated one", [] {
    Setting setting{.shape = small(number(1, 6))};
    setting.shape.heads = std::int64_t{1} << number(0, 3);
    setting.shape.batch = number(1, 3);
    setting.shape.sequence = number(1, 5);
    setting.shape.tied_embeddings = number(0, 1) == 1;
    setting.optimizer = static_cast<native::OptimizerKind>(number(0, 2));
    setting.micro_batches = number(1, 2);
    setting.steps = number(1, 2);
    Scenario scenario = parse_scenario(scenario_of(setting), "case");
    scenario.policy = random_policy(outline(scenario));
    scenario.policy.nested.clear();  // what is run again twice, the native program refuses
    const Run run = tidemark::run(scenario);
    RC_TAG(scenario.policy.kind.index());
    RC_LOG() << scenario_of(setting) << write_plan(run.plan, run.outline);
    const std::string difference = unlike(setting, run);
    RC_LOG() << difference;
    RC_ASSERT(difference.empty());
  }));
}

TEST_CASE("native transformer: two frees in the other order are found") {
  const Setting setting{.shape = small(2), .policy = "full"};
  const Run run = tidemark::run(parse_scenario(scenario_of(setting), "case"));
  Machine machine;
  machine.swap_frees = true;
  const native::Record record = run_native(machine, setting, plan_for_native(run));
  const std::string difference = first_difference(rows_of(run).events, rows_of(record).events);
  CHECK(difference.find(",free,embedding.add,forward,embedding.tokens,") < difference.find("native"));
  CHECK(difference.find(",free,embedding.add,forward,embedding.positions,") != std::string::npos);
}

TEST_CASE("native transformer: gradients under any plan are the plain ones bit for bit") {
  for (const int micro_batches : {1, 2}) {
    const std::vector<float> plain = gradients(small(5), "none", micro_batches);
    CHECK(plain.size() ==
          1 + static_cast<std::size_t>(7 * 8 + 5 * 8 + 5 * (4 * 64 + 4 * 8 + 2 * 96 + 12 + 8 + 32) + 16));
    CHECK(std::ranges::all_of(plain, [](float value) { return std::isfinite(value); }));
    CHECK(std::ranges::count_if(plain, [](float value) { return std::abs(value) > 1e-4F; }) > 1000);
    std::vector<std::string> all = policies();
    for (int k = 1; k <= 5; ++k) all.push_back(interval(k));
    for (const std::string& policy : all) {
      CAPTURE(policy);
      CHECK(same_bits(gradients(small(5), policy, micro_batches), plain));
    }
  }
}

TEST_CASE("native transformer: gradients are those of finite differences") {
  for (const bool tied : {true, false}) {
    TransformerShape shape = small(2);
    shape.tied_embeddings = tied;
    Machine machine;
    Transformer model(machine, shape, {}, native::OptimizerKind::none);
    model.step(0, 1, true);
    CHECK(double{model.loss()} == doctest::Approx(model.evaluate()).epsilon(1e-6));
    for (const native::Parameter& p : model.parameters())
      for (std::int64_t i = 0; i < p.value.elements(); i += 5) {
        CAPTURE(p.value.name().text());
        float& value = p.value.data()[i];
        const float kept = value;
        constexpr float h = 1.0F / 128;
        value = kept + h;
        const double above = model.evaluate();
        value = kept - h;
        const double below = model.evaluate();
        value = kept;
        CHECK(p.gradient.data()[i] == doctest::Approx((above - below) / (2 * double{h})).epsilon(0.0002));
      }
  }
}

TEST_CASE("native transformer: training makes the loss fall, fused or not alike") {
  for (const native::OptimizerKind kind : {native::OptimizerKind::adamw, native::OptimizerKind::adamw_fused}) {
    Machine machine;
    Transformer model(machine, small(2), {}, kind);
    model.step(0, 1, false);
    const float first = model.loss();
    for (int number = 1; number < 30; ++number) model.step(number, 1, false);
    CHECK(model.loss() < 0.95F * first);
  }
}

TEST_CASE("native transformer: plans that it does not carry out are refused") {
  struct Case {
    std::string name, policy, message;
  };
  const Case cases[] = {
      {"nested regions", "{kind: whole, nested: [2]}",
       "error: the plan runs layer '0' again and keeps nothing of it, which this program does not"},
      {"torch's checkpointing", "{kind: full, checkpointing: nonreentrant}",
       "plan:1: error: this program runs plans as they stand; expected 'steps:', not 'checkpointing: {kind: "
       "nonreentrant, early_stop: true, preserve_rng: true}'"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Setting setting{.shape = small(4), .policy = c.policy};
    const Run run = tidemark::run(parse_scenario(scenario_of(setting), "case"));
    Machine machine;
    const auto make = [&] { Transformer(machine, setting.shape, plan_for_native(run), setting.optimizer); };
    CHECK_THROWS_WITH_AS(make(), c.message.c_str(), native::Mistake);
  }
  const auto read = [](const std::string& steps) {
    Machine machine;
    Transformer(machine, small(1), native::parse_plan("steps:\n" + steps, "plan"), native::OptimizerKind::none);
  };
  CHECK_THROWS_WITH_AS(read("  - {op: forward, layer: 0}\n"),
                       "error: the plan runs layer 'layers.0' forward out of turn", native::Mistake);
  CHECK_THROWS_WITH_AS(read("  - {op: forward, layer: embedding}\n"),
                       "error: the plan does not run all of layer 'embedding' forward and backward", native::Mistake);
  CHECK_THROWS_WITH_AS(read("  - {op: forward, layer: 1}\n"),
                       "error: the plan names layer '1' of a model with 1 blocks", native::Mistake);
  CHECK_THROWS_WITH_AS(read("  - {op: drop, layer: 0, ops: [x]}\n"),
                       "error: the plan names op 'x', which layer 'layers.0' has not", native::Mistake);
}
