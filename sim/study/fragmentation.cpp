#include "tidemark/study/fragmentation.hpp"

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "tidemark/base/errors.hpp"
#include "tidemark/engine/caching_model.hpp"
#include "tidemark/engine/simulate.hpp"

namespace tidemark {
namespace {

using State = Reservation::State;

/// When the picture is taken: at an alloc after which so much is reserved, or that fails.
struct Target {
  std::int16_t rank = 0;
  std::size_t event = 0;  // of the timeline
  Bytes reserved;
};

Target target_of(const Step& step, const Timeline& timeline) {
  const auto rank_at = [&](std::size_t event) { return step.storages[timeline.events[event].storage].rank; };
  if (timeline.out_of_memory) return {rank_at(timeline.out_of_memory->event), timeline.out_of_memory->event, {}};
  const std::vector<Bytes>& reserved = timeline.allocator.reserved;
  const auto most = static_cast<std::size_t>(std::ranges::max_element(reserved) - reserved.begin());
  return {rank_at(most), most, reserved[most]};
}

/// The caching model of one rank, and its picture at the target.
class Watch final : public Allocator {
 public:
  Watch(const CachingSettings& settings, const Step& step, Target target)
      : step_(step), target_(target), model_(settings) {}

  bool alloc(StorageId storage, Bytes bytes, Stream stream, Nanos now) override {
    const bool served = model_.alloc(storage, bytes, stream, now);
    if (served) {
      const BlockId block = model_.block(storage);
      if (block >= owners_.size()) owners_.resize(block + std::size_t{1}, no_id);
      owners_[block] = storage;
    }
    const bool is_target = served && model_.figures().reserved == target_.reserved;
    if (!picture_ && step_.storages[storage].rank == target_.rank && (!served || is_target)) picture_ = take_picture();
    return served;
  }
  void free(StorageId storage, Stream stream, Nanos now, Nanos ready) override {
    model_.free(storage, stream, now, ready);
  }
  AllocatorFigures figures() const override { return model_.figures(); }
  const std::optional<Fragmentation>& picture() const { return picture_; }

 private:
  Fragmentation take_picture() const;
  SplitSegment split_segment(const Reservation& reservation) const;

  const Step& step_;
  Target target_;
  CachingModel model_;
  std::vector<StorageId> owners_;  // by block, of its last storage
  std::optional<Fragmentation> picture_;
};

Fragmentation Watch::take_picture() const {
  Fragmentation out;
  for (const Reservation& reservation : model_.allocator().reservations()) {
    out.reserved += reservation.size;
    const bool in_use = std::ranges::any_of(reservation.blocks, [](const auto& b) { return b.state != State::free; });
    if (!in_use) {
      out.unused += reservation.size;
      continue;
    }
    for (const Reservation::Block& block : reservation.blocks) {
      if (block.state == State::pending_free) out.waiting += block.size;
      if (block.state != State::allocated) continue;
      out.live += block.requested;
      out.rounding += block.size - block.requested;
    }
    SplitSegment segment = split_segment(reservation);
    if (segment.holes == 0) continue;
    out.free += segment.free;
    out.holes += segment.holes;
    out.largest_free = std::max(out.largest_free, segment.largest_free);
    out.segments.push_back(std::move(segment));
  }
  std::ranges::stable_sort(out.segments, std::ranges::greater{}, &SplitSegment::free);
  return out;
}

SplitSegment Watch::split_segment(const Reservation& reservation) const {
  SplitSegment out{.bytes = reservation.size};
  std::vector<std::pair<Bytes, StorageId>> beside;
  const std::vector<Reservation::Block>& blocks = reservation.blocks;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const bool next_to_hole =
        (i > 0 && blocks[i - 1].state == State::free) || (i + 1 < blocks.size() && blocks[i + 1].state == State::free);
    if (blocks[i].state == State::free) {
      out.free += blocks[i].size;
      out.largest_free = std::max(out.largest_free, blocks[i].size);
      ++out.holes;
    } else if (next_to_hole) {
      beside.emplace_back(blocks[i].size, owners_[blocks[i].id]);
    }
  }
  std::ranges::stable_sort(beside, std::ranges::greater{}, &std::pair<Bytes, StorageId>::first);
  std::set<NameId> seen;
  for (const auto& [size, storage] : beside)
    if (const NameId name = step_.storages[storage].name; seen.insert(name).second)
      out.between.push_back(step_.names[name]);
  return out;
}

}  // namespace

std::optional<Fragmentation> find_fragmentation(const Scenario& scenario, const Step& step, const Timeline& timeline) {
  if (!scenario.caching || timeline.allocator.reserved.empty()) return std::nullopt;
  const Target target = target_of(step, timeline);
  std::deque<Watch> watches;
  std::vector<Allocator*> seams;
  for (int rank = 0; rank < step.ranks; ++rank) seams.push_back(&watches.emplace_back(*scenario.caching, step, target));
  (void)simulate(step, scenario.device, seams);
  const std::optional<Fragmentation>& picture = watches[static_cast<std::size_t>(target.rank)].picture();
  check(picture.has_value(), "the second run reserves what the first did");
  Fragmentation out = *picture;
  out.phase = to_string(Phase::initial);
  if (const OpId id = timeline.events[target.event].op(); id != no_id) {
    const StepOp& op = step.ops[id];
    out.op = step.names[op.name];
    out.layer = op.layer < 0 ? "" : step.layers[static_cast<std::size_t>(op.layer)];
    out.phase = to_string(op.phase);
    out.step = op.step;
  }
  return out;
}

}  // namespace tidemark
