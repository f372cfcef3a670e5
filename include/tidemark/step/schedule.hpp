/// In which order do single ops run, and until when is each tensor needed?
///
/// A Plan speaks of layers; a Schedule of ops: every run and every backward of one micro-batch, one after the other,
/// and after which of them each version of a tensor has been read for the last time.
#pragma once

#include <map>
#include <vector>

#include "tidemark/base/vocabulary.hpp"
#include "tidemark/plan/plan.hpp"
#include "tidemark/program/program.hpp"
#include "tidemark/step/kernel.hpp"

namespace tidemark {

struct Turn {
  enum class What : std::uint8_t {
    run,   // the kernel runs
    save,  // early stop: the node saves its inputs, the kernel does not run
    take,  // selective: the outputs come from the region's cache, the node saves
    backward,
    copy,  // while the schedule is made: `op` is an index of Schedule::copies
  } what = What::run;
  OpIndex op = 0;
  Phase phase = Phase::forward;
  bool saves = false;        // run: the node takes hold of what backward needs
  std::int32_t region = -1;  // the checkpointed region the op stands in
  friend bool operator==(const Turn&, const Turn&) = default;
};

/// A checkpointed region as the framework sees it.
struct Region {
  std::vector<OpIndex> ops;        // in forward order
  std::vector<TensorId> inputs;    // made outside, read inside; parameters and batch inputs aside
  std::vector<TensorId> outputs;   // made inside, read outside
  std::int32_t saved_tensors = 0;  // of all its nodes
  bool stops_early = false;        // its recomputation ends by an exception at the last tensor to save
  OpIndex last_recomputed = -1;    // the op at which recomputation ends
  bool selective = false;          // some results are kept: its ops run under a dispatch mode
  friend bool operator==(const Region&, const Region&) = default;
};

/// Between two turns: what some ops hold for backward goes to the host, comes back, or is waited for.
struct CopyTurn {
  Action action = Action::copy_out;
  std::size_t before = 0;        // the turn it stands before
  std::vector<OpIndex> ops;      // ascending
  std::vector<TensorId> values;  // copy_out: tensors by whose name only these ops, run again, will read
};

struct Schedule {
  std::vector<Turn> turns;
  std::vector<CopyTurn> copies;  // in order
  /// By turn: tensors whose current version nobody reads by name after it.
  std::vector<std::vector<TensorId>> last_reads;
  /// By op: dropped by forward and never run again, nor taken. Its node keeps outputs and temporaries; the inputs it
  /// saved are looked up when its backward runs (a selective set recomputed just in time).
  std::vector<bool> cached;
  /// By op: a carried-out region keeps its results instead of running it again.
  std::vector<bool> taken;
  /// By op: saved-tensor hooks copy what its node saves.
  std::vector<bool> offloaded;
  std::vector<Region> regions;
  /// What is filled again, by the last op of the module that makes it, and by that op the module's first.
  struct Refill {
    OpIndex first = 0;
    std::vector<TensorId> tensors;
    friend bool operator==(const Refill&, const Refill&) = default;
  };
  std::map<OpIndex, Refill> refills;
};

/// Throws InputError where the Plan does not fit the Program: a layer out of range, an op without its one backward.
/// `stops_early`: the runtime can end a nonreentrant recomputation early (PyTorch 2).
Schedule schedule(const Program& program, const Plan& plan, const std::vector<Kernel>& kernels, bool stops_early);

}  // namespace tidemark
