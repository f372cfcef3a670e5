#include "tidemark/engine/arena.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "arena_search.hpp"
#include "tidemark/engine/free_list.hpp"

namespace tidemark {
namespace {

/// In the order of time, each into the smallest gap that holds it, the lowest of those; on top when none does.
class BestFit {
 public:
  Bytes place(Bytes size) {
    const auto gap = gaps_.at_least(size);
    if (gap == gaps_.end()) {
      Bytes at = height_;
      if (!ends_.empty() && ends_.rbegin()->first == height_.count) at = Bytes{ends_.rbegin()->second};
      if (at < height_) remove(at.count, height_.count);
      height_ = at + size;
      return at;
    }
    const FreeBlock found = *gap;
    remove(found.address, found.address + found.size.count);
    if (found.size > size) add(found.address + size.count, found.address + found.size.count);
    return {found.address};
  }
  void free(Bytes at, Bytes size) {
    std::int64_t begin = at.count, end = at.count + size.count;
    if (const auto before = ends_.find(begin); before != ends_.end()) {
      begin = before->second;
      remove(begin, at.count);
    }
    if (const auto after = begins_.find(end); after != begins_.end()) {
      end = after->second;
      remove(at.count + size.count, end);
    }
    add(begin, end);
  }
  Bytes height() const { return height_; }

 private:
  void add(std::int64_t begin, std::int64_t end) {
    gaps_.insert({{end - begin}, begin, 0});
    begins_[begin] = end;
    ends_[end] = begin;
  }
  void remove(std::int64_t begin, std::int64_t end) {
    gaps_.erase({{end - begin}, begin, 0});
    begins_.erase(begin);
    ends_.erase(end);
  }
  FreeList gaps_;
  std::map<std::int64_t, std::int64_t> begins_, ends_;  // of gaps
  Bytes height_;
};

Arena best_fit(std::span<const Lifetime> lifetimes, const std::vector<LifetimeEdge>& edges) {
  Arena arena;
  arena.offsets.resize(lifetimes.size());
  BestFit space;
  for (const LifetimeEdge& edge : edges) {
    Bytes& offset = arena.offsets[edge.lifetime];
    const Bytes size = lifetimes[edge.lifetime].size;
    if (edge.begins) {
      offset = space.place(size);
    } else {
      space.free(offset, size);
    }
  }
  arena.height = space.height();
  return arena;
}

/// In the given order, each at the lowest address that is free for its whole life.
Arena first_fit(std::span<const Lifetime> lifetimes, const std::vector<std::size_t>& order) {
  Arena arena;
  arena.offsets.resize(lifetimes.size());
  std::vector<std::size_t> placed;
  std::vector<std::pair<Bytes, Bytes>> taken;
  for (const std::size_t i : order) {
    taken.clear();
    for (const std::size_t j : placed)
      if (lifetimes[j].lower < lifetimes[i].upper && lifetimes[i].lower < lifetimes[j].upper)
        taken.emplace_back(arena.offsets[j], arena.offsets[j] + lifetimes[j].size);
    std::ranges::sort(taken);
    Bytes at;
    for (const auto& [begin, end] : taken) {
      if (begin - at >= lifetimes[i].size) break;
      at = std::max(at, end);
    }
    arena.offsets[i] = at;
    arena.height = std::max(arena.height, at + lifetimes[i].size);
    placed.push_back(i);
  }
  return arena;
}

template <class Key>
Arena first_fit_by(std::span<const Lifetime> lifetimes, Key key) {
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return key(lifetimes[i]); });
  return first_fit(lifetimes, order);
}

void keep_lower(Arena& best, Arena other) {
  if (other.height < best.height) best = std::move(other);
}

Arena without_search(std::span<const Lifetime> lifetimes, const ArenaEffort& effort) {
  Arena best = best_fit(lifetimes, edges_of(lifetimes));
  best.lower_bound = most_alive(lifetimes);
  const Bytes bound = best.lower_bound;
  if (lifetimes.size() <= effort.first_fit_up_to && !best.is_optimal()) {
    keep_lower(best, first_fit_by(lifetimes, [](const Lifetime& l) { return l.size; }));
    keep_lower(best, first_fit_by(lifetimes, [](const Lifetime& l) {
                 return static_cast<double>(l.size.count) * static_cast<double>(l.upper - l.lower);
               }));
    keep_lower(best, first_fit_by(lifetimes, [](const Lifetime& l) { return -l.lower; }));
  }
  best.lower_bound = bound;
  return best;
}

