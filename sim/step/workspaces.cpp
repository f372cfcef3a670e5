#include "tidemark/step/workspaces.hpp"

#include <array>
#include <vector>

namespace tidemark {

void keep_cublas_workspace(Step& step, Bytes bytes) {
  if (bytes == Bytes{}) return;
  // By rank and thread: autograd runs backward, recomputation in it too, on a thread of its own.
  std::vector<std::array<bool, 2>> has_one(static_cast<std::size_t>(step.ranks));
  std::vector<Instruction> out;
  out.reserve(step.instructions.size() + 2 * has_one.size());
  for (const Instruction& at : step.instructions) {
    if (at.what == Do::compute && at.stream == Stream::compute && step.ops[at.index].flops > 0) {
      const StepOp& op = step.ops[at.index];
      const bool in_backward = op.phase == Phase::backward || op.phase == Phase::recompute;
      bool& has = has_one[static_cast<std::size_t>(op.rank)][in_backward ? 1 : 0];
      if (!has) {
        has = true;
        out.push_back({.what = Do::alloc, .op = at.op, .index = static_cast<StorageId>(step.storages.size())});
        step.storages.push_back({.bytes = bytes,
                                 .name = step.names.id(in_backward ? "cublas.backward_workspace" : "cublas.workspace"),
                                 .category = Category::workspace,
                                 .outlives_step = true,
                                 .rank = op.rank});
      }
    }
    out.push_back(at);
  }
  step.instructions = std::move(out);
}

}  // namespace tidemark
