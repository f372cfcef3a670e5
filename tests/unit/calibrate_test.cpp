// Does the fit find the constants that times were made with, and does a scenario take what it writes?
#include "tidemark/study/calibrate.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/step/op_times.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;

namespace {

/// times: what a cost makes of the work, to the nanosecond.
MeasuredOp made_op(const KindCost& cost, std::int64_t flops, std::int64_t bytes, const std::string& kind = "matmul") {
  MeasuredOp op;
  op.kind = kind;
  op.flops = Flops{flops};
  op.moved = Bytes{bytes};
  op.time = duration(cost, op.flops, op.moved);
  return op;
}

/// Products from 10^9 FLOPs, so that a nanosecond is nothing, at 2 to 64 FLOPs a byte.
std::vector<MeasuredOp> products(const KindCost& cost) {
  std::vector<MeasuredOp> ops;
  for (const std::int64_t giga : {1, 2, 3, 5, 8})
    for (std::int64_t at = 2; at <= 64; at *= 2)
      for (const std::int64_t percent : {100, 130})
        ops.push_back(made_op(cost, giga * 1'000'000'000, giga * 100'000'000'000 / (at * percent)));
  return ops;
}

const KindCost product_cost = {
    Nanos{5'000}, {{2, 10e9}, {4, 20e9}, {8, 35e9}, {16, 50e9}, {32, 61.5e9}, {64, 70e9}}, {}};

const FittedCost& cost_of(const DeviceProfile& profile, const std::string& kind, bool is_backward = false) {
  for (const FittedCost& cost : profile.costs)
    if (cost.kind == kind && cost.is_backward == is_backward) return cost;
  throw std::runtime_error("no such cost");
}

}  // namespace

TEST_CASE("duration of a measured kind: launch, then the rate of its shape's class") {
  const KindCost cost = {Nanos{100}, {{2, 1e9}, {8, 2e9}}, {{1000, 1e9}, {4000, 4e9}}};
  struct Case {
    std::string name;
    std::int64_t flops, bytes, expected;
  };
  const Case cases[] = {
      {"nothing but the launch", 0, 0, 100},
      {"at a point", 4000, 2000, 100 + 4000},
      {"below the points: the first rate", 4000, 8000, 100 + 4000},
      {"above the points: the last rate", 4000, 10, 100 + 2000},
      // 1/3.2 stands halfway between 1/2 and 1/8: 0.75 ns a FLOP
      {"between: linear in bytes a FLOP", 3200, 1000, 100 + 2400},
      {"between, to the nearest nanosecond", 3201, 1000, 100 + 2400},
      {"bytes at a point", 0, 1000, 100 + 1000},
      // both points take 1000 ns
      {"bytes between: linear in the bytes", 0, 2000, 100 + 1000},
      {"bytes above: the last rate", 0, 8000, 100 + 2000},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(duration(cost, Flops{c.flops}, Bytes{c.bytes}) == Nanos{c.expected});
  }
  CHECK(duration({Nanos{7}, {}, {}}, Flops{1'000'000}, Bytes{5}) == Nanos{7});
  CHECK(duration({Nanos{7}, {{1, 1e-9}}, {}}, Flops{INT64_MAX}, Bytes{5}) == Nanos{INT64_MAX});
}

TEST_CASE("calibrate: the constants that the times were made with come back") {
  const DeviceProfile profile = fit_profile(products(product_cost), "d", "made");
  const FittedCost& fitted = cost_of(profile, "matmul");
  CHECK(fitted.training_error < 1e-6);
  CHECK(fitted.held_out_error.value() < 1e-6);
  CHECK(std::abs(fitted.cost.launch.count - product_cost.launch.count) <= 50);
  REQUIRE(fitted.cost.flops.size() == product_cost.flops.size());
  for (std::size_t i = 0; i < fitted.cost.flops.size(); ++i) {
    CAPTURE(i);
    CHECK(fitted.cost.flops[i].at == product_cost.flops[i].at);
    CHECK(fitted.cost.flops[i].rate == doctest::Approx(product_cost.flops[i].rate).epsilon(1e-5));
  }
  CHECK(fitted.cost.bytes.empty());
}

TEST_CASE("calibrate: without matrix products bytes are the work") {
  const KindCost cost = {Nanos{40'000}, {}, {{1 << 20, 2e9}, {1 << 24, 8e9}, {1 << 28, 5e9}}};
  std::vector<MeasuredOp> ops;
  for (std::int64_t bytes = 1 << 20; bytes <= 1 << 28; bytes *= 4)
    for (const std::int64_t eighths : {8, 9, 11}) ops.push_back(made_op(cost, 0, bytes * eighths / 8, "gelu"));
  for (MeasuredOp& op : ops) op.held_out = op.moved.count == (1 << 22);
  const FittedCost fitted = cost_of(fit_profile(ops, "d", "made"), "gelu");
  CHECK(fitted.training_error < 1e-4);
  CHECK(fitted.held_out_points == 1);
  CHECK(fitted.held_out_error.value() < 1e-3);
  CHECK(fitted.cost.flops.empty());
}

TEST_CASE("calibrate: a wild time moves nothing") {
  struct Case {
    std::string name;
    std::int64_t times, over;
  };
  // One too low weighs more than one too high: errors count relative to the time.
  const Case cases[] = {{"nine times too high", 9, 1}, {"a ninth", 1, 9}, {"a hundredth", 1, 100}};
  for (const Case& c : cases) {
    CAPTURE(c.name);
    std::vector<MeasuredOp> ops = products(product_cost);
    for (MeasuredOp& op : ops) op.held_out = false;
    ops[25].time = Nanos{c.times * ops[25].time.count / c.over};
    const FittedCost fitted = cost_of(fit_profile(ops, "d", "made"), "matmul");
    CHECK(fitted.training_error < 0.002);
    CHECK(fitted.cost.flops[3].rate == doctest::Approx(50e9).epsilon(0.01));
  }
}

TEST_CASE("calibrate: directions and kinds are fitted apart, and one constant misses where rates differ") {
  const KindCost slow = {Nanos{0}, {{2, 5e9}, {64, 20e9}}, {}};
  std::vector<MeasuredOp> ops = products(product_cost);
  for (MeasuredOp& op : products(slow)) {
    op.is_backward = true;
    ops.push_back(op);
  }
  const DeviceProfile profile = fit_profile(ops, "d", "made");
  CHECK(profile.costs.size() == 2);
  CHECK(cost_of(profile, "matmul", true).cost.flops.back().rate == doctest::Approx(20e9).epsilon(1e-4));
  CHECK(cost_of(profile, "matmul", true).held_out_error.value() < 1e-4);
  CHECK(cost_of(profile, "matmul", false).constant_held_out_error.value() > 0.2);
  CHECK(error_table(profile).find("all with matrix products") != std::string::npos);
}

TEST_CASE("calibrate: held-out shapes are not fitted to") {
  std::vector<MeasuredOp> ops = products(product_cost);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    ops[i].held_out = i % 3 == 0;
    if (i % 3 == 0) ops[i].time = Nanos{2 * ops[i].time.count};
  }
  const FittedCost fitted = cost_of(fit_profile(ops, "d", "made"), "matmul");
  CHECK(fitted.training_error < 1e-6);
  CHECK(fitted.held_out_error.value() == doctest::Approx(0.5));
  CHECK(fitted.held_out_points == 20);
}

TEST_CASE("calibrate: where nobody says, every fourth shape is held out, and a shape goes one way") {
  std::vector<MeasuredOp> ops;
  for (const std::int64_t work : {8, 1, 7, 2, 3, 6, 4, 5, 3})
    ops.push_back(made_op(product_cost, work << 30, work << 28));
  const DeviceProfile profile = fit_profile(ops, "d", "made");
  std::string held;
  for (const PredictedOp& point : profile.points)
    if (*point.op.held_out) held += to_string(Flops{point.op.flops.count >> 30}) + " ";
  CHECK(held == "3 3 7 ");
}

TEST_CASE("calibrate: a few points are enough") {
  struct Case {
    std::string name;
    std::vector<std::int64_t> giga;
  };
  const Case cases[] = {{"one", {1}}, {"two", {1, 4}}, {"three", {1, 2, 8}}, {"one shape many times", {3, 3, 3, 3}}};
  for (const Case& c : cases) {
    CAPTURE(c.name);
    std::vector<MeasuredOp> ops;
    for (const std::int64_t giga : c.giga) ops.push_back(made_op(product_cost, giga << 30, 1 << 27));
    const DeviceProfile profile = fit_profile(ops, "d", "made");
    CHECK(profile.costs[0].training_error < 0.01);
    CHECK(profile.costs[0].held_out_points == 0);
    CHECK_FALSE(profile.costs[0].held_out_error.has_value());
  }
}

TEST_CASE("calibrate: bad times are refused") {
  const auto refusal = [](std::vector<MeasuredOp> ops) {
    try {
      fit_profile(std::move(ops), "d", "made");
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal({}) == "error: no op times to fit a profile to");
  MeasuredOp op = made_op(product_cost, 1 << 20, 1 << 20);
  op.held_out = true;
  CHECK(refusal({op}) == "error: every point of 'matmul' is held out; expected one to fit to");
  op.time = Nanos{0};
  CHECK(refusal({op}) == "error: 'matmul'  takes 0 ns; expected 1 to 10^15");
  op = made_op(product_cost, 0, 0);
  CHECK(refusal({op}) == "error: 'matmul'  has neither FLOPs nor bytes");
}

TEST_CASE("calibrate: a profile is read as it was fitted, and a scenario's times come from it") {
  std::vector<MeasuredOp> ops = products(product_cost);
  const KindCost other = {Nanos{10}, {}, {{1024, 1e9}, {1 << 20, 3e9}}};
  for (std::int64_t bytes = 1024; bytes <= 1 << 20; bytes *= 2) ops.push_back(made_op(other, 0, bytes, "relu"));
  ops.back().shape = "a \"quoted\" shape";
  ops.back().median = Nanos{ops.back().time.count * 2};
  const DeviceProfile profile = fit_profile(ops, "my machine", "made");
  const DocPtr document = parse_yaml(write_profile(profile), {"profile.yaml", ""});
  const std::string text = write_profile(profile);
  const Scenario scenario = parse_scenario(
      "profile: reference\nmodel: {family: mlp, layers: 2, rows: 64, width: 32, hidden: 128}\ndevice:\n  " +
          [&] {
            std::string indented;
            for (const char c : text) indented += c == '\n' ? std::string("\n  ") : std::string(1, c);
            return indented;
          }(),
      "s.yaml");
  const Device& device = scenario.device;
  CHECK(device.name == "my machine");
  CHECK(device.calibration.costs == calibration_of(profile).costs);
  CHECK(device.memory_bandwidth == profile.byte_rate);
  const Run result = run(scenario);
  std::int64_t relu = 0, matmul = 0;
  for (std::size_t i = 0; i < result.step.ops.size(); ++i) {
    const StepOp& op = result.step.ops[i];
    const OpSpan& span = result.timeline.ops[i];
    if (op.kind == OpKind::relu && !op.is_backward) {
      ++relu;
      CHECK(span.end - span.start == duration(device.calibration.costs.at("relu"), Flops{0}, Bytes{2 * 4 * 64 * 128}));
    }
    if (op.kind == OpKind::matmul && !op.is_backward) {
      ++matmul;
      CHECK(span.end - span.start == duration(device.calibration.costs.at("matmul"), Flops{op.flops}, op.moved));
    }
    if (op.kind == OpKind::matmul && op.is_backward)  // not measured: the constants
      CHECK(span.end - span.start == duration(device, DType::float32, Flops{op.flops}, op.moved));
  }
  CHECK(relu == 4);    // two layers, forward and rebuilt in backward
  CHECK(matmul == 6);  // fc1, fc2 in forward, fc1 in backward
}

TEST_CASE("op times: given, measured for the kind, or the device's rates") {
  Device device;
  device.flops[static_cast<std::size_t>(DType::float32)] = 1e9;
  device.flops[static_cast<std::size_t>(DType::bfloat16)] = 2e9;
  device.calibration.costs = {{"matmul", {Nanos{1}, {{1, 4e9}}, {}}},
                              {"matmul.backward", {Nanos{2}, {{1, 5e9}}, {}}},
                              {"custom", {Nanos{3}, {{1, 5e9}}, {}}},
                              {"optimizer", {Nanos{4}, {}, {{1, 1e9}}}}};
  const OpTimes times(device);
  StepOp op;
  op.flops = 20'000;
  struct Case {
    std::string name;
    OpKind kind;
    bool is_backward;
    DType dtype;
    std::int64_t expected;
  };
  const Case cases[] = {
      {"forward", OpKind::matmul, false, DType::float32, 5'001},
      {"backward", OpKind::matmul, true, DType::float32, 4'002},
      {"a kind that was not measured", OpKind::bmm, false, DType::float32, 20'000},
      {"a type that was not measured", OpKind::matmul, false, DType::bfloat16, 10'000},
      {"custom ops differ", OpKind::custom, false, DType::float32, 20'000},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    op.kind = c.kind;
    op.is_backward = c.is_backward;
    op.dtype = c.dtype;
    CHECK(times.of(op) == Nanos{c.expected});
  }
  StepOp update;
  update.phase = Phase::optimizer;
  CHECK(times.of(update) == Nanos{0});  // zero_grad moves nothing
  update.moved = Bytes{500};
  CHECK(times.of(update) == Nanos{504});
  op.has_time = true;
  op.time = Nanos{3};
  CHECK(times.of(op) == Nanos{3});
}

TEST_CASE("calibration: what does not fit is refused, with its place") {
  struct Case {
    std::string name, calibration, message;
  };
  const std::string cost = "{kind: matmul, flops: [{at: 2, rate: 1 GFLOP/s}]}";
  const Case cases[] = {
      {"another layout", "{layout: 2, costs: [" + cost + "]}",
       "s.yaml:3:35: error: a calibration of layout 2; this version reads layout 1: run 'tidemark calibrate' again"},
      {"no layout", "{costs: [" + cost + "]}", "s.yaml:3:26: error: missing key 'layout'"},
      {"twice", "{layout: 1, costs: [" + cost + ", " + cost + "]}", "'matmul' forward stands twice"},
      {"points go back", "{layout: 1, costs: [{kind: a, bytes: [{at: 4 B, rate: 1 B/s}, {at: 4 B, rate: 1 B/s}]}]}",
       "'at' must be above 0 and above the point before it"},
      {"a class of nothing", "{layout: 1, costs: [{kind: a, bytes: [{at: 0 B, rate: 1 B/s}]}]}",
       "'at' must be above 0 and above the point before it"},
      {"no speed", "{layout: 1, costs: [{kind: a, flops: [{at: 1, rate: 0 FLOP/s}]}]}", "'rate' must be a rate"},
      {"no points", "{layout: 1, costs: [{kind: a, flops: []}]}", "'flops'"},
      {"unknown key", "{layout: 1, costs: [{kind: a, flop: []}]}", "did you mean 'flops'?"},
      {"a direction", "{layout: 1, costs: [{kind: a, direction: up}]}", "'direction' must be one of"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    std::string said;
    try {
      parse_scenario("model: {family: chain, layers: 1}\ndevice:\n  {name: d, calibration: " + c.calibration + "}",
                     "s.yaml");
    } catch (const InputError& error) {
      said = error.what();
    }
    CAPTURE(said);
    CHECK(said.find(c.message) != std::string::npos);
  }
}
