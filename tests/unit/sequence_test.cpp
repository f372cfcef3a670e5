#include "tidemark/plan/sequence.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/outlines.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/plan/describe.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/plan/validity.hpp"

using namespace tidemark;

namespace {

std::string parse_message(const std::string& text, const Outline& outline) {
  try {
    parse_sequence(text, outline);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

std::string check_message(const Plan& plan, const Outline& outline) {
  try {
    check_plan(plan, outline);
  } catch (const InputError& error) {
    return error.what();
  }
  return "valid";
}

Policy by_sequence(const std::string& text) {
  Policy policy;
  policy.kind = policy::Sequence{text};
  return policy;
}

}  // namespace

TEST_CASE("sequence: each letter is a step") {
  using Steps = std::vector<PlanStep>;
  const Outline outline = transformer_outline(3);  // block b is layer b + 1
  const std::string text = "Fe(embedding) Fn0 Fc0[1-3] D2[0,2-4] Dxbar3  B1\tOut1[0]\nIn1";
  CHECK(parse_sequence(text, outline).steps == Steps{{Action::forward, 0, {}, Keep::all, -1},
                                                     {Action::forward, 1, {}, Keep::none, -1},
                                                     {Action::recompute, 1, {1, 2, 3}, Keep::input, -1},
                                                     {Action::drop, 3, {0, 2, 3, 4}, Keep::all, -1},
                                                     {Action::discard_saved, 3, {}, Keep::all, -1},
                                                     {Action::backward, 2, {}, Keep::all, -1},
                                                     {Action::copy_out, 2, {0}, Keep::all, -1},
                                                     {Action::copy_in, 2, {}, Keep::all, -1}});
  CHECK(parse_sequence("Fc0 Fn1\tFe2 L", chain_outline(3)).steps == Steps{{Action::forward, 0, {}, Keep::input, -1},
                                                                          {Action::forward, 1, {}, Keep::none, -1},
                                                                          {Action::forward, 2, {}, Keep::all, -1},
                                                                          {Action::loss, -1, {}, Keep::all, -1}});
}

TEST_CASE("sequence: text that is no sequence") {
  struct Case {
    std::string name;
    std::string text;
    std::string message;
  };
  const Case cases[] = {
      {"no such letter", "Fc0 X1",
       "error: token 2 of the sequence, 'X1', is none of L, Fe, Fc, Fn, B, D, Dx, Dxbar, Out, In, Outx, Inx, Wait with "
       "a "
       "block's "
       "number"},
      {"no number", "Fe", "error: token 1 of the sequence, 'Fe', lacks a number"},
      {"negative", "Fe-1", "error: token 1 of the sequence, 'Fe-1', lacks a number"},
      {"past the last block", "Fe0 Fe3", "error: token 2 of the sequence, 'Fe3', must name a block from 0 to 2"},
      {"a tail", "Fe0x",
       "error: token 1 of the sequence, 'Fe0x', has something after its number; expected ops as in [0,2-5], or "
       "nothing"},
      {"ops out of range", "Fe0[1]", "error: token 1 of the sequence, 'Fe0[1]', names op 1 of 1"},
      {"ops twice", "Fe0[0,0]", "error: token 1 of the sequence, 'Fe0[0,0]', must name ops in ascending order"},
      {"ops backwards", "Fe0[1-0]", "error: token 1 of the sequence, 'Fe0[1-0]', must name ops in ascending order"},
      {"no ops", "Fe0[]", "error: token 1 of the sequence, 'Fe0[]', lacks a number"},
      {"nothing saved before block 0", "Dxbar0",
       "error: token 1 of the sequence, 'Dxbar0', must name a number from 1 to 3"},
      {"no layer of that name", "Fe(head)", "error: token 1 of the sequence, 'Fe(head)', names no layer of the model"},
      {"an open name", "Fe(2", "error: token 1 of the sequence, 'Fe(2', lacks a ')'"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(parse_message(c.text, chain_outline(3)) == c.message);
  }
}

TEST_CASE("sequence: what is read is written again") {
  struct Case {
    std::string name;
    Outline outline;
    std::string text;
  };
  const Case cases[] = {
      {"rotor", chain_outline(3), "Fc0 Fn1 Fe2 L B2 Fe0 Fe1 B1 B0"},
      {"discards: of the input of 1, of what 1 saved, of the chain's output", chain_outline(3), "Dx1 Dxbar2 Dx3"},
      {"parts", transformer_outline(2), "Fe0 D0[0,2-4] Fe1 L B1[5-9] Fe1[2,4] B1[0-4] B0"},
      {"copies", chain_outline(2), "Fe0 Out0 Fe1 L B1 In0 B0"},
      {"copies of inputs", chain_outline(2), "Outx0 Fn0 Fe1 L B1 Inx0 Fe0 B0"},
      {"other layers by name", transformer_outline(1), "Fe(embedding) Fe0 Fe(head) L B(head) B(loss) B0 B(embedding)"},
      {"nothing", chain_outline(1), ""},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(to_sequence(parse_sequence(c.text, c.outline), c.outline) == c.text);
  }
}

TEST_CASE("sequence: layers that are no blocks run where they belong") {
  const Outline outline = transformer_outline(2);
  Policy none;
  CHECK(parse_sequence("Fe0 Fe1 L B1 B0", outline).steps == make_plan(none, outline).steps);
  // The head runs backward before the blocks are rebuilt, however long that waits.
  CHECK(parse_sequence("Fc0 Fn1 L Fe0 Fe1 B1 B0", outline) ==
        parse_sequence("Fe(embedding) Fc0 Fn1 Fe(head) L B(loss) B(head) Fe0 Fe1 B1 B0 B(embedding)", outline));
  // The embedding waits for the whole of block 0.
  CHECK(parse_sequence("Fe0 Fe1 L B1 B0[5-9] B0[0-4]", outline) ==
        parse_sequence("Fe(embedding) Fe0 Fe1 Fe(head) L B(loss) B(head) B1 B0[5-9] B0[0-4] B(embedding)", outline));
}

TEST_CASE("plan: whether it can run") {
  struct Case {
    std::string name;
    std::string text;
    std::string message;
  };
  // Chains of three layers.
  const Case cases[] = {
      {"all saved", "Fe0 Fe1 Fe2 L B2 B1 B0", "valid"},
      {"two segments", "Fc0 Fn1 Fe2 L B2 Fe0 Fe1 B1 B0", "valid"},
      {"run again twice", "Fc0 Fn1 Fn2 L Fc0 Fn1 Fe2 B2 Fc0 Fe1 B1 Fe0 B0", "valid"},
      {"discarded in time", "Fe0 Fe1 Fe2 L Dxbar1 Fe0 B2 B1 B0", "valid"},
      {"run forward twice", "Fc0 Fe0 Fe1 Fe2 L B2 B1 B0", "valid"},
      {"out of order", "Fe1 Fe0 Fe2 L B2 B1 B0", "error: step 1 of the plan, Fe1, reads '0', which has not run"},
      {"the input has gone", "Fn0 Fn1 Fe2 L B2 Fe1 B1 Fe0 B0",
       "error: step 6 of the plan, Fe1, needs the output of '0', which was given up"},
      {"the model's input has gone", "Fn0 Fe1 Fe2 L B2 B1 Fe0 B0",
       "error: step 7 of the plan, Fe0, needs the model's input, which was given up"},
      {"discarded too early", "Fc0 Dx1 Fe1 Fe2 L B2 B1 Fe0 B0",
       "error: step 3 of the plan, Fe1, needs the output of '0', which was given up"},
      {"the output has gone", "Fc0 Fc1 Fc2 Dx3 L Fe2 B2 Fe1 B1 Fe0 B0",
       "error: step 5 of the plan, L, needs the output of '2', which was given up"},
      {"discarded what is not there", "Fe0 Fe1 Fe2 L B2 Dx2 B1 B0",
       "error: step 6 of the plan, Dx2, discards what is not there"},
      {"given up what is not there", "Fc0 Fe1 Fe2 L B2 B1 Dxbar1 Fe0 B0",
       "error: step 7 of the plan, Dxbar1, gives up what is not there"},
      {"not rebuilt", "Fe0 Fc1 Fe2 L B2 B1 B0",
       "error: step 6 of the plan, B1, needs what op '1' saved, which was given up and not run again"},
      {"rebuilt too late", "Fe0 Fc1 Fe2 L B2 B1 Fe1 B0",
       "error: step 6 of the plan, B1, needs what op '1' saved, which was given up and not run again"},
      {"rebuilt after its backward", "Fe0 Fe1 Fe2 L B2 B1 Fe1 B0",
       "error: step 7 of the plan, Fe1, runs again what has run backward"},
      {"backward in forward order", "Fe0 Fe1 Fe2 L B0 B1 B2",
       "error: step 5 of the plan, B0, runs op '0' backward before '1', which reads it"},
      {"backward twice", "Fe0 Fe1 Fe2 L B2 B2 B1 B0",
       "error: step 6 of the plan, B2, runs op '2' backward a second time"},
      {"backward left out", "Fe0 Fe1 Fe2 L B2 B1", "error: the plan ends before '0' has run backward"},
      {"no loss", "Fe0 Fe1 Fe2 B2 B1 B0", "error: step 4 of the plan, B2, runs backward before the loss"},
      {"two losses", "Fe0 Fe1 Fe2 L L B2 B1 B0", "error: step 5 of the plan, L, is a second loss"},
      {"loss too early", "Fe0 Fe1 L Fe2 B2 B1 B0", "error: step 3 of the plan, L, stands before '2' has run forward"},
      {"empty", "", "error: the plan ends before '0' has run backward"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(check_message(parse_sequence(c.text, chain_outline(3)), chain_outline(3)) == c.message);
  }
}

TEST_CASE("plan: steps that name what is not there") {
  struct Case {
    std::string name;
    PlanStep step;
    std::string message;
  };
  const Case cases[] = {
      {"no layer", {Action::forward, 7, {}, Keep::all, -1}, "error: step 1 of the plan names layer 7 of 2"},
      {"a layer below 0", {Action::backward, -1, {}, Keep::all, -1}, "error: step 1 of the plan names layer -1 of 2"},
      {"no op",
       {Action::forward, 1, {3}, Keep::all, -1},
       "error: step 1 of the plan, Fe1[3], names op 3; '1' has ops 0 to 0"},
      {"ops twice",
       {Action::forward, 1, {0, 0}, Keep::all, -1},
       "error: step 1 of the plan, Fe1[0,0], must name ops once and in ascending order"},
      {"a discard of no layer",
       {Action::discard_input, 9, {}, Keep::all, -1},
       "error: step 1 of the plan names layer 9 of 2"},
      {"forward a second time",
       {Action::forward, 0, {}, Keep::all, -1},
       "error: step 2 of the plan, Fe0, runs forward a second time; expected recompute"},
      {"recompute first",
       {Action::recompute, 0, {}, Keep::all, -1},
       "error: step 1 of the plan, Fe0, runs again what has not run forward"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Plan plan;
    plan.steps = {c.step};
    if (c.name == "forward a second time") plan.steps.push_back(c.step);
    CHECK(check_message(plan, chain_outline(2)) == c.message);
  }
}

TEST_CASE("policy: a finished plan is taken as it is, checked, and completed") {
  const Outline outline = transformer_outline(2);
  CHECK(to_sequence(make_plan(by_sequence("Fc0 Fn1 L Fe0 Fe1 B1 B0"), outline), outline) == "Fc0 Fn1 L Fe0 Fe1 B1 B0");
  CHECK_THROWS_WITH_AS(make_plan(by_sequence("Fc0 Fn1 L Fe0 B1 B0"), outline),
                       doctest::Contains("needs what op 'add2' saved"), InputError);
  Policy given;
  Plan plan;
  plan.steps = {{Action::forward, 1, {}, Keep::all, 4},
                {Action::forward, 2, {}, Keep::all, -1},
                {Action::loss, -1, {}, Keep::all, -1},
                {Action::backward, 2, {}, Keep::all, -1},
                {Action::backward, 1, {}, Keep::all, -1}};
  plan.warnings = {"mind this"};
  plan.checkpointing.kind = Checkpointing::Kind::reentrant;
  given.kind = policy::Given{plan};
  const Plan made = make_plan(given, outline);
  CHECK(to_sequence(made, outline) == "Fe0 Fe1 L B1 B0");
  CHECK(made.steps[1].region == 0);  // regions are numbered anew
  CHECK(made.warnings == plan.warnings);
  CHECK(made.checkpointing == plan.checkpointing);
  given.schedule = RecomputeSchedule::up_front;
  CHECK_THROWS_WITH_AS(make_plan(given, outline),
                       "error: a finished plan says itself when it recomputes; expected no 'schedule', 'on_grad_of' or "
                       "'nested'",
                       InputError);
}

TEST_CASE("policy: settings go into the plan") {
  Policy policy = by_sequence("Fe0 L B0");
  policy.hold_boundaries = true;
  policy.checkpointing.kind = Checkpointing::Kind::nonreentrant;
  const Plan plan = make_plan(policy, chain_outline(1));
  CHECK(plan.hold_boundaries);
  CHECK(plan.checkpointing.kind == Checkpointing::Kind::nonreentrant);
}

TEST_CASE("plan: in one sentence") {
  struct Case {
    std::string name;
    PolicyKind kind;
    std::vector<int> nested;
    std::string sentence;
  };
  policy::Selective core;
  core.recompute = {"softmax", "dropout"};
  core.every = 2;
  const Case cases[] = {
      {"nothing", policy::None{}, {}, "nothing runs again"},
      {"all", policy::Interval{2}, {}, "4 of 4 blocks run again, in 2 regions"},
      {"one", policy::Block{1}, {}, "1 of 4 blocks runs again, in 1 region"},
      {"some more than once", policy::Whole{}, {2}, "4 of 4 blocks run again, in 1 region, 6 times in all"},
      {"ops", core, {}, "2 ops of 2 of 4 blocks run again: attention.core.softmax, attention.core.dropout"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Policy policy;
    policy.kind = c.kind;
    policy.nested = c.nested;
    CHECK(describe(make_plan(policy, transformer_outline(4)), transformer_outline(4)) == c.sentence);
  }
}
