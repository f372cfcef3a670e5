/// What does a chunk of a pipeline look like, lowered alone?
#pragma once

#include <string>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// One chunk of the model, lowered as if it were all. What crosses its ends is found by name; "" is not there.
struct ChunkStep {
  Step step;           // of `pieces` micro-batches a step: the first, and one that stands for the others
  int pieces = 1;      // 1 or 2
  std::string input;   // read by the first layer: received, or the batch
  std::string output;  // of the last layer: sent; may be freed once it has gone
  std::string input_gradient;
  std::string output_gradient;      // given from outside; "" where the loss makes it
  Bytes input_bytes, output_bytes;  // of a transfer
  Bytes shared_bytes;               // of `shared_gradient`
  std::string shared_gradient;      // of a table that the first and the last chunk both have; "" without one
  bool loss_runs_backward = false;  // a chain's loss makes the gradient; a program's is a part of its forward
  /// By step and micro-batch (of the pieces): from this op on its backward is of weights; empty: not split.
  std::vector<OpId> weights_begin = {};
};

/// Do some of their copies to the host run beside what they compute?
bool has_copies(const std::vector<ChunkStep>& chunks);

}  // namespace tidemark
