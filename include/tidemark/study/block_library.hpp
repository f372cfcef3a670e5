/// Which piece of a Step is a block's part, given what it and its neighbours do?
///
/// Pieces are cut from real lowerings of small models, and filed under the block's *surroundings*: whether it and the
/// blocks on both sides run again, and share its region. A piece that is met again in the same surroundings must be the
/// same in every figure; where it is not, blocks depend on more than that, and nothing can be composed from them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/engine/piece.hpp"
#include "tidemark/plan/block_regions.hpp"
#include "tidemark/step/lower.hpp"

namespace tidemark {

/// How a block runs; `edge`: there is none, the model ends here.
enum class BlockRuns : std::uint8_t { edge, held, again };

struct Surroundings {
  BlockRuns before = BlockRuns::edge, here = BlockRuns::held, after = BlockRuns::edge;
  bool joined_before = false, joined_after = false;  // in one region with that neighbour
  static constexpr std::size_t count = 108;
  std::size_t index() const {
    const auto runs = (static_cast<std::size_t>(before) * 3 + static_cast<std::size_t>(here)) * 3;
    return (runs + static_cast<std::size_t>(after)) * 4 + (joined_before ? 2 : 0) + (joined_after ? 1 : 0);
  }
};

/// By block.
std::vector<Surroundings> surroundings(const std::vector<BlockRegion>& regions, std::size_t blocks);

/// What a piece is of. The first and last block decide what stands below and above all blocks.
enum class BlockPart : std::uint8_t {
  below,           // before the first block's forward pass
  forward,         // a block's
  above,           // from the last block's forward pass to the first that runs again: head and loss, both ways
  early_backward,  // of a region's last block, before the region is rebuilt
  rebuild,         // of a block in a region of several
  unwind,          // the rebuilt block's variables go, when all of its region is rebuilt
  backward,        // of a block; with its rebuilding where it is a region of its own
  below_backward,  // after the first block's backward
};
inline constexpr std::size_t block_parts = 8;

/// A piece, and what is said of a peak in it.
struct LibraryPiece : Piece {
  bool of_block = false;    // the op at the crest
  std::int64_t offset = 0;  // its block from the piece's own
  std::string op;           // its name; of a block, what follows the block's
  Phase phase = Phase::initial;
};

/// A lowered model: which of its layers are blocks, and how they run.
struct Lowered {
  const Step& step;
  const std::vector<StepPart>& parts;
  std::size_t first_block = 0, blocks = 0;  // neighbouring layers
  const std::vector<BlockRegion>& regions;
  int steps = 1, micro_batches = 1;
};

class BlockLibrary {
 public:
  BlockLibrary(int steps, int micro_batches);

  /// Cuts a model into pieces and files them. Throws NotComposable where it has other parts than its regions say, or a
  /// piece unlike the one that is filed already.
  void add(const Lowered& model, const OpTimes& times);

  /// null: such a block has not been met.
  const LibraryPiece* find(BlockPart part, const Surroundings& around, int step, int micro_batch) const;
  /// Regions unwind from their last block to their first.
  bool unwinds_backward() const { return unwinds_backward_.value_or(false); }
  /// Before a step's first micro-batch, and after its last: of every model that was added.
  const LibraryPiece& start(int step) const { return starts_[static_cast<std::size_t>(step)]; }
  const LibraryPiece& tail(int step) const { return tails_[static_cast<std::size_t>(step)]; }
  /// After the tail: what the loop kept of each micro-batch's loss goes, then the step ends.
  const LibraryPiece& returned(int step, int micro_batch) const { return returned_[batch(step, micro_batch)]; }
  const LibraryPiece& end(int step) const { return ends_[static_cast<std::size_t>(step)]; }

  /// Throws NotComposable where both have a piece and they differ.
  void check_alike(const BlockLibrary& other) const;
  /// The same of what stands between steps.
  void check_ends_alike(const BlockLibrary& other) const;
  /// The same of two kinds of micro-batches of this library.
  void check_alike(int step, int micro_batch, int other_step, int other_micro_batch) const;

 private:
  std::size_t batch(int step, int micro_batch) const {
    return static_cast<std::size_t>(step) * static_cast<std::size_t>(micro_batches_) +
           static_cast<std::size_t>(micro_batch);
  }
  std::size_t slot(BlockPart part, const Surroundings& around, int step, int micro_batch) const;
  template <class Cutter, class Keep>
  void cut_region(Cutter& cutter, std::size_t first, std::size_t last, const Keep& keep);
  void file(BlockPart part, const Surroundings& around, int step, int micro_batch, LibraryPiece piece);

  int steps_, micro_batches_;
  std::vector<std::int32_t> filed_;  // by slot: index into pieces_, -1 is none
  std::vector<LibraryPiece> pieces_;
  std::vector<LibraryPiece> starts_, tails_, ends_;
  std::vector<LibraryPiece> returned_;  // by step and micro-batch
  std::optional<bool> unwinds_backward_;
};

/// Not an error: the model or the policy is simulated in full instead.
struct NotComposable {
  std::string why;
};

}  // namespace tidemark
