/// What does one chunk of a pipeline compute, of a transformer cut into several?
#pragma once

#include <cstdint>

#include "tidemark/program/program.hpp"
#include "tidemark/program/training.hpp"
#include "tidemark/program/transformer.hpp"

namespace tidemark {

/// Blocks [first, first + count). The embedding goes with block 0, the head and the loss with the last, where no chunk
/// without blocks has them.
struct BlockRange {
  std::int64_t first = 0, count = 0;
  bool embedding_before = false, head_behind = false;  // in a chunk of their own
  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};

/// A chunk's program. One that does not start the model reads `input`, which requires a gradient; one that does not end
/// it has its last block's output as `loss`, and `loss_gradient`.
struct TransformerChunk {
  Program program;
  TensorId input = -1;
  TensorId shared_table = -1;  // of the embedding, of which another chunk's tied head has a copy; or that copy
};

/// A tied head on another chunk than the embedding has a table of its own, as in Megatron-LM. Model FLOPs are the
/// chunk's share, by blocks. Throws InputError as `make_transformer` does.
TransformerChunk make_transformer_chunk(const TransformerSpec& spec, const Training& training, const BlockRange& range);

}  // namespace tidemark
