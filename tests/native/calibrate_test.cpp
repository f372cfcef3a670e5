// Does calibrate measure every op that the native steps run, and hold out shapes that it never fits to?
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "calibrate_measure.hpp"
#include "calibrate_models.hpp"
#include "kernels.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;

namespace {

using Kind = std::pair<std::string, bool>;  // and is_backward

/// The kinds of a scenario's ops that take time.
std::set<Kind> kinds_of(const std::string& scenario) {
  std::set<Kind> kinds;
  for (const StepOp& op : run(parse_scenario(scenario, "case")).step.ops)
    if (op.flops > 0 || op.moved.count > 0)
      kinds.emplace(op.phase == Phase::optimizer ? "optimizer" : std::string(to_string(op.kind)), op.is_backward);
  return kinds;
}

}  // namespace

TEST_CASE("calibrate: every op kind that the native steps run is measured, forward and backward apart") {
  native::kernels::set_threads(1);
  const std::vector<MeasuredOp> ops = cli::measure_ops({.rounds = 1, .runs = 1});
  std::set<Kind> training, held_out;
  for (const MeasuredOp& op : ops) {
    CAPTURE(op.kind);
    CHECK(op.time.count > 0);
    CHECK(op.median.value() >= op.time);
    (op.held_out.value() ? held_out : training).emplace(op.kind, op.is_backward);
  }
  CHECK(training == held_out);
  const std::string policies[] = {"none", "{kind: interval, interval: 2}"};
  for (const std::string& policy : policies) {
    const std::string tail = "profile: reference\npolicy: " + policy + "\nsteps: 2\n";
    for (const std::string& model :
         {std::string("model: {family: mlp, layers: 3, rows: 2, width: 3, hidden: 4}\n"),
          std::string("model: {family: transformer, model_type: gpt2, attention: eager, dropout: 0, layers: 3, hidden: "
                      "8, heads: 2, ffn_hidden: 12, vocab: 9, max_positions: 5}\nbatch: {size: 2, sequence: 4}\n"
                      "optimizer: adamw\n")})
      for (const Kind& kind : kinds_of(model + tail)) {
        CAPTURE(kind.first);
        CAPTURE(kind.second);
        CHECK(training.contains(kind));
      }
  }
}

TEST_CASE("calibrate: held-out shapes are no training shapes") {
  // Work that two models share by chance is no shape: kind, direction, FLOPs and bytes of products say m, n and k.
  std::set<std::pair<std::int64_t, std::int64_t>> training, held_out;
  for (const cli::CalibrationModel& model : cli::calibration_models())
    for (const StepOp& op : run(parse_scenario(model.scenario, model.name)).step.ops)
      if (op.flops > 0) (model.held_out ? held_out : training).emplace(op.flops, op.moved.count);
  CHECK(training.size() > 50);
  CHECK(held_out.size() > 20);
  CHECK(std::ranges::none_of(held_out, [&](const auto& work) { return training.contains(work); }));
}
