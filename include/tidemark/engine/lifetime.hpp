/// From when to when is something alive, and how many bytes are alive together?
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/engine/timeline.hpp"

namespace tidemark {

/// Alive in [lower, upper): what ends at a moment makes room for what begins then.
struct Lifetime {
  std::int64_t lower = 0, upper = 0;
  Bytes size;
  friend bool operator==(const Lifetime&, const Lifetime&) = default;
};

/// A lifetime's begin or end, by its number. At one time ends come first.
struct LifetimeEdge {
  std::int64_t time = 0;
  bool begins = false;
  std::size_t lifetime = 0;
  friend auto operator<=>(const LifetimeEdge&, const LifetimeEdge&) = default;
};

/// In the order of time. Sizes and lengths must be positive.
std::vector<LifetimeEdge> edges_of(std::span<const Lifetime> lifetimes);
/// The most bytes alive at one time.
Bytes most_alive(std::span<const Lifetime> lifetimes);

/// The lifetimes of a timeline, in the order of their allocations. Times are event numbers; what is never freed lives
/// to the end.
std::vector<Lifetime> lifetimes(const Timeline& timeline, const Step& step);

}  // namespace tidemark
