/// How long do the native kernels take on this machine, op by op?
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tidemark/input/calibration_file.hpp"

namespace tidemark::cli {

struct MeasureOptions {
  bool quick = false;  // a quarter of the rounds
  /// Told after each round: rounds done, rounds in all.
  std::function<void(int, int)> progress;
};

/// Every op kind of the native steps, forward and backward, over shapes some of which are held out. Candidates take
/// turns, so that a slow spell of the machine falls on all alike; memory is warm; a time is the low tenth of its runs.
/// Without OpenBLAS in this build: InputError that says what to install.
std::vector<MeasuredOp> measure_ops(const MeasureOptions& options);

}  // namespace tidemark::cli
