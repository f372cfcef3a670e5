/// How long do the native kernels take on this machine, op by op, where a training step runs them?
#pragma once

#include <functional>
#include <vector>

#include "tidemark/input/calibration_file.hpp"

namespace tidemark::cli {

struct MeasureOptions {
  int rounds = 15;  // turns that each model gets
  int runs = 4;     // of the model in a turn, after one that warms the caches again
  /// Told after each round: rounds done, rounds in all.
  std::function<void(int, int)> progress = {};
};

/// Every op kind of the native steps, forward and backward, as it runs within a step: what an op reads lies where the
/// ops before it left it. Models of many shapes take turns, some of them held out, so that a slow spell of the machine
/// falls on all alike; memory is warm; the time of an op is the low tenth of its runs. Without OpenBLAS in this build:
/// InputError that says what to install.
std::vector<MeasuredOp> measure_ops(const MeasureOptions& options);

}  // namespace tidemark::cli
