#include "tidemark/study/block_library.hpp"

#include <algorithm>
#include <utility>

namespace tidemark {
namespace {

bool same(const LibraryPiece& a, const LibraryPiece& b) {
  return alike(a, b) && a.of_block == b.of_block && a.offset == b.offset && a.op == b.op && a.phase == b.phase;
}

void require(bool condition, const char* why) {
  if (!condition) throw NotComposable{why};
}

/// Walks the parts of one micro-batch in the order in which its regions should make them.
class Cutter {
 public:
  Cutter(const Lowered& model, const OpTimes& times, std::size_t at) : model_(model), times_(times), at_(at) {}

  std::size_t position() const { return at_; }
  const StepPart* part() const { return at_ < model_.parts.size() ? &model_.parts[at_] : nullptr; }
  /// The part is of this block.
  bool is(StepPart::What what, std::size_t block) const {
    return part() != nullptr && part()->layer == static_cast<std::int32_t>(model_.first_block + block) &&
           part()->what == what;
  }
  bool is_of(std::size_t block) const {
    return part() != nullptr && part()->layer == static_cast<std::int32_t>(model_.first_block + block) &&
           part()->what != StepPart::What::forward;
  }
  bool is_any_block() const {
    const auto first = static_cast<std::int32_t>(model_.first_block);
    return part() != nullptr && part()->layer >= first &&
           part()->layer < first + static_cast<std::int32_t>(model_.blocks);
  }
  bool is_layer() const { return part() != nullptr && part()->layer >= 0; }

  /// The parts up to `end`, as one piece of the anchor block's; of no block's without one.
  LibraryPiece cut(std::size_t end, std::optional<std::size_t> anchor) {
    const PieceRange range{instruction(at_), instruction(end), op(at_), op(end)};
    at_ = end;
    return named(piece_of(model_.step, times_, range), anchor);
  }
  /// More of the block's backward half comes from `at` on in this micro-batch.
  bool comes_again(std::size_t block, std::size_t at) const {
    for (std::size_t i = at; i < model_.parts.size(); ++i) {
      const StepPart& later = model_.parts[i];
      if (later.step != part()->step || later.micro_batch != part()->micro_batch) return false;
      if (later.what == StepPart::What::backward &&
          later.layer == static_cast<std::int32_t>(model_.first_block + block))
        return true;
    }
    return false;
  }
  /// The one part that stands here, if it is this one; else nothing at all.
  LibraryPiece cut_if(StepPart::What what, std::size_t block) { return cut(at_ + (is(what, block) ? 1 : 0), block); }
  LibraryPiece cut_forward(std::size_t block) {
    require(is(StepPart::What::forward, block), "blocks do not run forward in order");
    return cut(at_ + 1, block);
  }
  /// All of the block's parts that stand here together.
  LibraryPiece cut_backward(std::size_t block) {
    require(is(StepPart::What::backward, block), "blocks do not run backward in the order of their regions");
    return cut(end_of(block), block);
  }
  std::size_t end_of(std::size_t block) {
    return end_while([&] { return is_of(block); });
  }
  template <class Condition>
  std::size_t end_while(Condition condition) {
    const std::size_t begin = at_;
    while (part() != nullptr && condition()) ++at_;
    return std::exchange(at_, begin);
  }

 private:
  std::size_t instruction(std::size_t i) const {
    return i < model_.parts.size() ? model_.parts[i].instruction : model_.step.instructions.size();
  }
  std::size_t op(std::size_t i) const { return i < model_.parts.size() ? model_.parts[i].op : model_.step.ops.size(); }

  LibraryPiece named(const Piece& piece, std::optional<std::size_t> anchor) const {
    LibraryPiece out{piece};
    if (piece.crest_op == no_id) return out;
    const StepOp& op = model_.step.ops[piece.crest_op];
    out.op = model_.step.names[op.name];
    out.phase = op.phase;
    const auto block = op.layer - static_cast<std::int32_t>(model_.first_block);
    if (!anchor || op.layer < 0 || block < 0 || static_cast<std::size_t>(block) >= model_.blocks) return out;
    const std::string& layer = model_.step.layers[static_cast<std::size_t>(op.layer)];
    require(out.op.starts_with(layer), "an op of a block is not named after it");
    out.of_block = true;
    out.offset = block - static_cast<std::int64_t>(*anchor);
    out.op = out.op.substr(layer.size());
    return out;
  }

