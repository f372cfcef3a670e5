/// How do the chunks of a pipeline, each lowered alone, become one Step of all ranks?
///
/// A chunk's Step is cut into the forward and the backward of a micro-batch. Weaving copies those pieces in the order
/// of a schedule: what a micro-batch makes and frees is its own, what outlives it (gradients of parameters, optimizer
/// state) is shared. Between chunks stand sends, on the comm stream, and receives, whose buffers are there from when
/// the host posts them.
#pragma once

#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/plan/pipeline_schedule.hpp"
#include "tidemark/step/chunk.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

struct Transfers {
  Nanos time;                 // of each
  double bandwidth = 0;       // B/s; 0 is not given
  bool free_outputs = false;  // Megatron's deallocate_pipeline_outputs
  friend bool operator==(const Transfers&, const Transfers&) = default;
};

/// `schedule` must be checked. Throws InputError where micro-batches run backward in another order than forward and the
/// first differs from the others.
Step weave(const std::vector<ChunkStep>& chunks, const PipelineSchedule& schedule, const Transfers& transfers);

}  // namespace tidemark
