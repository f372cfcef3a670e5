#include "tidemark/study/chain_costs.hpp"

#include <algorithm>

#include "tidemark/base/errors.hpp"

namespace tidemark {

ChainCosts chain_costs(const LayerGraph& graph) {
  if (!graph.is_chain) throw InputError("this planner needs a chain; the model is a graph");
  const bool timed = std::ranges::any_of(graph.layers, [](const LayerCost& layer) {
    return layer.forward_time.count > 0 || layer.backward_time.count > 0;
  });
  constexpr Int128 limit = Int128{1} << 62;
  Flops total;
  for (const LayerCost& layer : graph.layers) total += layer.forward_flops + layer.backward_flops;
  if (!timed && total.count >= limit) throw InputError("the chain's FLOPs pass 2^62: give times, or a larger unit");
  ChainCosts out;
  out.boundary.push_back(graph.input.count);
  out.saved.push_back(0);
  for (const LayerCost& layer : graph.layers) {
    out.forward_time.push_back(timed ? layer.forward_time.count : static_cast<std::int64_t>(layer.forward_flops.count));
    out.backward_time.push_back(timed ? layer.backward_time.count
                                      : static_cast<std::int64_t>(layer.backward_flops.count));
    out.boundary.push_back(layer.output.count);
    out.saved.push_back(layer.layer_activation.count);
    out.forward_workspace.push_back(layer.forward_workspace.count);
    out.backward_workspace.push_back(layer.backward_workspace.count);
  }
  out.backward_time.push_back(timed ? graph.loss_time.count : 0);
  out.backward_workspace.push_back(graph.loss_workspace.count);
  return out;
}

std::int64_t total_time(const ChainCosts& costs) {
  std::int64_t sum = 0;
  for (const auto* times : {&costs.forward_time, &costs.backward_time})
    for (const std::int64_t time : *times) sum += time;
  return sum;
}

SlottedChain in_slots(const ChainCosts& costs, std::int64_t limit, std::int64_t slots) {
  SlottedChain out{costs, limit, 1};
  if (limit <= slots) return out;
  out.slot = (limit + slots - 1) / slots;
  out.limit = limit / out.slot;
  for (auto* sizes :
       {&out.costs.boundary, &out.costs.saved, &out.costs.forward_workspace, &out.costs.backward_workspace})
    for (std::int64_t& size : *sizes) size = (size + out.slot - 1) / out.slot;
  return out;
}

}  // namespace tidemark