/// Where the highest buffer of an arrangement ends.
Bytes height_of(std::span<const Lifetime> lifetimes, const std::vector<Bytes>& offsets) {
  Bytes height;
  for (std::size_t i = 0; i < lifetimes.size(); ++i) height = std::max(height, offsets[i] + lifetimes[i].size);
  return height;
}

/// Looks for arrangements lower than what it is given.
class Descent {
 public:
  Descent(std::span<const Lifetime> lifetimes, Arena& best, std::int64_t steps)
      : lifetimes_(lifetimes), best_(best), steps_(steps) {
    for (const Lifetime& l : lifetimes) unit_.count = std::gcd(unit_.count, l.size.count);
  }

  /// Half of the turns go to the lowest height that is not known to be impossible, which most steps reach; the others
  /// go to a height halfway between what was given up and `ceiling`, which is to be beaten.
  void run(Bytes ceiling, Bytes enough) {
    for (std::int64_t patience = 32; steps_ > 0; patience *= 2) {
      Bytes given_up = best_.lower_bound;
      while (ceiling - given_up > unit_ && (ceiling - given_up).count > best_.lower_bound.count / 1024) {
        const Bytes target = given_up + Bytes{(ceiling - given_up).count / 2 / unit_.count * unit_.count};
        const Bytes height = best_.height;
        for (std::int64_t turn = 0; turn < patience && best_.height == height; ++turn) {
          take_turn(best_.lower_bound);
          take_turn(target);
          if (steps_ <= 0 || best_.height <= std::max(enough, best_.lower_bound)) return;
        }
        if (best_.height < height) {
          ceiling = best_.height;
        } else {
          given_up = target;
        }
      }
      take_turn(best_.lower_bound);
      if (best_.height <= std::max(enough, best_.lower_bound)) return;
      ceiling = std::min(ceiling, best_.height);
    }
  }

  /// Turn about, `capacity` itself and the lowest height.
  void fit(Bytes capacity) {
    while (steps_ > 0 && best_.height > capacity && best_.lower_bound <= capacity) {
      take_turn(best_.lower_bound);
      if (best_.height > capacity && capacity > best_.lower_bound) take_turn(capacity);
    }
  }

 private:
  void take_turn(Bytes target) {
    if (steps_ <= 0 || target >= best_.height) return;
    ArenaSearch& search = searches_.try_emplace(target, lifetimes_, target).first->second;
    const auto outcome = search.take_turn(steps_);
    if (outcome == ArenaSearch::Outcome::impossible) best_.lower_bound = std::max(best_.lower_bound, target + unit_);
    if (outcome != ArenaSearch::Outcome::found) return;
    best_.offsets = search.offsets();
    best_.height = height_of(lifetimes_, best_.offsets);
  }

  std::span<const Lifetime> lifetimes_;
  Arena& best_;
  std::int64_t steps_;
  Bytes unit_;                             // every sunk arrangement is as high as a sum of sizes
  std::map<Bytes, ArenaSearch> searches_;  // by height
};

}  // namespace

Arena make_arena(std::span<const Lifetime> lifetimes, const ArenaEffort& effort) {
  Arena best = without_search(lifetimes, effort);
  if (!best.is_optimal() && lifetimes.size() <= effort.search_up_to)
    Descent(lifetimes, best, effort.steps).run(best.height, Bytes{});
  return best;
}

std::optional<Arena> fit_arena(std::span<const Lifetime> lifetimes, Bytes capacity, const ArenaEffort& effort) {
  Arena best = without_search(lifetimes, effort);
  if (best.height > capacity && best.lower_bound <= capacity && lifetimes.size() <= effort.search_up_to)
    Descent(lifetimes, best, effort.steps).fit(capacity);
  if (best.height > capacity) return std::nullopt;
  return best;
}

}  // namespace tidemark
