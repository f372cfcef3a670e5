#include "tidemark/step/workspaces.hpp"

#include <vector>

namespace tidemark {

void keep_cublas_workspace(Step& step, Bytes bytes) {
  if (bytes == Bytes{}) return;
  std::vector<bool> has_one(static_cast<std::size_t>(step.ranks));
  std::vector<Instruction> out;
  out.reserve(step.instructions.size() + has_one.size());
  for (const Instruction& at : step.instructions) {
    if (at.what == Do::compute && at.stream == Stream::compute && step.ops[at.index].flops > 0) {
      const StepOp& op = step.ops[at.index];
      if (const auto rank = static_cast<std::size_t>(op.rank); !has_one[rank]) {
        has_one[rank] = true;
        out.push_back({.what = Do::alloc, .op = at.op, .index = static_cast<StorageId>(step.storages.size())});
        step.storages.push_back({.bytes = bytes,
                                 .name = step.names.id("cublas.workspace"),
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
