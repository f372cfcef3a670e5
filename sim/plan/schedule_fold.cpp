#include "tidemark/plan/schedule_fold.hpp"

#include <algorithm>

namespace tidemark {
namespace {

struct Place {
  std::size_t rank = 0, index = 0;
};

/// The passes [begin, end) of a rank's list that come again, shifted, a period later: its last one ends at `end`.
struct Stretch {
  std::size_t begin = 0, end = 0;
};

/// One schedule under periods of `group` micro-batches.
class Periods {
 public:
  Periods(const PipelineSchedule& schedule, int group) : schedule_(schedule), group_(group) {
    const auto passes = static_cast<std::size_t>(schedule.chunks()) * static_cast<std::size_t>(schedule.micro_batches);
    forwards_.resize(passes);
    backwards_.resize(passes);
    for (std::size_t r = 0; r < ranks(); ++r) {
      const std::vector<Pass>& list = schedule.ranks[r];
      length_.push_back(list.size() / static_cast<std::size_t>(schedule.micro_batches) *
                        static_cast<std::size_t>(group));
      stretches_.push_back(stretch(list, length_[r]));
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (list[i].kind == PassKind::forward) forwards_[number(list[i].chunk, list[i].micro_batch)] = {r, i};
        if (list[i].backs_activations()) backwards_[number(list[i].chunk, list[i].micro_batch)] = {r, i};
      }
    }
    find_cuts();
  }

  std::size_t ranks() const { return schedule_.ranks.size(); }
  /// Consecutive cuts that are a period apart on every rank.
  const std::vector<std::vector<std::size_t>>& cuts() const { return cuts_; }
  const std::vector<std::size_t>& length() const { return length_; }

  /// How many periods back a pass reaches at most, when those right before the cut `tail` are left out.
  int depth(std::size_t tail) const {
    std::int64_t deepest = 1;
    for (std::size_t r = 0; r < ranks(); ++r)
      for (std::size_t i = cuts_.front()[r]; i < schedule_.ranks[r].size(); ++i) {
        const std::optional<Place> needs = needed(schedule_.ranks[r][i]);
        if (!needs) continue;
        // Behind the tail's cut a pass may stand for one right behind the kept cut.
        const std::int64_t own = std::min(period_of({r, i}), static_cast<std::int64_t>(tail));
        if (period_of(*needs) < static_cast<std::int64_t>(tail)) deepest = std::max(deepest, own - period_of(*needs));
      }
    return static_cast<int>(deepest);
  }

 private:
  std::size_t number(int chunk, int micro_batch) const {
    return static_cast<std::size_t>(chunk) * static_cast<std::size_t>(schedule_.micro_batches) +
           static_cast<std::size_t>(micro_batch);
  }

  bool comes_again(const std::vector<Pass>& list, std::size_t i, std::size_t length) const {
    const Pass& a = list[i];
    const Pass& b = list[i + length];
    return a.kind == b.kind && a.chunk == b.chunk && a.micro_batch + group_ == b.micro_batch;
  }

  /// The longest one.
  Stretch stretch(const std::vector<Pass>& list, std::size_t length) const {
    Stretch best, now;
    for (std::size_t i = 0; i + length < list.size(); ++i) {
      if (!comes_again(list, i, length)) {
        now = {i + 1, i + 1};
        continue;
      }
      now.end = i + 1;
      if (now.end - now.begin > best.end - best.begin) best = now;
    }
    if (best.end > best.begin) best.end += length;
    return best;
  }

  /// What the pass waits for on another rank or chunk.
  std::optional<Place> needed(const Pass& pass) const {
    if (pass.kind == PassKind::forward && pass.chunk > 0) return forwards_[number(pass.chunk - 1, pass.micro_batch)];
    if (pass.backs_activations() && pass.chunk + 1 < schedule_.chunks())
      return backwards_[number(pass.chunk + 1, pass.micro_batch)];
    return std::nullopt;
  }

