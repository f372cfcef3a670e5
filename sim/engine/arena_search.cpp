#include "arena_search.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

namespace tidemark {
namespace {

constexpr std::int64_t placed = std::numeric_limits<std::int64_t>::max();  // the ground of a buffer that is placed
constexpr std::int64_t first_turn = 600'000;  // steps; short ones, since a good order needs no luck
constexpr double weight_of_blame = 30;

}  // namespace

ArenaSearch::ArenaSearch(std::span<const Lifetime> lifetimes, Bytes height) : height_(height.count) {
  std::vector<std::int64_t> times;
  for (const Lifetime& l : lifetimes) {
    times.push_back(l.lower);
    times.push_back(l.upper);
  }
  std::ranges::sort(times);
  times.erase(std::unique(times.begin(), times.end()), times.end());  // clang 14 cannot read the ranges form
  const auto section = [&](std::int64_t time) {
    return static_cast<int>(std::ranges::lower_bound(times, time) - times.begin());
  };
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    const Lifetime& l = lifetimes[i];
    buffers_.push_back({.size = l.size.count,
                        .width = l.upper - l.lower,
                        .first = section(l.lower),
                        .last = section(l.upper),
                        .lifetime = i});
  }
  std::ranges::stable_sort(buffers_, {}, &Buffer::first);
  const int count = static_cast<int>(buffers_.size());
  alive_.resize(times.size());
  left_.resize(times.size());
  touched_.resize(times.size());
  overlapping_.resize(buffers_.size());
  for (int i = 0; i < count; ++i) {
    const Buffer& buffer = buffers_[i];
    for (int j = i + 1; j < count && buffers_[j].first < buffer.last; ++j) {
      overlapping_[i].push_back(j);
      overlapping_[j].push_back(i);
    }
    for (int s = buffer.first; s < buffer.last; ++s) {
      alive_[s].push_back(i);
      left_[s] += buffer.size;
    }
  }
  for (Buffer& buffer : buffers_)
    buffer.load = *std::max_element(left_.begin() + buffer.first, left_.begin() + buffer.last);
  ground_.resize(buffers_.size());
  address_.resize(buffers_.size());
  rank_.resize(buffers_.size());
  for (std::vector<double>& blame : blame_) blame.resize(buffers_.size());
}

ArenaSearch::Outcome ArenaSearch::take_turn(std::int64_t& steps) {
  const std::int64_t round = turns_ / static_cast<std::int64_t>(orders);
  order_ = static_cast<std::size_t>(turns_++) % orders;
  take_back(0);
  rank_buffers();
  std::vector<int> all(buffers_.size());
  std::iota(all.begin(), all.end(), 0);
  const std::int64_t turn = std::min(steps, first_turn * (1 + round / 4));
  steps_ = turn;
  const bool found = search_apart(all, {0, -1});
  steps -= turn - steps_;
  if (found) return Outcome::found;
  return steps_ > 0 ? Outcome::impossible : Outcome::unknown;
}

std::vector<Bytes> ArenaSearch::offsets() const {
  std::vector<Bytes> out(buffers_.size());
  for (std::size_t i = 0; i < buffers_.size(); ++i) out[buffers_[i].lifetime] = Bytes{address_[i]};
  return out;
}

