/// In which order do single ops run, and until when is each tensor needed?
///
/// A Plan speaks of layers; a Schedule of ops: every run and every backward of one micro-batch, one after the other,
/// and after which of them each version of a tensor has been read for the last time.
#pragma once

#include <vector>

#include "tidemark/base/vocabulary.hpp"
#include "tidemark/plan/plan.hpp"
#include "tidemark/program/program.hpp"
#include "tidemark/step/kernel.hpp"

namespace tidemark {

struct Turn {
  enum class What : std::uint8_t { run, backward } what = What::run;
  OpIndex op = 0;
  Phase phase = Phase::forward;
  bool saves = false;  // run: the node takes hold of what backward needs
  friend bool operator==(const Turn&, const Turn&) = default;
};

struct Schedule {
  std::vector<Turn> turns;
  /// By turn: tensors whose current version nobody reads by name after it.
  std::vector<std::vector<TensorId>> last_reads;
  /// By op: dropped by forward and never run again. Its node keeps outputs and temporaries; the inputs it saved are
  /// taken from the recomputation (torch's selective checkpointing keeps a matmul's result, not its operands).
  std::vector<bool> cached;
};

/// Throws InputError where the Plan does not fit the Program: a layer out of range, an op without its one backward.
Schedule schedule(const Program& program, const Plan& plan, const std::vector<Kernel>& kernels);

}  // namespace tidemark
