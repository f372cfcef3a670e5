/// Which instructions of a chunk's Step are whose, and which storages does a micro-batch make for itself?
///
/// Internal to weaving.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tidemark/step/chunk.hpp"
#include "tidemark/step/op_times.hpp"

namespace tidemark {

enum class Part : std::uint8_t { forward, backward, weights, tail };

/// What crosses a chunk's ends.
enum class End : std::uint8_t { none, input, output, input_gradient, output_gradient };

/// Consecutive instructions and their ops.
struct Piece {
  std::size_t begin = 0, end = 0;  // instructions
  OpId first_op = 0, ops = 0;
};

/// A *group* is one micro-batch of one step of the chunk alone.
class Cut {
 public:
  Cut(const ChunkStep& chunk, bool is_last);

  std::uint32_t group(int step, int micro_batch) const {
    return static_cast<std::uint32_t>(step * chunk_->pieces + micro_batch);
  }
  const Piece& piece(std::uint32_t group, Part part) const { return pieces_[group][static_cast<std::size_t>(part)]; }
  const Piece& tail(int step) const { return tails_[static_cast<std::size_t>(step)]; }
  /// Of the tail, what comes before the optimizer: exchanges with other ranks.
  Piece before_optimizer(int step) const;
  /// The storages that are the group's own: it makes and frees them itself, or keeps them until the step ends. Others
  /// are shared.
  const std::vector<StorageId>& own(std::uint32_t group) const { return own_[group]; }
  /// The storage's place in `own`; no_id when it is shared.
  std::uint32_t place(StorageId id) const { return place_[id]; }
  /// Made by each micro-batch anew, and freed when the step ends.
  bool kept(StorageId id) const { return kept_[id] && born_[id] != no_id; }
  /// The group that makes it; no_id: it is there from the start, or made in a tail.
  std::uint32_t born(StorageId id) const { return born_[id]; }
  /// In the script of this op a chunk that is not the last gets its output's gradient: a chain's loss.
  bool receives(OpId op) const;
  End end(StorageId id) const { return ends_[id]; }
  /// The one of those that the chunk alone has from the start; no_id without one.
  StorageId given(End end) const { return given_[static_cast<std::size_t>(end)]; }
  /// The first one that the group makes itself; no_id without one.
  StorageId made(End end, std::uint32_t group) const { return made_[group][static_cast<std::size_t>(end)]; }
  bool reads(std::uint32_t group, Part part, End end) const;
  /// Events that the group records, and blocks on the host that it fills: consecutive numbers from the first on.
  struct Numbers {
    std::uint32_t first = 0, count = 0;
  };
  Numbers events(std::uint32_t group) const { return events_[group]; }
  Numbers blocks(std::uint32_t group) const { return blocks_[group]; }
  /// By op of the chunk: the blocks that it fills, and those whose bytes are back with it.
  const std::multimap<OpId, std::uint32_t>& fills() const { return fills_; }
  const std::multimap<OpId, std::uint32_t>& empties() const { return empties_; }
  /// How long the piece's ops take, one after the other.
  Nanos length(const Piece& piece, const OpTimes& times) const;

 private:
  Part part_of(OpId op);
  void find_ends();
  void find_pieces();
  void find_own();
  void find_copies();

  const ChunkStep* chunk_;
  bool is_last_;
  bool in_backward_ = false;
  std::uint32_t current_ = no_id;  // the group that `part_of` is in
  std::vector<std::array<Piece, 3>> pieces_;
  std::vector<Numbers> events_, blocks_;  // by group
  std::multimap<OpId, std::uint32_t> fills_, empties_;
  std::vector<Piece> tails_;  // by step
  std::vector<std::uint32_t> born_, place_;
  std::vector<bool> kept_;  // freed in a tail, and no gradient, to which micro-batches add
  std::vector<End> ends_;
  using ByEnd = std::array<StorageId, 5>;
  ByEnd given_{};
  std::vector<ByEnd> made_;
  std::vector<std::vector<StorageId>> own_;
};

}  // namespace tidemark
