#include "mlp.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "native/support.hpp"
#include "support/csv.hpp"

using namespace tidemark;
using namespace tidemark::test;
using native::Machine;
using native::Mlp;
using native::MlpShape;

namespace {

std::vector<float> values(const native::Tensor& tensor) { return {tensor.data(), tensor.data() + tensor.elements()}; }

/// All gradients of a step, one after the other; freed memory is poisoned, so reading any of it would show as NaN.
std::vector<float> gradients(const MlpShape& shape, std::int64_t segment) {
  Machine machine;
  machine.arena.poison(true);
  Mlp model(machine, shape);
  model.step(0, segment, false);
  std::vector<float> all = values(model.x_gradient());
  for (const Mlp::Gradients& layer : model.gradients())
    for (const native::Tensor* tensor : {&layer.w1, &layer.b1, &layer.w2, &layer.b2})
      for (const float value : values(*tensor)) all.push_back(value);
  return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("native MLP: every event, FLOP and level is the simulated one") {
  struct Case {
    int layers, segment;  // segment 0: policy none
    bool save_pre_activation, hold_out;
    int steps, rows, width, hidden;
    std::string policy = {};  // that comes to such segments
  };
  std::vector<Case> cases;
  for (const int layers : {4, 7, 12, 36})
    for (const int segment : {0, 1, 2, 3, 4, 5, 6, 12, 36})
      if (segment <= layers)
        for (const bool pre : {false, true}) cases.push_back({layers, segment, pre, false, 1, 4, 3, 5});
  cases.push_back({5, 2, false, true, 3, 2, 8, 3});
  cases.push_back({6, 3, true, true, 2, 1, 4, 9});
  cases.push_back({6, 0, false, false, 2, 3, 2, 2});
  for (const int layers : {4, 5, 9, 16, 25, 36}) {
    cases.push_back({layers, 1, false, false, 1, 3, 2, 4, "full"});
    cases.push_back({layers, layers, false, false, 1, 3, 2, 4, "whole"});
  }
  cases.push_back({9, 3, false, false, 1, 3, 2, 4, "sqrt"});
  cases.push_back({36, 6, false, false, 1, 3, 2, 4, "sqrt"});
  CHECK(cases.size() >= 60);
  MESSAGE(cases.size() << " settings of the MLP, each equal in every event");
  for (const Case& c : cases) {
    const std::string scenario = "profile: reference\nsteps: " + std::to_string(c.steps) +
                                 "\nmodel: {family: mlp, layers: " + std::to_string(c.layers) +
                                 ", rows: " + std::to_string(c.rows) + ", width: " + std::to_string(c.width) +
                                 ", hidden: " + std::to_string(c.hidden) +
                                 (c.save_pre_activation ? ", save_pre_activation: true" : "") +
                                 "}\nloop: {logits_held: " + (c.hold_out ? "true" : "false") + "}\npolicy: " +
                                 (!c.policy.empty() ? c.policy
                                  : c.segment == 0  ? "none"
                                                    : "{kind: interval, interval: " + std::to_string(c.segment) + "}") +
                                 "\n";
    CAPTURE(scenario);
    const Run run = tidemark::run(parse_scenario(scenario, "case"));
    const std::int64_t segment = native::segment_length(plan_for_native(run), c.layers);
    CHECK(segment == c.segment);

    Machine machine;
    Mlp model(machine, {c.layers, c.rows, c.width, c.hidden, c.save_pre_activation});
    for (int number = 0; number < c.steps; ++number) model.step(number, segment, c.hold_out);

    const Rows simulated = rows_of(run), native = rows_of(machine.record);
    CHECK(first_difference(simulated.events, native.events) == "");
    CHECK(first_difference(simulated.ops, native.ops) == "");
    CHECK(machine.arena.high_water_bytes() == run.timeline.peak.count);
  }
}

TEST_CASE("native MLP: two frees in the other order are found") {
  const std::string scenario =
      "profile: reference\nmodel: {family: mlp, layers: 4, rows: 4, width: 3, hidden: 5}\n"
      "policy: {kind: interval, interval: 2}\n";
  const Run run = tidemark::run(parse_scenario(scenario, "case"));
  Machine machine;
  machine.swap_frees = true;
  Mlp model(machine, {4, 4, 3, 5, false});
  model.step(0, 2, false);
  CHECK(machine.arena.high_water_bytes() == run.timeline.peak.count);
  const std::string difference = first_difference(rows_of(run).events, rows_of(machine.record).events);
  CHECK(difference.find("free,layers.2.gb1,backward,layers.2.h_pre") != std::string::npos);
}

TEST_CASE("native MLP: gradients under any segments are the plain ones bit for bit") {
  for (const bool pre : {false, true}) {
    const MlpShape shape{9, 6, 5, 7, pre};
    const std::vector<float> plain = gradients({9, 6, 5, 7, false}, 0);
    CHECK(std::ranges::all_of(plain, [](float value) { return std::isfinite(value); }));
    CHECK(std::ranges::any_of(plain, [](float value) { return std::abs(value) > 0.01F; }));
    for (std::int64_t segment = 0; segment <= 10; ++segment) {
      CAPTURE(segment);
      CHECK(same_bits(gradients(shape, segment), plain));
    }
  }
}

TEST_CASE("native MLP: NumPy computes the same") {
  Machine machine;
  Mlp model(machine, {3, 4, 5, 6, false});
  const std::vector<float> out = model.evaluate();
  model.step(0, 2, false);
  std::size_t tensors = 0;
  const auto compare = [&](const std::string& name, const std::vector<float>& native) {
    CAPTURE(name);
    for (const Row& row : table("tests/native/mlp_numpy.csv")) {
      if (row.at("tensor") != name) continue;
      ++tensors;
      const std::vector<std::string> expected = split(row.at("values"), ' ');
      REQUIRE(expected.size() == native.size());
      for (std::size_t i = 0; i < native.size(); ++i)
        CHECK(native[i] == doctest::Approx(std::stod(expected[i])).epsilon(2e-6));  // float32 against float64
    }
  };
  compare("out", out);
  compare("x.grad", values(model.x_gradient()));
  for (std::size_t i = 0; i < 3; ++i) {
    const Mlp::Gradients& layer = model.gradients()[i];
    const std::string scope = "layers." + std::to_string(i) + ".";
    compare(scope + "w1.grad", values(layer.w1));
    compare(scope + "b1.grad", values(layer.b1));
    compare(scope + "w2.grad", values(layer.w2));
    compare(scope + "b2.grad", values(layer.b2));
  }
  CHECK(tensors == 14);
}

TEST_CASE("native MLP: gradients are those of finite differences") {
  Machine machine;
  Mlp model(machine, {3, 4, 5, 6, false});
  model.step(0, 1, false);
  const std::vector<float> weights = values(model.grad_output());
  const auto loss = [&] {
    const std::vector<float> out = model.evaluate();
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += double{out[i]} * double{weights[i]};
    return sum;
  };
  const auto check = [&](const native::Tensor& of, const native::Tensor& gradient) {
    for (std::int64_t i = 0; i < of.elements(); ++i) {
      const float value = of.data()[i];
      constexpr float h = 1.0F / 512;
      of.data()[i] = value + h;
      const double above = loss();
      of.data()[i] = value - h;
      const double below = loss();
      of.data()[i] = value;
      CHECK(gradient.data()[i] == doctest::Approx((above - below) / (2 * double{h})).epsilon(0.002));
    }
  };
  for (std::size_t i = 0; i < 3; ++i) {
    const Mlp::Parameters& p = model.parameters()[i];
    const Mlp::Gradients& gradient = model.gradients()[i];
    check(p.w1, gradient.w1);
    check(p.b1, gradient.b1);
    check(p.w2, gradient.w2);
    check(p.b2, gradient.b2);
  }
  check(model.x(), model.x_gradient());
}

TEST_CASE("native plan file: what is no plan of equal segments is refused") {
  struct Case {
    std::string name, text, message;
  };
  const std::string head = "steps:\n  - {op: forward, layer: 0, keep: input, region: 0}\n";
  const Case cases[] = {
      {"no steps", "", "plan: error: no steps; expected a plan as 'tidemark run --plan-out' writes it"},
      {"a framework's checkpointing", "checkpointing: {kind: reentrant}\n",
       "plan:1: error: this program runs plans as they stand; expected 'steps:', not 'checkpointing: {kind: "
       "reentrant}'"},
      {"an unknown op", head + "  - {op: copy_out, layer: 0}\n",
       "plan:3: error: op 'copy_out' is not one this program has"},
      {"an unknown key", head + "  - {op: forward, layre: 0}\n", "plan:3: error: unknown key 'layre'"},
      {"cut off", head + "  - {op: forward, lay\n", "plan:3: error: expected ':' in a step of the plan"},
      {"two texts", head + "  - {op: forward, layer: 0} {}\n", "plan:3: error: text after the step"},
      {"no backward", head,
       "error: the MLP runs segments of one length over all of its 1 layers, each again right before its backward; "
       "the plan is another"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const auto read = [&] { native::segment_length(native::parse_plan(c.text, "plan"), 1); };
    CHECK_THROWS_WITH_AS(read(), c.message.c_str(), native::Mistake);
  }
}
