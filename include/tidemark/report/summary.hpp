/// What does a timeline tell the engineer: how high, when, whose, at what cost?
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/base/vocabulary.hpp"
#include "tidemark/engine/timeline.hpp"
#include "tidemark/program/training.hpp"
#include "tidemark/report/allocator_findings.hpp"
#include "tidemark/report/collectives.hpp"
#include "tidemark/report/moment.hpp"
#include "tidemark/report/offload.hpp"
#include "tidemark/report/peak.hpp"
#include "tidemark/report/stages.hpp"
#include "tidemark/report/textbook.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

using ByCategory = std::array<Bytes, category_names.size()>;
using ByPhase = std::array<std::optional<Bytes>, phase_names.size()>;

/// What the scenario knows, and Step and Timeline do not.
struct ScenarioFacts {
  std::string name;
  Profile profile;
  std::string device;                       // its name; "" without one
  std::optional<Bytes> usable;              // bytes the device leaves to the framework, non-torch bytes taken off
  Bytes non_torch;                          // bytes outside the framework
  double flops_per_second = 0;              // of the device in the compute data type; 0 is not known
  std::optional<Bytes> budget;              // in place of `usable`; non-torch bytes are taken off here too
  AllocatorFindings allocator;              // its kind is "" without a model
  std::string policy;                       // what runs again, in a sentence; "" when nothing does
  std::optional<Bytes> no_checkpoint_peak;  // of the same scenario under policy none
  std::optional<WithoutCopies> without_copies;
  std::optional<Textbook> textbook;         // a policy of equal layers in segments of K
  std::optional<PipelineFigures> pipeline;  // of all its stages
  std::vector<std::string> warnings;        // the plan's
  std::size_t top = 10;                     // how many tensors to list
};

struct PeakTensor {
  std::string tensor;
  std::string op;     // that made it; "" when alive from the start
  std::string layer;  // "" without one
  Category category = Category::activation;
  Bytes bytes;
  Nanos birth;
  std::optional<Nanos> death;  // none: never freed
  Bytes drop;                  // by how much the peak of the whole run falls without it
  std::string held_by;
  friend bool operator==(const PeakTensor&, const PeakTensor&) = default;
};

/// The request that the device could not serve.
struct OutOfMemoryFigures {
  Moment moment;  // `bytes`: live, without the request
  std::string tensor;
  Bytes requested;
  AllocatorFigures allocator;
  std::optional<Shortage> shortage;
  friend bool operator==(const OutOfMemoryFigures&, const OutOfMemoryFigures&) = default;
};

/// Loss counts as forward. What an optimizer computes is in `total` only.
struct FlopFigures {
  Flops forward, recompute, backward, total;
  friend bool operator==(const FlopFigures&, const FlopFigures&) = default;
};

/// A step goes from the last compute op of the one before to its own last compute op, the last step to the end of
/// all. Busy time of the compute stream by phase; `exposed` is the rest: it waits for copies or communication.
struct TimeFigures {
  Nanos step, forward, recompute, backward, optimizer, exposed;
  friend bool operator==(const TimeFigures&, const TimeFigures&) = default;
};

struct StepFigures {
  Moment peak;
  ByCategory at_peak{};
  ByPhase phase_peaks;               // initial: the level the step starts from
  std::optional<Bytes> forward_end;  // after the step's last forward op, the loss not counted as one
  Bytes end;
  FlopFigures flops;  // matrix products
  FlopFigures other_flops;
  std::optional<Flops> model_flops;
  std::optional<double> recompute_overhead;  // total over total without recompute, minus 1
  TimeFigures time;
  std::optional<double> mfu, hfu;  // model FLOPs and executed FLOPs over what the device could do in the step's time
};

struct Summary {
  std::string scenario;
  Profile profile;
  std::optional<std::int64_t> parameters;
  std::vector<StepFigures> steps;  // at least one
  std::size_t peak_step = 0;       // the first step that reaches the highest peak
  std::vector<PeakTensor> peak_tensors;
  std::size_t tensors_at_peak = 0;
  std::string policy;  // "" when nothing runs again
  RecomputeAtPeak recompute;
  std::optional<Bytes> no_checkpoint_peak;
  std::optional<TextbookComparison> textbook;
  std::optional<Bytes> allocated_peak, reserved_peak;
  std::string limit_name;         // "the budget", or the device's name
  std::optional<Bytes> limit;     // of the framework: what is outside it is taken off
  Bytes non_torch;                // that
  std::optional<std::string> by;  // "reserved" where an allocator ran, else "live": what was held against the limit
  std::optional<bool> fits;       // false when out of memory, even without a limit
  std::optional<Bytes> margin;    // of the limit; out of memory: what is missing, below 0
  AllocatorFindings allocator;    // its kind is "" when only live bytes ran
  std::optional<OutOfMemoryFigures> out_of_memory;
  std::optional<PipelineFigures> pipeline;
  OffloadFigures offload;  // nothing copied: all 0
  CollectiveFigures collectives;
  std::size_t events = 0;
  std::size_t ops = 0;
  std::vector<std::string> warnings;

  const StepFigures& last() const { return steps.back(); }
  const StepFigures& peak() const { return steps[peak_step]; }
};

/// FLOPs of the model and rates of one step, from its FLOPs and time; 0 FLOP/s is not known.
void add_rates(StepFigures& figures, Flops model, double flops_per_second);
/// Whether so many bytes fit the budget, or the device.
void judge_fit(const ScenarioFacts& facts, Bytes needed, Summary& summary);

/// Linear in events, reads and ops. Of several ranks, the one that reaches the peak.
Summary summarize(const Step& step, const Timeline& timeline, const ScenarioFacts& facts);

}  // namespace tidemark