  const Lowered& model_;
  const OpTimes& times_;
  std::size_t at_;
};

}  // namespace

std::vector<Surroundings> surroundings(const std::vector<BlockRegion>& regions, std::size_t blocks) {
  std::vector<Surroundings> out(blocks);
  for (const BlockRegion& region : regions)
    for (std::size_t i = 0; i < region.count; ++i) {
      Surroundings& block = out[region.first + i];
      block.here = BlockRuns::again;
      block.joined_before = i > 0;
      block.joined_after = i + 1 < region.count;
    }
  for (std::size_t b = 0; b < blocks; ++b) {
    if (b > 0) out[b].before = out[b - 1].here;
    if (b + 1 < blocks) out[b].after = out[b + 1].here;
  }
  return out;
}

BlockLibrary::BlockLibrary(int steps, int micro_batches)
    : steps_(steps),
      micro_batches_(micro_batches),
      filed_(block_parts * Surroundings::count * static_cast<std::size_t>(steps * micro_batches), -1) {}

std::size_t BlockLibrary::slot(BlockPart part, const Surroundings& around, int step, int micro_batch) const {
  return (batch(step, micro_batch) * block_parts + static_cast<std::size_t>(part)) * Surroundings::count +
         around.index();
}

const LibraryPiece* BlockLibrary::find(BlockPart part, const Surroundings& around, int step, int micro_batch) const {
  const std::int32_t filed = filed_[slot(part, around, step, micro_batch)];
  return filed < 0 ? nullptr : &pieces_[static_cast<std::size_t>(filed)];
}

void BlockLibrary::file(BlockPart part, const Surroundings& around, int step, int micro_batch, LibraryPiece piece) {
  std::int32_t& filed = filed_[slot(part, around, step, micro_batch)];
  if (filed >= 0) return require(same(pieces_[static_cast<std::size_t>(filed)], piece), "equal blocks differ");
  filed = static_cast<std::int32_t>(pieces_.size());
  pieces_.push_back(std::move(piece));
}

/// What a region of several blocks issues in backward. Where none of it is rebuilt ahead of its own backward, its
/// blocks run as if they were alone.
template <class Cutter, class Keep>
void BlockLibrary::cut_region(Cutter& cutter, std::size_t first, std::size_t last, const Keep& keep) {
  using What = StepPart::What;
  const bool starts_early = cutter.is(What::backward, last);
  const bool together = !starts_early || cutter.comes_again(last, cutter.end_of(last));
  const std::size_t early = starts_early && together ? cutter.end_of(last) : cutter.position();
  keep(BlockPart::early_backward, last, cutter.cut(early, last));
  for (std::size_t b = first; b <= last; ++b)
    keep(BlockPart::rebuild, b, together ? cutter.cut_if(What::backward, b) : cutter.cut(cutter.position(), b));
  if (together) {
    const bool from_last = cutter.is(What::unwind, last);
    require(!unwinds_backward_ || *unwinds_backward_ == from_last, "regions unwind in different orders");
    unwinds_backward_ = from_last;
    for (std::size_t i = 0; i <= last - first; ++i) {
      const std::size_t b = from_last ? last - i : first + i;
      keep(BlockPart::unwind, b, cutter.cut_if(What::unwind, b));
    }
  } else {
    for (std::size_t b = first; b <= last; ++b) keep(BlockPart::unwind, b, cutter.cut(cutter.position(), b));
  }
  for (std::size_t b = last + 1; b-- > first;) keep(BlockPart::backward, b, cutter.cut_backward(b));
}

void BlockLibrary::add(const Lowered& model, const OpTimes& times) {
  require(has_one_stream(model.step), "it has more than one stream");
  require(model.blocks > 0, "there are no blocks");
  const std::vector<Surroundings> around = surroundings(model.regions, model.blocks);
  const std::size_t last = model.blocks - 1;
  Cutter cutter(model, times, 0);
  const auto keep_end = [](std::vector<LibraryPiece>& ends, std::size_t i, LibraryPiece piece) {
    if (i < ends.size()) return require(same(ends[i], piece), "the optimizer depends on the policy");
    ends.push_back(std::move(piece));
  };
  for (int s = 0; s < model.steps; ++s) {
    const auto step = static_cast<std::size_t>(s);
    keep_end(starts_, step, cutter.cut(cutter.end_while([&] { return !cutter.is_layer(); }), std::nullopt));
    for (int m = 0; m < model.micro_batches; ++m) {
      const auto keep = [&](BlockPart part, std::size_t block, LibraryPiece piece) {
        file(part, around[block], s, m, std::move(piece));
      };
      keep(BlockPart::below, 0,
           cutter.cut(cutter.end_while([&] { return cutter.is_layer() && !cutter.is_any_block(); }), 0));
      for (std::size_t b = 0; b <= last; ++b) keep(BlockPart::forward, b, cutter.cut_forward(b));
      keep(BlockPart::above, last,
           cutter.cut(cutter.end_while([&] { return cutter.is_layer() && !cutter.is_any_block(); }), last));
      for (std::size_t end = last + 1; end > 0;) {
        std::size_t first = end - 1;  // of the region that ends here; a block that is held is alone
        while (around[first].joined_before) --first;
        if (first + 1 < end)
          cut_region(cutter, first, end - 1, keep);
        else
          keep(BlockPart::backward, first, cutter.cut_backward(first));
        end = first;
      }
      const std::size_t end = cutter.end_while([&] {
        return cutter.is_layer() && !cutter.is_any_block() && cutter.part()->what == StepPart::What::backward &&
               cutter.part()->micro_batch == m;
      });
      keep(BlockPart::below_backward, 0, cutter.cut(end, 0));
    }
    const auto cut_end = [&](StepPart::What what, std::optional<int> micro_batch) {
      return cutter.cut(cutter.end_while([&] {
        return !cutter.is_layer() && cutter.part()->step == s && cutter.part()->what == what &&
               cutter.part()->micro_batch == micro_batch.value_or(cutter.part()->micro_batch);
      }),
                        std::nullopt);
    };
    keep_end(tails_, step, cut_end(StepPart::What::backward, std::nullopt));
    for (int m = 0; m < model.micro_batches; ++m) keep_end(returned_, batch(s, m), cut_end(StepPart::What::unwind, m));
    keep_end(ends_, step, cut_end(StepPart::What::backward, std::nullopt));
  }
  require(cutter.part() == nullptr, "there is more than the regions say");
}

void BlockLibrary::check_alike(const BlockLibrary& other) const {
  for (std::size_t i = 0; i < filed_.size(); ++i)
    if (filed_[i] >= 0 && other.filed_[i] >= 0)
      require(
          same(pieces_[static_cast<std::size_t>(filed_[i])], other.pieces_[static_cast<std::size_t>(other.filed_[i])]),
          "blocks of the whole model are unlike a smaller one's");
}

void BlockLibrary::check_ends_alike(const BlockLibrary& other) const {
  for (int s = 0; s < steps_; ++s)
    require(same(start(s), other.start(s)) && same(tail(s), other.tail(s)) && same(end(s), other.end(s)),
            "the optimizer depends on the policy");
}

void BlockLibrary::check_alike(int step, int micro_batch, int other_step, int other_micro_batch) const {
  const std::size_t a = slot(BlockPart::below, {BlockRuns::edge, BlockRuns::edge, BlockRuns::edge}, step, micro_batch);
  const std::size_t b =
      slot(BlockPart::below, {BlockRuns::edge, BlockRuns::edge, BlockRuns::edge}, other_step, other_micro_batch);
  require(same(returned(step, micro_batch), returned(other_step, other_micro_batch)),
          "later steps are unlike the second");
  for (std::size_t i = 0; i < block_parts * Surroundings::count; ++i) {
    const std::int32_t one = filed_[a + i], two = filed_[b + i];
    require((one < 0) == (two < 0) &&
                (one < 0 || same(pieces_[static_cast<std::size_t>(one)], pieces_[static_cast<std::size_t>(two)])),
            "later steps are unlike the second");
  }
}

}  // namespace tidemark
