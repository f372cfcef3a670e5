#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "tidemark/base/errors.hpp"
#include "tidemark/plan/pipeline_schedule.hpp"

namespace tidemark {
namespace {

/// Runs the schedule without time: each rank as far as it goes, until all are done or none moves.
class Check {
 public:
  explicit Check(const PipelineSchedule& schedule)
      : schedule_(schedule), next_(schedule.ranks.size()), done_(static_cast<std::size_t>(schedule.chunks())) {
    for (auto& chunk : done_)
      for (auto& kind : chunk) kind.assign(static_cast<std::size_t>(schedule.micro_batches), false);
    listed_ = done_;
  }

  void run() {
    for (std::size_t r = 0; r < schedule_.ranks.size(); ++r) check_list(static_cast<int>(r));
    check_complete();
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < next_.size(); ++r)
        for (; has_next(r) && !missing(pass(r)); ++next_[r], moved = true)
          mark(done_[static_cast<std::size_t>(pass(r).chunk)], pass(r));
    }
    for (std::size_t r = 0; r < next_.size(); ++r)
      if (has_next(r)) refuse_deadlock(r);
  }

 private:
  using Done = std::array<std::vector<bool>, 3>;  // forward, backward of the input, backward of the weights

  static std::string on(const Pass& pass, int rank) {
    return "'" + to_string(pass) + "' of rank " + std::to_string(rank);
  }
  bool has_next(std::size_t r) const { return next_[r] < schedule_.ranks[r].size(); }
  const Pass& pass(std::size_t r) const { return schedule_.ranks[r][next_[r]]; }
  int rank_of(int chunk) const { return schedule_.rank_of_chunk[static_cast<std::size_t>(chunk)]; }

  bool is_done(const Pass& p) const {
    const Done& chunk = done_[static_cast<std::size_t>(p.chunk)];
    return chunk[p.kind == PassKind::forward ? 0 : 1][static_cast<std::size_t>(p.micro_batch)];
  }
  static void mark(Done& chunk, const Pass& p) {
    const auto m = static_cast<std::size_t>(p.micro_batch);
    if (p.kind == PassKind::forward) chunk[0][m] = true;
    if (p.backs_activations()) chunk[1][m] = true;
    if (p.backs_weights()) chunk[2][m] = true;
  }

  /// What it waits for and has not been done.
  std::optional<Pass> missing(const Pass& p) const {
    std::optional<Pass> needs;
    if (p.kind == PassKind::forward) {
      if (p.chunk > 0) needs = Pass{PassKind::forward, p.chunk - 1, p.micro_batch};
    } else if (p.backs_activations()) {
      if (p.chunk + 1 < schedule_.chunks()) needs = Pass{PassKind::backward_input, p.chunk + 1, p.micro_batch};
    }
    if (!needs || is_done(*needs)) return std::nullopt;
    return needs;
  }

  /// Each pass of the list is this rank's, new, and after what it needs of the rank itself.
  void check_list(int rank) {
    for (const Pass& p : schedule_.ranks[static_cast<std::size_t>(rank)]) {
      if (p.chunk < 0 || p.chunk >= schedule_.chunks())
        throw InputError(on(p, rank) + ": there is no chunk " + std::to_string(p.chunk) + "; expected 0 to " +
                         std::to_string(schedule_.chunks() - 1));
      if (p.micro_batch < 0 || p.micro_batch >= schedule_.micro_batches)
        throw InputError(on(p, rank) + ": there is no micro-batch " + std::to_string(p.micro_batch) +
                         "; expected 0 to " + std::to_string(schedule_.micro_batches - 1));
      if (rank_of(p.chunk) != rank)
        throw InputError(on(p, rank) + ": chunk " + std::to_string(p.chunk) + " belongs to rank " +
                         std::to_string(rank_of(p.chunk)));
      Done& chunk = listed_[static_cast<std::size_t>(p.chunk)];
      const auto m = static_cast<std::size_t>(p.micro_batch);
      const bool again = (p.kind == PassKind::forward && chunk[0][m]) || (p.backs_activations() && chunk[1][m]) ||
                         (p.backs_weights() && chunk[2][m]);
      if (again) throw InputError(on(p, rank) + " stands twice; expected each pass once");
      if (p.backs_activations() && !chunk[0][m]) throw InputError(on(p, rank) + " stands before its forward");
      if (p.kind == PassKind::backward_weight && !chunk[1][m])
        throw InputError(on(p, rank) + " stands before the backward of its input");
      mark(chunk, p);
    }
  }

  void check_complete() const {
    constexpr std::array<PassKind, 3> kinds = {PassKind::forward, PassKind::backward_input, PassKind::backward_weight};
    for (int c = 0; c < schedule_.chunks(); ++c)
      for (int m = 0; m < schedule_.micro_batches; ++m)
        for (std::size_t k = 0; k < kinds.size(); ++k)
          if (!listed_[static_cast<std::size_t>(c)][k][static_cast<std::size_t>(m)])
            throw InputError("the schedule lacks '" + to_string(Pass{kinds[k], c, m}) + "' on rank " +
                             std::to_string(rank_of(c)));
  }

  /// From a blocked pass to the one that its rank's blocker waits for, and on, until a rank comes again.
  [[noreturn]] void refuse_deadlock(std::size_t start) const {
    std::vector<bool> visited(next_.size(), false);
    std::size_t r = start;
    while (!visited[r]) {
      visited[r] = true;
      r = static_cast<std::size_t>(rank_of(missing(pass(r))->chunk));
    }
    const Pass first = pass(r);
    const Pass needs = *missing(first);
    const auto other = static_cast<std::size_t>(rank_of(needs.chunk));
    if (other == r)
      throw InputError("the schedule deadlocks: " + on(first, static_cast<int>(r)) + " waits for '" +
                       to_string(written(needs)) + "', which stands after it");
    throw InputError("the schedule deadlocks: " + on(first, static_cast<int>(r)) + " waits for " +
                     on(written(needs), static_cast<int>(other)) + ", and " + on(pass(other), static_cast<int>(other)) +
                     ", which stands before that, waits for " +
                     on(written(*missing(pass(other))), rank_of(missing(pass(other))->chunk)));
  }

  /// The pass as the schedule has it: with both backwards in one, where they are.
  Pass written(Pass p) const {
    const std::vector<Pass>& list = schedule_.ranks[static_cast<std::size_t>(rank_of(p.chunk))];
    const Pass both{PassKind::backward, p.chunk, p.micro_batch};
    return std::ranges::find(list, p) == list.end() && std::ranges::find(list, both) != list.end() ? both : p;
  }

  const PipelineSchedule& schedule_;
  std::vector<std::size_t> next_;  // by rank
  std::vector<Done> done_;         // by chunk
  std::vector<Done> listed_;       // by chunk: what its rank's list has
};

}  // namespace

void check_schedule(const PipelineSchedule& schedule) {
  check(!schedule.rank_of_chunk.empty(), "a schedule has no chunk");
  Check(schedule).run();
}

}  // namespace tidemark
