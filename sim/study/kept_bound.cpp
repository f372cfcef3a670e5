#include "tidemark/study/kept_bound.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "tidemark/step/layer_counts.hpp"
#include "tidemark/step/op_times.hpp"

namespace tidemark {
namespace {

/// What one op made that is alive at the moment and needed after it; what the op takes.
struct Item {
  Int128 bytes, time, flops;
};

/// The fewest items that make up the excess.
std::int64_t fewest(std::vector<Item>& items, Int128 excess) {
  std::ranges::stable_sort(items, std::greater<>(), &Item::bytes);
  std::int64_t count = 0;
  for (const Item& item : items) {
    if (excess <= 0) break;
    excess -= item.bytes;
    ++count;
  }
  return count;
}

/// No items that make up the excess cost less: the cheapest a byte, the last one in part, rounded up since prices are
/// whole; or the cheapest, as many as it takes at least.
Int128 least_price(std::vector<Item>& items, Int128 excess, Int128 Item::*price) {
  const std::int64_t count = fewest(items, excess);
  std::ranges::stable_sort(items,
                           [&](const Item& a, const Item& b) { return a.*price * b.bytes < b.*price * a.bytes; });
  Int128 by_bytes = 0;
  for (const Item& item : items) {
    if (excess <= 0) break;
    by_bytes += item.bytes <= excess ? item.*price : (item.*price * excess + item.bytes - 1) / item.bytes;
    excess -= item.bytes;
  }
  std::ranges::stable_sort(items, std::less<>(), price);
  Int128 by_count = 0;
  for (std::int64_t i = 0; i < count; ++i) by_count += items[static_cast<std::size_t>(i)].*price;
  return std::max(by_bytes, by_count);
}

class Moments {
 public:
  Moments(const Step& none, const LayerGraph* layers, const Device& device)
      : step_(none),
        layers_(layers),
        times_(device),
        made_by_(none.storages.size(), no_id),
        last_read_(none.storages.size(), no_id) {
    for (const Instruction& i : none.instructions) {
      if (i.what == Do::alloc) made_by_[i.index] = i.op;
      if (i.what != Do::compute) continue;
      const StepOp& op = none.ops[i.index];
      for (std::uint32_t r = op.read_begin; r < op.read_end; ++r) last_read_[none.reads[r]] = i.index;
    }
  }

  LeastWork run(Bytes budget) {
    struct Moment {
      OpId op = no_id;
      Bytes needed;
    };
    std::map<std::tuple<std::int16_t, std::int32_t, std::int32_t>, Moment> worst;  // of step, micro-batch and layer
    walk([&](OpId id, Bytes needed) {
      const StepOp& op = step_.ops[id];
      if (needed <= budget || (op.phase != Phase::backward && op.phase != Phase::loss)) return;
      Moment& moment = worst[{op.step, op.micro_batch, op.layer}];
      if (needed > moment.needed) moment = {id, needed};
    });
    std::vector<bool> is_tried(step_.ops.size(), false);
    for (const auto& [place, moment] : worst) is_tried[moment.op] = true;
    std::map<std::pair<std::int16_t, std::int32_t>, LeastWork> best;  // of step and micro-batch
    walk([&](OpId id, Bytes needed) {
      if (!is_tried[id]) return;
      LeastWork& of = best[{step_.ops[id].step, step_.ops[id].micro_batch}];
      const LeastWork here = again_after(id, needed - budget);
      of = {std::max(of.time, here.time), std::max(of.recompute, here.recompute),
            std::max(of.recomputes, here.recomputes)};
    });
    LeastWork out;
    for (const auto& [place, of] : best)
      out = {out.time + of.time, out.recompute + of.recompute, out.recomputes + of.recomputes};
    return out;
  }

 private:
  /// Calls `at` at each op's kernel, with the bytes that are alive then and needed there or later.
  template <class At>
  void walk(const At& at) {
    needed_.clear();
    Bytes bytes;
    const auto drop = [&](StorageId id) {
      if (needed_.erase(id) > 0) bytes -= step_.storages[id].bytes;
    };
    for (const StorageId id : step_.initial) {
      needed_.insert(id);
      bytes += step_.storages[id].bytes;
    }
    for (const Instruction& i : step_.instructions) {
      if (i.what == Do::alloc && last_read_[i.index] != no_id && needed_.insert(i.index).second)
        bytes += step_.storages[i.index].bytes;
      if (i.what == Do::free) drop(i.index);
      if (i.what != Do::compute) continue;
      at(i.index, bytes);
      const StepOp& op = step_.ops[i.index];
      for (std::uint32_t r = op.read_begin; r < op.read_end; ++r)
        if (const StorageId id = step_.reads[r]; last_read_[id] == i.index && made_by_[id] != no_id) drop(id);
    }
  }

  /// What forward ops of the moment's micro-batch made may go, and is made again. What other micro-batches and the loss
  /// made counts as if it were not there.
  LeastWork again_after(OpId at, Bytes more) const {
    const StepOp& op = step_.ops[at];
    Int128 excess = more.count;
    std::map<OpId, Item> by_maker;
    for (const StorageId id : needed_) {
      if (made_by_[id] == no_id || last_read_[id] == at) continue;
      const StepOp& maker = step_.ops[made_by_[id]];
      const Bytes bytes = step_.storages[id].bytes;
      if (maker.phase == Phase::forward && maker.step == op.step && maker.micro_batch == op.micro_batch)
        by_maker[made_by_[id]].bytes += bytes.count;
      else if (maker.phase == Phase::forward || maker.phase == Phase::loss)
        excess -= bytes.count;
    }
    std::vector<Item> items;
    for (const auto& [maker, item] : by_maker) {
      if (item.bytes == 0) continue;
      const LayerWork work = work_of(step_.ops[maker]);
      items.push_back({item.bytes, work.time.count, work.flops.count});
    }
    return {Nanos{static_cast<std::int64_t>(least_price(items, excess, &Item::time))},
            Flops{least_price(items, excess, &Item::flops)}, fewest(items, excess)};
  }

  LayerWork work_of(const StepOp& maker) const {
    if (layers_ != nullptr) {
      const LayerCost& layer = layers_->layers[static_cast<std::size_t>(maker.layer)];
      if (layer.attention_flops.count > 0) return forward_work(layer, LayerPart::rest);
    }
    return {Flops{maker.flops}, maker.stream == Stream::compute ? times_.of(maker) : Nanos{}};
  }

  const Step& step_;
  const LayerGraph* layers_;
  OpTimes times_;
  std::vector<OpId> made_by_;    // by storage; no_id: there from the start
  std::vector<OpId> last_read_;  // by storage; no_id: nothing reads it
  std::set<StorageId> needed_;   // at the place of the walk
};

}  // namespace

LeastWork least_work(const Step& none, const LayerGraph* layers, const Device& device, Bytes budget, bool copies) {
  LeastWork out;
  if (!copies) out = Moments(none, layers, device).run(budget);
  const OpTimes times(device);
  for (const StepOp& op : none.ops)
    if (op.stream == Stream::compute) out.time += times.of(op);
  return out;
}

}  // namespace tidemark
