// Any MLP or transformer under any policy, optimizer and loop: the referee accepts the run, and only recomputation adds
// work.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <string>

#include "support/any_model.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;

namespace {

PolicyKind any_policy() {
  switch (number(0, 7)) {
    case 0:
      return policy::None{};
    case 1:
      return policy::Full{};
    case 2:
      return policy::Interval{number(1, 5), coin()};
    case 3:
      return policy::Sqrt{coin()};
    case 4:
      return policy::Sequential{number(1, 3)};
    case 5:
      return policy::Block{number(1, 3)};
    case 6:
      return policy::Whole{};
    default: {
      policy::Selective selective;
      const std::string pattern = one_of<std::string>({"activation", "attention", "linear"});
      (coin() ? selective.recompute : selective.keep).push_back(pattern);
      return selective;
    }
  }
}

void choose_loop(Scenario& scenario) {
  scenario.policy.kind = any_policy();
  scenario.policy.schedule =
      one_of({RecomputeSchedule::per_segment, RecomputeSchedule::just_in_time, RecomputeSchedule::up_front});
  scenario.policy.hold_boundaries = coin();
  Training& training = scenario.training;
  training.optimizer.kind = one_of(
      {OptimizerKind::none, OptimizerKind::sgd, OptimizerKind::momentum, OptimizerKind::adam, OptimizerKind::adamw});
  training.optimizer.multi_tensor = coin();
  training.optimizer.zero_grad_to_none = coin();
  training.loop.steps = number(1, 3);
  training.batch.accumulate = number(1, 3);
  if (coin()) scenario.device.flops.fill(1e9);
}

Scenario any_mlp() {
  Scenario scenario;
  scenario.family = "mlp";
  scenario.model = any_mlp_spec(1, 6);
  scenario.training.profile = *find_profile("ideal");
  choose_loop(scenario);
  return scenario;
}

Scenario any_transformer() {
  Scenario scenario;
  scenario.family = "transformer";
  scenario.model = any_transformer_spec(1, 5);
  scenario.training.profile = *find_profile(one_of<std::string>({"pytorch-cuda", "ideal", "megatron"}));
  if (coin()) scenario.training.dtypes.compute = DType::bfloat16;
  scenario.training.batch.size = number(1, 2);
  scenario.training.batch.sequence = number(1, 8);
  choose_loop(scenario);
  return scenario;
}

Flops executed(const Step& step, bool recompute) {
  Flops total;
  for (const StepOp& op : step.ops)
    if ((op.phase == Phase::recompute) == recompute) total += Flops{op.flops};
  return total;
}

/// false: the scenario is one that is refused.
bool judge(const Scenario& scenario) {
  Run made;
  try {
    made = run(scenario);
  } catch (const InputError&) {
    return false;
  }
  const std::optional<Violation> found = referee(made.step, made.timeline);
  if (found) RC_FAIL(std::string(to_string(found->fault)) + ": " + found->message);
  Scenario plain = scenario;
  plain.policy = Policy{};
  const Step uncheckpointed = run(plain).step;
  RC_ASSERT(executed(uncheckpointed, true) == Flops{});
  RC_ASSERT(executed(made.step, false) == executed(uncheckpointed, false));
  return true;
}

}  // namespace

TEST_CASE("any MLP: the referee accepts the run, and only recomputation adds work") {
  int judged = 0, refused = 0;
  CHECK(rc::check([&] { ++(judge(any_mlp()) ? judged : refused); }));
  CHECK(judged > 4 * refused);
}

TEST_CASE("any transformer: the referee accepts the run, and only recomputation adds work") {
  int judged = 0, refused = 0;
  CHECK(rc::check([&] { ++(judge(any_transformer()) ? judged : refused); }));
  CHECK(judged > 4 * refused);
}
