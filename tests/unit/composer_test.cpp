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
                            ", hidden: 16, heads: 2, vocab: 32, max_positions: 8}\ndevice: a100-80gb\n" + settings,
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
