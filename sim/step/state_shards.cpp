#include "tidemark/step/state_shards.hpp"

#include <algorithm>
#include <numeric>

namespace tidemark {
std::int64_t state_ranks(const Shards& shards) { return std::int64_t{shards.data} * shards.context; }

bool is_shared_out(std::string_view name, const Shards& shards) {
  return shards.expert > 1 && name.find(".experts.") != std::string_view::npos;
}

FlatParameters flat_parameters(const std::vector<std::int64_t>& sizes, const Shards& shards, std::int64_t ranks) {
  const bool megatron = shards.distributed_optimizer;
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (megatron) std::ranges::reverse(order);
  std::vector<std::int64_t> starts(sizes.size());
  FlatParameters out;
  for (const std::size_t i : order) {
    starts[i] = megatron ? round_up(out.elements, 64) : out.elements;
    out.elements = starts[i] + sizes[i];
  }
  out.elements = round_up(out.elements, megatron ? std::lcm(ranks, std::int64_t{128}) : 2 * ranks);
  out.padding = out.elements - std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  const std::int64_t part = out.elements / ranks;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    out.owned.push_back(std::clamp<std::int64_t>(part - starts[i], 0, sizes[i]));
  return out;
}

}  // namespace tidemark
