#include "tidemark/plan/policy.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "support/outlines.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/plan/sequence.hpp"

using namespace tidemark;

namespace {

std::string plan_of(const Policy& policy, const Outline& outline) {
  return to_sequence(make_plan(policy, outline), outline);
}

Policy scheduled(PolicyKind kind, RecomputeSchedule schedule, std::string on_grad_of = "") {
  Policy policy;
  policy.kind = std::move(kind);
  policy.schedule = schedule;
  policy.on_grad_of = std::move(on_grad_of);
  return policy;
}

Policy nested(PolicyKind kind, std::vector<int> intervals) {
  Policy policy;
  policy.kind = std::move(kind);
  policy.nested = std::move(intervals);
  return policy;
}

std::string message_of(const Policy& policy, const Outline& outline) {
  try {
    make_plan(policy, outline);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("policy: regions of whole blocks on a chain") {
  struct Case {
    std::string name;
    int layers;
    PolicyKind kind;
    std::string plan;
  };
  const Case cases[] = {
      {"none", 3, policy::None{}, "Fe0 Fe1 Fe2 L B2 B1 B0"},
      {"every block", 3, policy::Full{}, "Fc0 Fc1 Fc2 L Fe2 B2 Fe1 B1 Fe0 B0"},
      {"interval 2 of 4", 4, policy::Interval{2}, "Fc0 Fn1 Fc2 Fn3 L Fe2 Fe3 B3 B2 Fe0 Fe1 B1 B0"},
      {"interval 2 of 3: one left over", 3, policy::Interval{2}, "Fc0 Fn1 Fc2 L Fe2 B2 Fe0 Fe1 B1 B0"},
      {"the last segment in full", 4, policy::Interval{2, false}, "Fc0 Fn1 Fe2 Fe3 L B3 B2 Fe0 Fe1 B1 B0"},
      {"interval above the layers", 2, policy::Interval{9}, "Fc0 Fn1 L Fe0 Fe1 B1 B0"},
      {"the only segment in full", 2, policy::Interval{9, false}, "Fe0 Fe1 L B1 B0"},
      {"sqrt of 6 rounds to 2", 6, policy::Sqrt{},
       "Fc0 Fn1 Fc2 Fn3 Fc4 Fn5 L Fe4 Fe5 B5 B4 Fe2 Fe3 B3 B2 Fe0 Fe1 B1 B0"},
      {"sqrt of 7 rounds to 3", 7, policy::Sqrt{false},
       "Fc0 Fn1 Fn2 Fc3 Fn4 Fn5 Fe6 L B6 Fe3 Fe4 Fe5 B5 B4 B3 Fe0 Fe1 Fe2 B2 B1 B0"},
      {"whole", 3, policy::Whole{}, "Fc0 Fn1 Fn2 L Fe0 Fe1 Fe2 B2 B1 B0"},
      // torch: size 5 // 2 = 2; the last segment takes 2, 3, 4 and is not checkpointed.
      {"sequential 2 of 5", 5, policy::Sequential{2}, "Fc0 Fn1 Fe2 Fe3 Fe4 L B4 B3 B2 Fe0 Fe1 B1 B0"},
      {"sequential 1 checkpoints nothing", 2, policy::Sequential{1}, "Fe0 Fe1 L B1 B0"},
      {"sequential of single blocks", 3, policy::Sequential{3}, "Fc0 Fc1 Fe2 L B2 Fe1 B1 Fe0 B0"},
      {"the first 2 blocks", 3, policy::Block{2}, "Fc0 Fc1 Fe2 L B2 Fe1 B1 Fe0 B0"},
      {"no block", 2, policy::Block{0}, "Fe0 Fe1 L B1 B0"},
      {"one layer", 1, policy::Interval{1}, "Fc0 L Fe0 B0"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(plan_of(nested(c.kind, {}), chain_outline(c.layers)) == c.plan);
  }
}

TEST_CASE("policy: when regions are recomputed") {
  struct Case {
    std::string name;
    Policy policy;
    std::string plan;
  };
  const PolicyKind by_two = policy::Interval{2};
  const Case cases[] = {
      {"up front: all of it, in forward order", scheduled(by_two, RecomputeSchedule::up_front),
       "Fc0 Fn1 Fc2 Fn3 L Fe0 Fe1 Fe2 Fe3 B3 B2 B1 B0"},
      {"just in time: a chain's segment is needed as a whole", scheduled(by_two, RecomputeSchedule::just_in_time),
       "Fc0 Fn1 Fc2 Fn3 L Fe2 Fe3 B3 B2 Fe0 Fe1 B1 B0"},
      {"nothing to place", scheduled(policy::None{}, RecomputeSchedule::up_front), "Fe0 Fe1 Fe2 Fe3 L B3 B2 B1 B0"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(plan_of(c.policy, chain_outline(4)) == c.plan);
  }
}

TEST_CASE("policy: regions inside regions") {
  struct Case {
    std::string name;
    int layers;
    PolicyKind kind;
    std::vector<int> nested;
    std::string plan;
  };
  const Case cases[] = {
      // Outer region 0-3, inner 0-1 and 2-3. The first run again stops where the last inner region begins.
      {"two levels", 4, policy::Whole{}, {2}, "Fc0 Fn1 Fn2 Fn3 L Fc0 Fn1 Fe2 Fe3 B3 B2 Fe0 Fe1 B1 B0"},
      {"three levels", 4, policy::Whole{}, {2, 1}, "Fc0 Fn1 Fn2 Fn3 L Fc0 Fn1 Fc2 Fe3 B3 Fe2 B2 Fc0 Fe1 B1 Fe0 B0"},
      {"several outer regions",
       6,
       policy::Interval{4},
       {2},
       "Fc0 Fn1 Fn2 Fn3 Fc4 Fn5 L Fe4 Fe5 B5 B4 Fc0 Fn1 Fe2 Fe3 B3 B2 Fe0 Fe1 B1 B0"},
      {"an inner region left over",
       5,
       policy::Whole{},
       {2},
       "Fc0 Fn1 Fn2 Fn3 Fn4 L Fc0 Fn1 Fc2 Fn3 Fe4 B4 Fe2 Fe3 B3 B2 Fe0 Fe1 B1 B0"},
      {"an interval that splits nothing", 3, policy::Whole{}, {3, 2}, "Fc0 Fn1 Fn2 L Fc0 Fn1 Fe2 B2 Fe0 Fe1 B1 B0"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(plan_of(nested(c.kind, c.nested), chain_outline(c.layers)) == c.plan);
  }
}

TEST_CASE("policy: settings that do not fit are refused") {
  struct Case {
    std::string name;
    Policy policy;
    std::string message;
  };
  const Case cases[] = {
      {"interval 0", nested(policy::Interval{0}, {}), "error: 'interval' must be at least 1, not 0"},
      {"no segments", nested(policy::Sequential{0}, {}), "error: 'segments' must be at least 1, not 0"},
      {"more segments than blocks", nested(policy::Sequential{5}, {}),
       "error: 'segments' must be at most the model's 4 layers, not 5"},
      {"more blocks than there are", nested(policy::Block{5}, {}),
       "error: 'layers' must be from 0 to the model's 4 layers, not 5"},
      {"fewer than none", nested(policy::Block{-1}, {}),
       "error: 'layers' must be from 0 to the model's 4 layers, not -1"},
      {"nested 0", nested(policy::Whole{}, {0}), "error: 'nested' intervals must be at least 1, not 0"},
      {"on_grad_of without a name", scheduled(policy::Full{}, RecomputeSchedule::on_grad_of),
       "error: schedule on_grad_of needs the name of an op in 'on_grad_of'"},
      {"a name without on_grad_of", scheduled(policy::Full{}, RecomputeSchedule::up_front, "mlp"),
       "error: 'on_grad_of' has a meaning with schedule on_grad_of only"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(message_of(c.policy, chain_outline(4)) == c.message);
  }
}

TEST_CASE("policy: an interval above the layers is one segment, and says so") {
  using Warnings = std::vector<std::string>;
  CHECK(make_plan(nested(policy::Interval{50}, {}), chain_outline(36)).warnings ==
        Warnings{"interval 50 is above the 36 layers: one segment"});
  CHECK(make_plan(nested(policy::Interval{36}, {}), chain_outline(36)).warnings.empty());
  CHECK(make_plan(nested(policy::Whole{}, {4}), chain_outline(4)).warnings ==
        Warnings{"nested interval 4 splits no region"});
  CHECK(make_plan(nested(policy::Full{}, {}), Outline{}).warnings ==
        Warnings{"the model has no blocks: nothing is recomputed"});
}

TEST_CASE("policy: docs/policies.md shows plans as they are made") {
  std::ifstream in("docs/policies.md");
  REQUIRE(in.good());
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  const auto shows = [&](const Policy& policy, const Outline& outline) {
    const std::string plan = plan_of(policy, outline);
    CAPTURE(plan);
    CHECK(page.find("| `" + plan + "` |") != std::string::npos);
  };
  const PolicyKind of_a_chain[] = {
      policy::None{},        policy::Full{},   policy::Interval{2}, policy::Interval{2, false},
      policy::Sequential{3}, policy::Block{2}, policy::Whole{}};
  for (const PolicyKind& kind : of_a_chain) shows(nested(kind, {}), chain_outline(4));
  shows(nested(policy::Whole{}, {2}), chain_outline(4));
  policy::Selective core;
  core.recompute = {"core"};
  using enum RecomputeSchedule;
  shows(scheduled(core, per_segment), transformer_outline(1));
  shows(scheduled(core, just_in_time), transformer_outline(1));
  shows(scheduled(core, on_grad_of, "mlp.up"), transformer_outline(1));
}
