/// Can these lifetimes be placed below a height? Depth-first, as minimalloc does (Moffitt, ASPLOS 2023).
///
/// Buffers are placed from the ground up, each on what already lies below it: an arrangement that can be sunk into
/// such an order exists whenever any arrangement does. At a moment (a *section*, between two neighbouring begins or
/// ends) the lowest place still open plus the bytes still to place must stay below the height. Where no unplaced buffer
/// crosses a moment, the two sides are searched apart.
///
/// Which buffer is tried first decides everything. Searches from several orders take turns, each for a while, and the
/// buffers of moments that had no room move up in that order.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tidemark/engine/lifetime.hpp"

namespace tidemark {

class ArenaSearch {
 public:
  ArenaSearch(std::span<const Lifetime> lifetimes, Bytes height);
  enum class Outcome : std::uint8_t { found, impossible, unknown };
  /// One turn, of the next order; takes its steps from `steps`.
  Outcome take_turn(std::int64_t& steps);
  Bytes height() const { return {height_}; }
  /// By lifetime, after `found`.
  std::vector<Bytes> offsets() const;

 private:
  struct Buffer {
    std::int64_t size = 0;
    std::int64_t width = 0;    // how long it lives
    std::int64_t load = 0;     // most bytes alive at a moment of its life
    int first = 0, last = 0;   // sections [first, last)
    std::size_t lifetime = 0;  // which one it is
  };
  struct Change {
    int buffer;
    std::int64_t ground;  // before
  };
  using Place = std::pair<std::int64_t, int>;  // address, then rank

  void rank_buffers();
  bool search(const std::vector<int>& unplaced, Place previous);
  bool search_apart(const std::vector<int>& unplaced, Place previous);
  bool place(int buffer, std::int64_t address);
  bool section_has_room(int section);
  void take_back(std::size_t mark);

  std::vector<Buffer> buffers_;                // by begin
  std::vector<std::vector<int>> overlapping_;  // by buffer
  std::vector<std::vector<int>> alive_;        // by section
  std::vector<std::int64_t> left_;             // by section: bytes still to place
  std::vector<std::int64_t> ground_;           // by buffer: the top of what is placed below it
  std::vector<std::int64_t> address_;          // by buffer, once placed
  std::vector<int> rank_;
  static constexpr std::size_t orders = 5;
  std::array<std::vector<double>, orders> blame_;  // by order, by buffer
  std::int64_t turns_ = 0;
  std::size_t order_ = 0;  // of this turn
  std::vector<Change> changes_;
  std::vector<std::uint32_t> touched_;  // by section: the placing that last touched it
  std::uint32_t placing_ = 0;
  std::int64_t height_ = 0;
  std::int64_t steps_ = 0;  // left of this turn
};

}  // namespace tidemark
