/// How do ops begin that no op of the program stands for: collectives, updates, buffers of a framework?
#pragma once

#include <cstdint>

#include "tidemark/step/step.hpp"

namespace tidemark {

inline StepOp issued_op(int step, Phase phase, Stream stream = Stream::compute, std::int32_t micro_batch = 0) {
  StepOp op;
  op.phase = phase;
  op.stream = stream;
  op.step = static_cast<std::int16_t>(step);
  op.micro_batch = micro_batch;
  return op;
}

/// Ranks exchange; `moved` bytes pass this rank's link.
inline StepOp collective_op(int step, Bytes moved) {
  StepOp op = issued_op(step, Phase::communication);
  op.kind = OpKind::collective;
  op.moved = moved;
  return op;
}

/// Of so many bytes a ring passes all but a rank's own part.
inline std::int64_t passed_in_ring(std::int64_t bytes, std::int64_t ranks) { return bytes - bytes / ranks; }

}  // namespace tidemark
