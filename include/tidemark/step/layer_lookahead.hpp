/// Will this layer read that value again before the value is made anew?
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tidemark/plan/plan.hpp"
#include "tidemark/step/layer_counts.hpp"

namespace tidemark {

/// Where in a Plan each value is made and each layer runs.
class LayerLookahead {
 public:
  LayerLookahead(const LayerGraph& graph, const Plan& plan, const LayerCounts& counts);

  /// A step of `layer` after position `now` reads `value` as it is now: no step between makes the value again.
  bool reads_again(std::int32_t layer, std::int32_t value, std::size_t now) const;
  /// The loss stands after `now`, and `value` is not made again before it.
  bool loss_reads(std::int32_t value, std::size_t now) const;
  /// A drop of the layer that makes `value` stands after `now`, and before `value` is made again.
  bool drops(std::int32_t value, std::size_t now) const;
  /// The layer runs again, saving what it saves, before its backward.
  bool saved_again(std::int32_t layer, std::size_t now) const;

 private:
  std::size_t next_made(std::int32_t value, std::size_t now) const;
  std::vector<std::vector<std::size_t>> made_;   // by value: positions that make it; the model's input never
  std::vector<std::vector<std::size_t>> runs_;   // by layer: forward, recompute and backward positions
  std::vector<std::vector<std::size_t>> drops_;  // by layer
  std::vector<std::size_t> losses_;
};

}  // namespace tidemark
