/// How does PyTorch's memory viewer (pytorch.org/memory_viz) see the step?
#pragma once

#include "tidemark/engine/timeline.hpp"
#include "tidemark/report/csv.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// What torch.cuda.memory._snapshot() returns, as a pickle of protocol 2; a device is a rank. Sizes are requested
/// bytes. What is alive at the start has no alloc entry, as if it were older than the recording. Frames, innermost
/// first: tensor and category, op, each module on the way to its layer, phase, training step. Addresses are those of
/// one best-fit arena a device: they tell tensors apart and overlap nowhere, and say nothing about fragmentation.
void write_snapshot(const Step& step, const Timeline& timeline, const TextSink& sink);

}  // namespace tidemark