  /// The smallest cuts with so many passes of rank 0, period after period, while they are what they should be.
  void find_cuts() {
    std::vector<std::size_t> cut(ranks()), done(ranks());
    for (std::size_t first = stretches_[0].begin; first <= stretches_[0].end && length_[0] > 0; first += length_[0]) {
      cut[0] = std::max(cut[0], first);
      close(cut, done);
      if (cut[0] > first || !is_inside(cut)) {
        if (!cuts_.empty()) return;
        continue;
      }
      if (!cuts_.empty() && !is_period(cuts_.back(), cut)) {
        if (cuts_.size() > 1) return;
        cuts_.clear();
      }
      cuts_.push_back(cut);
    }
  }

  void close(std::vector<std::size_t>& cut, std::vector<std::size_t>& done) const {
    for (bool grown = true; grown;) {
      grown = false;
      for (std::size_t r = 0; r < ranks(); ++r)
        for (; done[r] < cut[r]; ++done[r]) {
          grown = true;
          const std::optional<Place> needs = needed(schedule_.ranks[r][done[r]]);
          if (needs) cut[needs->rank] = std::max(cut[needs->rank], needs->index + 1);
        }
    }
  }

  bool is_inside(const std::vector<std::size_t>& cut) const {
    for (std::size_t r = 0; r < ranks(); ++r)
      if (cut[r] < stretches_[r].begin || cut[r] > stretches_[r].end) return false;
    return true;
  }

  bool is_period(const std::vector<std::size_t>& from, const std::vector<std::size_t>& to) const {
    for (std::size_t r = 0; r < ranks(); ++r)
      if (to[r] != from[r] + length_[r]) return false;
    return true;
  }

  /// By number of the cut before it; what stands outside is numbered on.
  std::int64_t period_of(const Place& place) const {
    const auto from = static_cast<std::int64_t>(place.index) - static_cast<std::int64_t>(cuts_.front()[place.rank]);
    const auto length = static_cast<std::int64_t>(length_[place.rank]);
    return (from >= 0 ? from : from - length + 1) / length;
  }

  const PipelineSchedule& schedule_;
  int group_;
  std::vector<std::size_t> length_;  // by rank: passes a period
  std::vector<Stretch> stretches_;
  std::vector<Place> forwards_, backwards_;  // by chunk and micro-batch
  std::vector<std::vector<std::size_t>> cuts_;
};

}  // namespace

std::optional<ScheduleFold> fold(const PipelineSchedule& schedule, const FoldSize& size) {
  for (const int group : {1, static_cast<int>(schedule.ranks.size())}) {
    if (group >= schedule.micro_batches) continue;
    const Periods periods(schedule, group);
    const int count = static_cast<int>(periods.cuts().size()) - 1;
    const int left_out = std::max(count - size.before - size.behind, 0) / size.cycle * size.cycle;
    if (left_out == 0) continue;
    const auto keep = static_cast<std::size_t>(size.before);
    const auto tail = keep + static_cast<std::size_t>(left_out);
    ScheduleFold out{.schedule = schedule,
                     .kept = size.before,
                     .left_out = left_out,
                     .group = group,
                     .depth = periods.depth(tail),
                     .cut = periods.cuts()[keep],
                     .period = periods.length()};
    out.schedule.micro_batches -= left_out * group;
    for (std::size_t r = 0; r < periods.ranks(); ++r) {
      std::vector<Pass>& list = out.schedule.ranks[r];
      const auto begin = list.begin() + static_cast<std::ptrdiff_t>(out.cut[r]);
      const auto end = list.begin() + static_cast<std::ptrdiff_t>(periods.cuts()[tail][r]);
      const auto behind = list.erase(begin, end);
      std::for_each(behind, list.end(), [&](Pass& pass) { pass.micro_batch -= left_out * group; });
    }
    return out;
  }
  return std::nullopt;
}

}  // namespace tidemark
