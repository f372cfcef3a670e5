#include "calibrate_measure.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "calibrate_models.hpp"
#include "kernels.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/study/pipeline.hpp"

namespace tidemark::cli {
namespace {

/// One model with what its ops took.
struct Candidate {
  CalibrationModel model;
  Step step;                                     // the same ops, with their kinds and work
  std::size_t first = 0;                         // op of the last step
  std::vector<std::vector<std::int64_t>> times;  // of the ops from there on, by run
};

Candidate prepared(CalibrationModel model) {
  Step step = run(parse_scenario(model.scenario, model.name)).step;
  const auto in_last = [&](const StepOp& op) { return op.step + 1 == step.steps; };
  const auto first = static_cast<std::size_t>(std::ranges::find_if(step.ops, in_last) - step.ops.begin());
  std::vector<std::vector<std::int64_t>> times(step.ops.size() - first);
  return {std::move(model), std::move(step), first, std::move(times)};
}

void run_once(native::Machine& machine, const Candidate& candidate) {
  machine.record.clear();
  machine.record.start_clock();
  candidate.model.train(machine);
}

/// Kinds and work are the simulated ops', times the native ones': they must be the same ops.
void check_same(const std::vector<native::OpRecord>& ops, const Candidate& candidate) {
  const Step& step = candidate.step;
  const bool same = std::ranges::equal(ops, step.ops, [&](const native::OpRecord& native, const StepOp& simulated) {
    return native.name.text() == step.names[simulated.name] && native.flops == simulated.flops;
  });
  if (!same) throw InternalError("the native step and the simulated one differ: " + candidate.model.name);
}

/// An op lasts until the next one starts: what the program does between two kernels is part of what the first one
/// costs.
void add_times(const std::vector<native::OpRecord>& ops, Candidate& candidate) {
  for (std::size_t i = candidate.first; i < ops.size(); ++i)
    candidate.times[i - candidate.first].push_back((i + 1 == ops.size() ? ops[i].end_ns : ops[i + 1].start_ns) -
                                                   ops[i].start_ns);
}

std::int64_t quantile(std::vector<std::int64_t>& times, double part) {
  const auto at = times.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(times.size() - 1));
  std::ranges::nth_element(times, at);
  return *at;
}

/// Ops of one part of all layers are one, whose time is the mean: "layers.3.mlp_norm" is "mlp_norm".
std::string part(const std::string& name) {
  constexpr std::string_view prefix = "layers.";
  return name.starts_with(prefix) ? name.substr(name.find('.', prefix.size()) + 1) : name;
}

/// The ops of the last step.
std::vector<MeasuredOp> measured(Candidate& candidate) {
  constexpr double low = 0.1, middle = 0.5;
  struct Sum {
    MeasuredOp op;
    std::int64_t time = 0, median = 0, ops = 0;
  };
  std::map<std::tuple<std::string, bool, std::string>, Sum> sums;
  const Step& step = candidate.step;
  for (std::size_t i = 0; i < candidate.times.size(); ++i) {
    const StepOp& op = step.ops[candidate.first + i];
    if (op.flops == 0 && op.moved.count == 0) continue;  // nothing that could be fitted to
    const std::string kind = op.phase == Phase::optimizer ? "optimizer" : std::string(to_string(op.kind));
    Sum& sum = sums[{kind, op.is_backward, part(step.names[op.name])}];
    sum.op = {.kind = kind,
              .is_backward = op.is_backward,
              .shape = candidate.model.name,
              .flops = Flops{op.flops},
              .moved = op.moved,
              .held_out = candidate.model.held_out};
    sum.time += quantile(candidate.times[i], low);
    sum.median += quantile(candidate.times[i], middle);
    ++sum.ops;
  }
  std::vector<MeasuredOp> out;
  for (auto& [key, sum] : sums) {
    sum.op.time = Nanos{std::max<std::int64_t>(1, sum.time / sum.ops)};
    sum.op.median = Nanos{std::max<std::int64_t>(1, sum.median / sum.ops)};
    out.push_back(std::move(sum.op));
  }
  return out;
}

}  // namespace

std::vector<MeasuredOp> measure_ops(const MeasureOptions& options) {
  native::kernels::set_threads(1);
  native::Machine machine;
  std::vector<Candidate> candidates;
  for (CalibrationModel& model : calibration_models()) candidates.push_back(prepared(std::move(model)));
  for (const Candidate& candidate : candidates) {  // the arena is warm from here on
    run_once(machine, candidate);
    check_same(machine.record.ops(), candidate);
  }
  for (int round = 1; round <= options.rounds; ++round) {
    for (Candidate& candidate : candidates) {
      run_once(machine, candidate);  // finds the caches as another model has left them
      for (int i = 0; i < options.runs; ++i) {
        run_once(machine, candidate);
        add_times(machine.record.ops(), candidate);
      }
    }
    if (options.progress) options.progress(round, options.rounds);
  }
  std::vector<MeasuredOp> out;
  for (Candidate& candidate : candidates)
    for (MeasuredOp& op : measured(candidate)) out.push_back(std::move(op));
  return out;
}

}  // namespace tidemark::cli
