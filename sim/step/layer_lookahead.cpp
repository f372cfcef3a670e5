#include "tidemark/step/layer_lookahead.hpp"

#include <algorithm>

namespace tidemark {
namespace {

constexpr std::size_t never = static_cast<std::size_t>(-1);

std::size_t next_after(const std::vector<std::size_t>& positions, std::size_t now) {
  const auto found = std::upper_bound(positions.begin(), positions.end(), now);
  return found == positions.end() ? never : *found;
}

}  // namespace

LayerLookahead::LayerLookahead(const LayerGraph& graph, const Plan& plan, const LayerCounts& counts)
    : made_(counts.plain.size()), runs_(counts.inputs.size()), drops_(counts.inputs.size()) {
  for (std::size_t p = 0; p < plan.steps.size(); ++p) {
    const PlanStep& step = plan.steps[p];
    const bool runs_forward = step.action == Action::forward || step.action == Action::recompute;
    if (step.action == Action::loss) losses_.push_back(p);
    if (!runs_forward && step.action != Action::backward && step.action != Action::drop) continue;
    const auto layer = static_cast<std::size_t>(step.layer);
    if (layer >= runs_.size()) continue;  // the walk refuses it, with its place
    if (step.action == Action::drop) {
      drops_[layer].push_back(p);
      continue;
    }
    runs_[layer].push_back(p);
    if (runs_forward && part_of(graph.layers[layer], step.ops) != LayerPart::attention) made_[layer + 1].push_back(p);
  }
}

std::size_t LayerLookahead::next_made(std::int32_t value, std::size_t now) const {
  return next_after(made_[static_cast<std::size_t>(value)], now);
}

bool LayerLookahead::reads_again(std::int32_t layer, std::int32_t value, std::size_t now) const {
  const std::size_t run = next_after(runs_[static_cast<std::size_t>(layer)], now);
  return run != never && run < next_made(value, now);
}

bool LayerLookahead::loss_reads(std::int32_t value, std::size_t now) const {
  const std::size_t loss = next_after(losses_, now);
  return loss != never && loss < next_made(value, now);
}

bool LayerLookahead::drops(std::int32_t value, std::size_t now) const {
  if (value == 0) return false;
  const std::size_t drop = next_after(drops_[static_cast<std::size_t>(value) - 1], now);
  return drop != never && drop < next_made(value, now);
}

bool LayerLookahead::saved_again(std::int32_t layer, std::size_t now) const {
  return next_made(layer + 1, now) != never;
}

}  // namespace tidemark
