// Any policy on any model of equal blocks: what is composed is what the full simulation gives, and the referee accepts
// that.
#include "tidemark/study/composer.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <memory>
#include <string>

#include "support/any_model.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/study/facts.hpp"
#include "tidemark/study/pipeline.hpp"
#include "tidemark/study/sweep_row.hpp"

using namespace tidemark;

namespace {

void choose_training(Scenario& scenario) {
  Training& training = scenario.training;
  training.optimizer.kind = one_of({OptimizerKind::none, OptimizerKind::sgd, OptimizerKind::adamw});
  training.optimizer.multi_tensor = coin();
  training.optimizer.zero_grad_to_none = coin();
  training.loop.steps = number(1, 5);
  training.batch.accumulate = number(1, 5);
  if (coin()) scenario.device.flops.fill(1e9);
}

Scenario any_mlp() {
  Scenario scenario;
  scenario.family = "mlp";
  MlpSpec spec = any_mlp_spec(7, 16);
  if (spec.style == "inplace") spec.activation = "relu";
  scenario.model = spec;
  scenario.training.profile = *find_profile(one_of<std::string>({"ideal", "pytorch-2.6-cpu"}));
  choose_training(scenario);
  return scenario;
}

Scenario any_transformer() {
  Scenario scenario;
  scenario.family = "transformer";
  scenario.model = any_transformer_spec(7, 14);
  scenario.training.profile =
      *find_profile(one_of<std::string>({"pytorch-cuda", "pytorch-2.6-cpu", "pytorch-1.13-cpu", "ideal", "megatron"}));
  scenario.training.batch.size = number(1, 2);
  scenario.training.batch.sequence = number(2, 8);
  choose_training(scenario);
  if (scenario.training.loop.steps * scenario.training.batch.accumulate > 8) scenario.training.batch.accumulate = 1;
  return scenario;
}

Policy any_policy(const Outline& outline) {
  Policy policy = random_policy(outline);
  if (auto* selective = std::get_if<policy::Selective>(&policy.kind)) {
    selective->interval = number(1, 6);
    if (coin()) selective->layers = {{number(0, 3), number(4, 8)}};
  }
  if (number(0, 4) == 0) {
    policy.checkpointing.kind = static_cast<Checkpointing::Kind>(number(1, 3));
    policy.checkpointing.early_stop = coin();
    policy.checkpointing.preserve_rng = coin();
    policy.schedule = RecomputeSchedule::per_segment;
    policy.nested.clear();
  }
  return policy;
}

struct Tally {
  int models = 0, composed = 0, simulated = 0, refused = 0;
};
constexpr int most_models = 15;  // a hundred would take half a minute without optimization

/// Several policies on one model, so that libraries are used again.
void judge(Scenario scenario, Tally& tally) {
  if (++tally.models > most_models) return;
  const Outline seen = outline(scenario);
  std::unique_ptr<Composer> maker;
  try {
    maker = std::make_unique<Composer>(scenario);
  } catch (const NotComposable&) {
    ++tally.simulated;
    return;
  }
  Composer& composer = *maker;
  for (int i = 0; i < 4; ++i) {
    scenario.policy = any_policy(seen);
    const std::optional<Summary> composed = composer.summary(scenario.policy);
    Run made;
    try {
      made = run(scenario);
    } catch (const InputError&) {
      RC_ASSERT(!composed.has_value());  // what the simulation refuses must not be answered
      ++tally.refused;
      continue;
    }
    if (!composed) {
      ++tally.simulated;
      continue;
    }
    ++tally.composed;
    const std::optional<Violation> found = referee(made.step, made.timeline);
    if (found) RC_FAIL(std::string(to_string(found->fault)) + ": " + found->message);
    ScenarioFacts facts = plain_facts(scenario);
    facts.top = 0;
    const Summary simulated = summarize(made.step, made.timeline, facts);
    RC_ASSERT(make_row("", *composed, SweepMethod::composed).head ==
              make_row("", simulated, SweepMethod::composed).head);
    RC_ASSERT(composed->peak().at_peak == simulated.peak().at_peak);
    RC_ASSERT(composed->peak().peak.op == simulated.peak().peak.op);
    RC_ASSERT(composed->last().time == simulated.last().time);
    RC_ASSERT(composed->last().flops == simulated.last().flops);
  }
}

}  // namespace

TEST_CASE("any policy on an MLP: composed is simulated") {
  Tally tally;
  CHECK(rc::check([&] { judge(any_mlp(), tally); }));
  CHECK(4 * tally.composed > tally.simulated);
}

TEST_CASE("any policy on a transformer: composed is simulated") {
  Tally tally;
  CHECK(rc::check([&] { judge(any_transformer(), tally); }));
  CHECK(4 * tally.composed > tally.simulated);
}
