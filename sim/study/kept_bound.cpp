#include "tidemark/study/kept_bound.hpp"

#include <algorithm>
#include <vector>

namespace tidemark {
namespace {

struct Item {
  Int128 bytes, flops;
};

Bytes live_after_forward(const Step& step) {
  Bytes live;
  for (const StorageId id : step.initial) live += step.storages[id].bytes;
  for (const Instruction& i : step.instructions) {
    if (i.op != no_id && step.ops[i.op].phase == Phase::backward) break;
    if (i.what == Do::alloc) live += step.storages[i.index].bytes;
    if (i.what == Do::free) live -= step.storages[i.index].bytes;
  }
  return live;
}

}  // namespace

Flops least_recompute(const Step& none, const Outline& outline, Bytes budget) {
  Int128 excess = (live_after_forward(none) - budget).count;
  std::vector<Item> items;
  for (const OutlineLayer& layer : outline.layers)
    for (const OutlineOp& op : layer.ops)
      // What an op makes comes back only by running it again: its outputs, and what it saved beside its inputs.
      if (const Bytes made = op.output_bytes + op.saved_bytes; made.count > 0)
        items.push_back({made.count, op.forward_flops.count});
  std::ranges::stable_sort(items, [](const Item& a, const Item& b) { return a.flops * b.bytes < b.flops * a.bytes; });
  Int128 flops = 0;
  for (const Item& item : items) {
    if (excess <= 0) break;
    flops += item.bytes <= excess ? item.flops : item.flops * excess / item.bytes;
    excess -= item.bytes;
  }
  return Flops{flops};
}

}  // namespace tidemark
