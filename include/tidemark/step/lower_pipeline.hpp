/// How is one chunk of a pipeline lowered alone, so that weaving can cut it?
#pragma once

#include <cstdint>

#include "tidemark/plan/plan.hpp"
#include "tidemark/program/layer_graph.hpp"
#include "tidemark/program/training.hpp"
#include "tidemark/program/transformer_chunk.hpp"
#include "tidemark/step/step.hpp"
#include "tidemark/step/weave.hpp"

namespace tidemark {

/// Layers [first, first + count) of a chain as a chain of their own, numbered as before. The loss goes with the last.
LayerGraph part_of_chain(const LayerGraph& chain, std::int32_t first, std::int32_t count);

/// A part of a chain under its plan; with `splits`, the backward of the weights behind that of the activations, with
/// its own time and what it still needs. Throws InputError where a plan does not fit.
ChunkStep lower_chunk(const LayerGraph& part, const Plan& plan, int steps, bool splits);

/// A transformer's chunk under its plan. `training.batch.accumulate` is the micro-batches of a step; with `splits`, the
/// gradients of products' weights come behind the rest.
ChunkStep lower_chunk(const TransformerChunk& chunk, const Plan& plan, Training training, bool splits);

}  // namespace tidemark
