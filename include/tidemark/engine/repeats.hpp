/// How high does a step stand that is the same few pieces again and again, and what does it add up to?
///
/// A tree of repetitions: pieces stand a number of times in a row, and so do groups of them. A thousand equal layers
/// cost the logarithm of a thousand (power, composition.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tidemark/engine/piece.hpp"

namespace tidemark {

class Repeats {
 public:
  Repeats();

  /// Opens a group that stands `times` > 0 times in a row; each time the blocks in it are `stride` further on. Gives
  /// its number.
  std::size_t open(std::uint64_t times, std::int64_t stride = 0);
  void close();
  /// `times` copies of a piece, which must outlive this; the first is of `block`, each further one of the block
  /// `direction` on. None for 0 times.
  void add(const Piece& piece, std::uint64_t times = 1, std::int64_t block = 0, std::int64_t direction = 0);
  /// All groups are closed. Throws InputError past 2^63.
  void finish();
  const Stretch& whole() const { return nodes_.front().all; }

  struct Sums {
    Piece::BytesByCategory net{};
    std::array<Int128, phase_names.size()> time{}, flops{};
    std::uint64_t events = 0, ops = 0;
    Int128 total_time() const;
  };
  /// Of all, or of a group's content once.
  Sums sums(std::size_t group = 0) const;

  struct Crest {
    const Piece* piece = nullptr;
    std::int64_t block = 0;
    Sums before;             // the piece
    std::size_t group = 0;   // of those opened first, the one it is in
    std::uint64_t turn = 0;  // which of its times
  };
  /// Where the whole first reaches its crest; nothing when that is its start.
  std::optional<Crest> crest() const;
  /// What is left behind before the last copy of a piece.
  Bytes level_before_last(const Piece& piece) const;

 private:
  struct Node {
    const Piece* piece = nullptr;  // null: a group
    std::uint64_t times = 1;
    std::int64_t block = 0, move = 0;  // of a piece: the first one's block, and on to the next; of a group: its stride
    std::size_t end = 0;               // past the last node below it
    Stretch once, all;
  };
  void add_sums(std::size_t node, std::uint64_t times, Sums& out) const;
  void find(std::size_t node, std::size_t where, std::int64_t shift, Crest& out) const;
  std::optional<Bytes> before_last(std::size_t node, const Piece& piece) const;

  std::vector<Node> nodes_;  // each before those below it
  std::vector<std::size_t> open_;
};

}  // namespace tidemark
