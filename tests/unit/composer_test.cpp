#include "tidemark/study/composer.hpp"

#include <doctest/doctest.h>

#include <string>

#include "tidemark/study/facts.hpp"
#include "tidemark/study/pipeline.hpp"
#include "tidemark/study/sweep_row.hpp"

using namespace tidemark;

namespace {

constexpr int blocks = 8;

Scenario decoder(const std::string& settings) {
  return parse_scenario("model: {family: transformer, model_type: gpt2, layers: " + std::to_string(blocks) +
                            ", hidden: 16, heads: 2, vocab: 32, max_positions: 8, dropout: 0.1}\ndevice: a100-80gb\n" +
                            settings,
                        "t.yaml");
}

std::string simulated(Scenario scenario, const Policy& policy) {
  scenario.policy = policy;
  const Run made = run(scenario);
  ScenarioFacts facts = plain_facts(scenario);
  facts.top = 0;
  return make_row("", summarize(made.step, made.timeline, facts), SweepMethod::composed).head;
}

}  // namespace

TEST_CASE("composer: each way in which blocks can run beside each other is composed") {
  Composer composer(decoder("batch: {size: 1, sequence: 8}"));
  policy::Selective chosen;
  int left = 0;
  for (int interval = 1; interval <= blocks; ++interval)
    for (unsigned set = 1; set < 1U << static_cast<unsigned>(blocks); ++set) {
      chosen.interval = interval;
      chosen.layers.clear();
      for (int block = 0; block < blocks; ++block)
        if ((set >> static_cast<unsigned>(block) & 1U) != 0) chosen.layers.emplace_back(block, block);
      left += composer.summary({chosen}) ? 0 : 1;
    }
  CHECK(left == 0);
}

TEST_CASE("composer: many steps and micro-batches stand for those that are told apart") {
  struct Case {
    std::string name, settings;
  };
  const Case cases[] = {
      {"as many as are told apart", "batch: {size: 1, sequence: 8, accumulate: 3}\nsteps: 3"},
      {"more", "batch: {size: 1, sequence: 8, accumulate: 5}\noptimizer: adamw\nsteps: 5"},
      {"Megatron's loop, which keeps every micro-batch's loss",
       "profile: megatron\nbatch: {size: 1, sequence: 8, accumulate: 6}\noptimizer: adamw\nsteps: 4"},
      {"that loop without an optimizer", "profile: megatron\nbatch: {size: 1, sequence: 8, accumulate: 4}\nsteps: 1"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Scenario scenario = decoder(c.settings);
    Composer composer(scenario);
    for (const Policy& policy : {Policy{}, Policy{policy::Full{}}, Policy{policy::Interval{3, false}}}) {
      const auto composed = composer.summary(policy);
      REQUIRE(composed.has_value());
      CHECK(make_row("", *composed, SweepMethod::composed).head == simulated(scenario, policy));
    }
  }
}

TEST_CASE("composer: policies that differ in one setting do not share what differs") {
  struct Case {
    std::string name, policy;
    bool composed = true;
  };
  const Case cases[] = {
      {"full", "full"},
      {"hooks", "{kind: full, checkpointing: {kind: nonreentrant}}", false},
      {"hooks that go on", "{kind: full, checkpointing: {kind: nonreentrant, early_stop: false}}"},
      {"those without the generator's state",
       "{kind: full, checkpointing: {kind: nonreentrant, early_stop: false, preserve_rng: false}}"},
      {"hooks without the generator's state", "{kind: full, checkpointing: {kind: nonreentrant, preserve_rng: false}}",
       false},
      {"re-entrant", "{kind: interval, interval: 2, checkpointing: reentrant}"},
      {"just in time", "{kind: full, schedule: just_in_time}"},
      {"up front", "{kind: full, schedule: up_front}", false},
      {"boundaries held", "{kind: full, boundaries: hold}", false},
      {"nested", "{kind: interval, interval: 4, nested: [2]}", false},
      {"offload", "{kind: full, offload: {min_size: 1 B}}", false},
      {"rule", "rule", false},
      {"softmax", "{kind: selective, recompute: [softmax]}"},
      {"softmax just in time", "{kind: selective, recompute: [softmax], schedule: just_in_time}", false},
      {"all but softmax", "{kind: selective, keep: [softmax]}"},
      {"two kinds", "{kind: selective, recompute: [softmax, bmm]}"},
      {"one of them kept", "{kind: selective, recompute: [softmax, bmm], keep: [bmm]}"},
      {"every second product", "{kind: selective, recompute: [matmul/2]}", false},
      {"every second product kept", "{kind: selective, keep: [matmul/2]}", false},
      {"some blocks", "{kind: selective, layers: 1-3}"},
      {"each second block", "{kind: selective, every: 2}"},
      {"outputs dropped", "{kind: selective, discard: [layernorm]}", false},
      {"outputs dropped, softmax run again", "{kind: selective, recompute: [softmax], discard: [layernorm]}", false},
      {"nothing", "none"},
  };
  const Scenario scenario = decoder("profile: megatron\nbatch: {size: 1, sequence: 8}");
  Composer composer(scenario);
  for (const bool backward : {false, true})
    for (std::size_t i = 0; i < std::size(cases); ++i) {
      const Case& c = cases[backward ? std::size(cases) - 1 - i : i];
      CAPTURE(c.name);
      const Policy policy = decoder("batch: {size: 1, sequence: 8}\npolicy: " + c.policy).policy;
      const auto composed = composer.summary(policy);
      CHECK(composed.has_value() == c.composed);
      if (composed) CHECK(make_row("", *composed, SweepMethod::composed).head == simulated(scenario, policy));
    }
}

TEST_CASE("composer: what cannot be made of pieces is said to be") {
  struct Case {
    std::string name, scenario;
  };
  const std::string model =
      "model: {family: transformer, model_type: gpt2, hidden: 16, heads: 2, vocab: 32, "
      "max_positions: 8, layers: ";
  const std::string batch = "batch: {size: 1, sequence: 8}\n";
  const Case cases[] = {
      {"an allocator's figures", model + "8}\nallocator: cuda_caching\n" + batch},
      {"few blocks", model + "6}\n" + batch},
      {"llm.c's arrays", "profile: llm.c\n" + model + "8}\n" + batch},
      {"layers given by numbers", "model: {family: chain, layers: 12, layer_activation: 100 B, boundary: 10 B}\n"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK_THROWS_AS(Composer(parse_scenario(c.scenario, "t.yaml")), NotComposable);
  }
  CHECK_NOTHROW(Composer(parse_scenario(model + "7}\n" + batch, "t.yaml")));
}
