#include "tidemark/engine/lifetime.hpp"

#include <algorithm>

#include "tidemark/base/errors.hpp"

namespace tidemark {

std::vector<LifetimeEdge> edges_of(std::span<const Lifetime> lifetimes) {
  std::vector<LifetimeEdge> edges;
  edges.reserve(2 * lifetimes.size());
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    check(lifetimes[i].size > Bytes{} && lifetimes[i].lower < lifetimes[i].upper, "a lifetime has a size and a length");
    edges.push_back({lifetimes[i].lower, true, i});
    edges.push_back({lifetimes[i].upper, false, i});
  }
  std::ranges::sort(edges);
  return edges;
}

Bytes most_alive(std::span<const Lifetime> lifetimes) {
  Bytes alive, most;
  for (const LifetimeEdge& edge : edges_of(lifetimes)) {
    if (edge.begins) {
      alive += lifetimes[edge.lifetime].size;
    } else {
      alive -= lifetimes[edge.lifetime].size;
    }
    most = std::max(most, alive);
  }
  return most;
}

std::vector<Lifetime> lifetimes(const Timeline& timeline, const Step& step) {
  std::vector<Lifetime> out;
  std::vector<std::size_t> of_storage(step.storages.size());
  const auto end = static_cast<std::int64_t>(timeline.events.size());
  for (std::size_t i = 0; i < timeline.events.size(); ++i) {
    const MemoryEvent& event = timeline.events[i];
    if (event.is_alloc()) {
      of_storage[event.storage] = out.size();
      out.push_back({static_cast<std::int64_t>(i), end, step.storages[event.storage].bytes});
    } else {
      out[of_storage[event.storage]].upper = static_cast<std::int64_t>(i);
    }
  }
  return out;
}

}  // namespace tidemark
