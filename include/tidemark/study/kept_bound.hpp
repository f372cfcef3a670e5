/// How much must run again when not everything that is needed at one moment fits?
#pragma once

#include <cstdint>

#include "tidemark/base/device.hpp"
#include "tidemark/program/layer_graph.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// What no plan goes below that copies nothing to the host, of all steps.
struct LeastWork {
  Nanos time;                   // of the compute stream: every op once, and what must run again
  Flops recompute;              // of what must run again
  std::int64_t recomputes = 0;  // its ops
  friend bool operator==(const LeastWork&, const LeastWork&) = default;
};

/// When an op runs backward, all that it or a later op reads must be there, or be made again after it. What is alive
/// then in `none`, the step without recomputation, and passes the budget is made again: by the ops that made it, at the
/// least price a byte, the last one in part. The best moment of each layer in each micro-batch is tried; micro-batches
/// add up. `layers`: of a layer graph, whose layers may make their bytes without their attention; null for models of
/// ops. `copies`: storages may go to the host and come back, so that nothing need run again.
LeastWork least_work(const Step& none, const LayerGraph* layers, const Device& device, Bytes budget, bool copies);

}  // namespace tidemark
