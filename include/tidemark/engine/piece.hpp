/// What does a run of a Step's instructions do to every figure of a summary?
///
/// A stretch (composition.hpp) with what else adds up: bytes by category, time and FLOPs by phase. Pieces that are
/// alike are alike in all of it, so one of them stands for many blocks. Of one rank and one stream.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "tidemark/base/units.hpp"
#include "tidemark/base/vocabulary.hpp"
#include "tidemark/engine/composition.hpp"
#include "tidemark/step/op_times.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

struct Piece {
  using BytesByCategory = std::array<Bytes, category_names.size()>;
  Stretch stretch;
  BytesByCategory net{};       // left behind
  BytesByCategory at_crest{};  // above its start, when the crest is first reached
  std::array<Nanos, phase_names.size()> time{};
  std::array<std::int64_t, phase_names.size()> flops{};  // matrix products
  Nanos before_crest;                                    // time until the crest
  OpId crest_op = no_id;                                 // whose script reaches it; none when it is the start
  std::optional<Bytes> forward_end;                      // above its start, once its last forward op's script has ended
  std::uint64_t events = 0;                              // allocs and frees
  std::uint64_t ops = 0;
  std::uint64_t digest = 0;  // of every instruction in order: what, bytes, category, duration
};

/// The same in every figure; which op it was apart.
bool alike(const Piece& a, const Piece& b);

/// A Step whose instructions are allocs, frees and computes on the compute stream of one rank: what pieces can be cut
/// from.
bool has_one_stream(const Step& step);

/// Half open ranges of instructions, and of the ops that begin among them.
struct PieceRange {
  std::size_t begin = 0, end = 0;
  std::size_t first_op = 0, end_op = 0;
};
/// Throws InputError past 2^63.
Piece piece_of(const Step& step, const OpTimes& times, const PieceRange& range);

}  // namespace tidemark
