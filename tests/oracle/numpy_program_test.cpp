#include <doctest/doctest.h>

#include <array>
#include <string>
#include <utility>

#include "support/csv.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/step/kernel.hpp"
#include "tidemark/step/lower.hpp"

using namespace tidemark;

namespace {

Step reference_step(const MlpSpec& spec, int segment, const Training& training) {
  Policy policy;
  if (segment > 0) policy.kind = policy::Interval{segment, true};
  const Outline out = outline(make_mlp(spec, training), KernelSet("reference"));
  return lower_reference(spec, make_plan(policy, out), training);
}

/// "+60 -3": births by bytes, deaths by the number of the birth.
std::string events(const Step& step) {
  std::string out;
  for (const Instruction& instruction : step.instructions) {
    if (instruction.what == Do::compute) continue;
    const bool birth = instruction.what == Do::alloc;
    out += (out.empty() ? "" : " ") + std::string(birth ? "+" : "-") +
           std::to_string(birth ? step.storages[instruction.index].bytes.count : instruction.index);
  }
  return out;
}

Policy made(PolicyKind kind, RecomputeSchedule schedule = RecomputeSchedule::per_segment) {
  Policy policy;
  policy.kind = std::move(kind);
  policy.schedule = schedule;
  return policy;
}

policy::Selective recompute(const std::string& kind) {
  policy::Selective selective;
  selective.recompute = {kind};
  return selective;
}

int number(const test::Row& row, const std::string& column) { return std::stoi(row.at(column)); }

}  // namespace

TEST_CASE("the reference MLP's births and deaths are those of CPython running the NumPy program") {
  for (const test::Row& row : test::table("tests/oracle/numpy_program.csv")) {
    CAPTURE(row.at("name"));
    MlpSpec spec;
    spec.layers = number(row, "layers");
    spec.rows = number(row, "rows");
    spec.width = number(row, "width");
    spec.hidden = number(row, "hidden");
    spec.save_pre_activation = number(row, "keeps_pre") == 1;
    Training training;
    training.loop = {.logits_held = number(row, "out_held") == 1, .steps = number(row, "steps")};
    CHECK(events(reference_step(spec, number(row, "segment"), training)) == row.at("events"));
  }
}

TEST_CASE("the reference MLP's totals: 3.5 forwards, 4.5 with segments, a third of a backward less with h_pre kept") {
  struct Case {
    std::string name;
    int layers, segment;
    bool keeps;
    int forward, recompute, backward;  // in products of one layer, of which forward has two
  };
  const Case cases[] = {
      {"plain", 6, 0, false, 12, 0, 30},
      {"segments of 2", 6, 2, false, 12, 12, 30},
      {"segments of 4 and 2", 6, 4, false, 12, 12, 30},
      {"kept pre-activations", 6, 0, true, 12, 0, 24},
      {"kept in segments", 6, 3, true, 12, 12, 24},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    MlpSpec spec;
    spec.layers = c.layers;
    spec.save_pre_activation = c.keeps;
    const Step step = reference_step(spec, c.segment, {});
    std::array<Int128, phase_names.size()> flops{};
    for (const StepOp& op : step.ops) flops[static_cast<std::size_t>(op.phase)] += op.flops;
    const Int128 product = Int128{2} * 256 * 32 * 64;
    CHECK(flops[static_cast<std::size_t>(Phase::forward)] == c.forward * product);
    CHECK(flops[static_cast<std::size_t>(Phase::recompute)] == c.recompute * product);
    CHECK(flops[static_cast<std::size_t>(Phase::backward)] == c.backward * product);
  }
}

TEST_CASE("the reference program keeps one boundary more than it has segments when they divide the layers") {
  struct Case {
    std::string name;
    int layers, segment;
    std::int64_t boundaries;  // made by forward and alive after it
  };
  const Case cases[] = {{"6 in 2", 6, 2, 3}, {"7 in 2", 7, 2, 3}, {"6 in 6", 6, 6, 1}, {"6 in 4", 6, 4, 1}};
  for (const Case& c : cases) {
    CAPTURE(c.name);
    MlpSpec spec;
    spec.layers = c.layers;
    const Step step = reference_step(spec, c.segment, {});
    std::int64_t live = 0;
    for (const Instruction& instruction : step.instructions) {
      if (step.ops[instruction.op].phase != Phase::forward) break;
      const std::int64_t bytes = step.storages[instruction.index].bytes.count;
      if (instruction.what == Do::alloc) live += bytes;
      if (instruction.what == Do::free) live -= bytes;
    }
    CHECK(live == c.boundaries * 256 * 32 * 4);
  }
}

TEST_CASE("the reference program refuses what it does not do") {
  struct Case {
    std::string name;
    MlpSpec spec;
    Policy policy;
    Optimizer optimizer;
    std::string message;
  };
  const std::string plans =
      "error: profile 'reference' runs segments of one length from layer 0 on, each rebuilt right before its backward; "
      "take profile 'ideal' for other plans";
  const Case cases[] = {
      {"another style",
       {.style = "addmm"},
       {},
       {},
       "error: profile 'reference' knows style 'matmul' with activation 'relu' only"},
      {"another order", {}, made(policy::Interval{2, true}, RecomputeSchedule::up_front), {}, plans},
      {"a free tail", {}, made(policy::Interval{2, false}), {}, plans},
      {"single ops", {}, made(recompute("relu")), {}, plans},
      {"an optimizer",
       {},
       {},
       {.kind = OptimizerKind::sgd},
       "error: profile 'reference' has no optimizer and no gradient accumulation"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Training training;
    training.optimizer = c.optimizer;
    const Outline out = outline(make_mlp(c.spec, training), KernelSet("reference"));
    const Plan plan = make_plan(c.policy, out);
    CHECK_THROWS_WITH_AS(lower_reference(c.spec, plan, training), c.message.c_str(), InputError);
  }
}