/// The largest first, in one sense or another; blame makes larger.
void ArenaSearch::rank_buffers() {
  const std::vector<double>& blame = blame_[order_];
  const double most = *std::ranges::max_element(blame);
  const auto key = [&](int i) {
    const Buffer& buffer = buffers_[i];
    const double factor = most > 0 ? 1 + weight_of_blame * blame[i] / most : 1;
    const double width = factor * static_cast<double>(buffer.width);
    const double area = width * static_cast<double>(buffer.size);
    const double load = factor * static_cast<double>(buffer.load);
    const double size = factor * static_cast<double>(buffer.size);
    switch (order_) {
      case 0:
        return std::tuple(width, area, load);
      case 1:
        return std::tuple(load, area, width);
      case 2:
        return std::tuple(load, width, area);
      case 3:
        return std::tuple(area, load, width);
      default:
        return std::tuple(size, load, width);
    }
  };
  std::vector<int> sorted(buffers_.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  std::ranges::stable_sort(sorted, std::ranges::greater{}, key);
  for (std::size_t i = 0; i < sorted.size(); ++i) rank_[sorted[i]] = static_cast<int>(i);
}

/// Parts that no unplaced buffer joins, one by one.
bool ArenaSearch::search_apart(const std::vector<int>& unplaced, Place previous) {
  std::vector<int> part;
  for (std::size_t i = 0; i < unplaced.size();) {
    part.clear();
    for (int end = buffers_[unplaced[i]].last; i < unplaced.size() && buffers_[unplaced[i]].first < end; ++i) {
      end = std::max(end, buffers_[unplaced[i]].last);
      part.push_back(unplaced[i]);
    }
    if (!search(part, previous)) return false;
  }
  return true;
}

/// Places all of `unplaced`, which stand in the order of their begins, at or above `previous`.
bool ArenaSearch::search(const std::vector<int>& unplaced, Place previous) {
  // A buffer that fits whole under a place would go there first: no better place than that is worth trying.
  std::int64_t lowest_top = placed;
  for (const int i : unplaced) lowest_top = std::min(lowest_top, ground_[i] + buffers_[i].size);
  std::vector<std::pair<Place, int>> candidates;
  for (const int i : unplaced) {
    const Place at{ground_[i], rank_[i]};
    if (at.first < lowest_top && at > previous) candidates.emplace_back(at, i);
  }
  steps_ -= 2 * static_cast<std::int64_t>(unplaced.size());
  std::ranges::sort(candidates);
  std::vector<int> others;
  for (const auto& [at, i] : candidates) {
    if (steps_ <= 0) return false;
    const std::size_t mark = changes_.size();
    if (place(i, at.first)) {
      others.clear();
      std::ranges::copy_if(unplaced, std::back_inserter(others), [&, chosen = i](int j) { return j != chosen; });
      std::int64_t most_left = 0;
      for (const int j : others) most_left = std::max(most_left, left_[buffers_[j].first]);
      if (at.first + most_left <= height_ && search_apart(others, at)) return true;
    }
    take_back(mark);
  }
  return false;
}

/// false when some moment, or a buffer above, has no room any more.
bool ArenaSearch::place(int i, std::int64_t address) {
  const Buffer& buffer = buffers_[i];
  const std::int64_t top = address + buffer.size;
  changes_.push_back({i, ground_[i]});
  ground_[i] = placed;
  address_[i] = address;
  for (int s = buffer.first; s < buffer.last; ++s) left_[s] -= buffer.size;
  ++placing_;
  int first = buffer.first;
  int last = buffer.last;
  for (int s = first; s < last; ++s) touched_[s] = placing_;
  steps_ -= static_cast<std::int64_t>(overlapping_[i].size());
  for (const int j : overlapping_[i]) {
    if (ground_[j] >= top) continue;
    changes_.push_back({j, ground_[j]});
    ground_[j] = top;
    if (top + buffers_[j].size > height_) {
      blame_[order_][j] += 1;
      return false;
    }
    for (int s = buffers_[j].first; s < buffers_[j].last; ++s) touched_[s] = placing_;
    first = std::min(first, buffers_[j].first);
    last = std::max(last, buffers_[j].last);
  }
  for (int s = first; s < last; ++s)
    if (touched_[s] == placing_ && !section_has_room(s)) {
      for (const int j : alive_[s])
        if (ground_[j] != placed) blame_[order_][j] += 1.0 / static_cast<double>(alive_[s].size());
      return false;
    }
  return true;
}

bool ArenaSearch::section_has_room(int section) {
  if (left_[section] == 0) return true;
  std::int64_t lowest = placed;
  for (const int j : alive_[section]) lowest = std::min(lowest, ground_[j]);
  steps_ -= static_cast<std::int64_t>(alive_[section].size());
  return lowest + left_[section] <= height_;
}

void ArenaSearch::take_back(std::size_t mark) {
  for (; changes_.size() > mark; changes_.pop_back()) {
    const auto [i, ground] = changes_.back();
    if (ground_[i] == placed) {
      const Buffer& buffer = buffers_[i];
      for (int s = buffer.first; s < buffer.last; ++s) left_[s] += buffer.size;
    }
    ground_[i] = ground;
  }
}

}  // namespace tidemark
