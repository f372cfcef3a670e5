/// Is an arena an arrangement at all? Looked at from outside, pair by pair.
#pragma once

#include <algorithm>
#include <span>

#include "tidemark/engine/arena.hpp"

namespace tidemark::test {

/// No two lifetimes that meet in time share an address, none lies below 0, and the highest ends at the height.
inline bool is_arrangement(std::span<const Lifetime> lifetimes, const Arena& arena) {
  if (arena.offsets.size() != lifetimes.size()) return false;
  Bytes height;
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    const Bytes begin = arena.offsets[i], end = begin + lifetimes[i].size;
    if (begin < Bytes{}) return false;
    height = std::max(height, end);
    for (std::size_t j = 0; j < i; ++j) {
      const bool meet = lifetimes[i].lower < lifetimes[j].upper && lifetimes[j].lower < lifetimes[i].upper;
      if (meet && begin < arena.offsets[j] + lifetimes[j].size && arena.offsets[j] < end) return false;
    }
  }
  return height == arena.height;
}

}  // namespace tidemark::test
