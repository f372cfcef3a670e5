#include "tidemark/plan/pipeline_schedule.hpp"

#include <algorithm>
#include <numeric>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

constexpr Pass forward(int chunk, int micro_batch) { return {PassKind::forward, chunk, micro_batch}; }
constexpr Pass backward(int chunk, int micro_batch) { return {PassKind::backward, chunk, micro_batch}; }
constexpr Pass backward_input(int chunk, int micro_batch) { return {PassKind::backward_input, chunk, micro_batch}; }
constexpr Pass backward_weight(int chunk, int micro_batch) { return {PassKind::backward_weight, chunk, micro_batch}; }

/// One chunk a rank.
PipelineSchedule straight(int ranks, int micro_batches) {
  PipelineSchedule out;
  out.ranks.resize(static_cast<std::size_t>(ranks));
  out.rank_of_chunk.resize(static_cast<std::size_t>(ranks));
  std::iota(out.rank_of_chunk.begin(), out.rank_of_chunk.end(), 0);
  out.micro_batches = micro_batches;
  return out;
}

/// `ahead` forwards, then backward and forward in turns, the weights' pass `late` micro-batches behind; what is left
/// at the end.
std::vector<Pass> handcrafted(int rank, int ahead, int late, int micro_batches) {
  std::vector<Pass> list;
  int forwards = 0, weights = 0;
  while (forwards < std::min(ahead, micro_batches)) list.push_back(forward(rank, forwards++));
  for (int b = 0; b < micro_batches; ++b) {
    list.push_back(backward_input(rank, b));
    if (b >= late) list.push_back(backward_weight(rank, weights++));
    if (forwards < micro_batches) list.push_back(forward(rank, forwards++));
  }
  while (weights < micro_batches) list.push_back(backward_weight(rank, weights++));
  return list;
}

/// One rank of ZB-V. `full` micro-batches fill the pipeline; passes of those that are not there are left out.
class VRank {
 public:
  VRank(int rank, int ranks, int micro_batches)
      : rank_(rank), ranks_(ranks), micro_batches_(micro_batches), full_(std::max(2 * ranks - 1, micro_batches)) {}

  std::vector<Pass> list() {
    for (int i = 0; i < 2 * (ranks_ - rank_) - 1; ++i) add(PassKind::forward, first_);
    for (int i = 0; i < rank_; ++i) {
      add(PassKind::forward, second_);
      add(PassKind::forward, first_);
    }
    for (int i = rank_; i < ranks_; ++i) {
      add(PassKind::forward, second_);
      both(second_);
    }
    while (second_.forwards < first_.forwards || first_.forwards < full_) {
      if (first_.forwards < full_) add(PassKind::forward, first_);
      both(first_);
      add(PassKind::forward, second_);
      both(second_);
    }
    for (int i = 0; i < rank_; ++i) {
      add(PassKind::backward_input, first_);
      add(PassKind::backward_input, second_);
    }
    for (int i = rank_; i < ranks_; ++i) both(first_);
    while (second_.weights < second_.inputs) add(PassKind::backward_weight, second_);
    while (first_.weights < first_.inputs) add(PassKind::backward_weight, first_);
    return std::move(list_);
  }

 private:
  struct Chunk {
    int number = 0, forwards = 0, inputs = 0, weights = 0;
  };
  void add(PassKind kind, Chunk& chunk) {
    int& next = kind == PassKind::forward          ? chunk.forwards
                : kind == PassKind::backward_input ? chunk.inputs
                                                   : chunk.weights;
    if (next < micro_batches_) list_.push_back({kind, chunk.number, next});
    ++next;
  }
  void both(Chunk& chunk) {
    add(PassKind::backward_input, chunk);
    add(PassKind::backward_weight, chunk);
  }

  int rank_, ranks_, micro_batches_, full_;
  Chunk first_{rank_}, second_{2 * ranks_ - 1 - rank_};
  std::vector<Pass> list_;
};

void need_one_chunk(std::string_view name, int chunks_per_rank) {
  if (chunks_per_rank != 1)
    throw InputError("schedule '" + std::string(name) + "' runs one chunk a stage, not " +
                     std::to_string(chunks_per_rank) + "; 'interleaved' runs several");
}

}  // namespace

std::string to_string(const Pass& pass) {
  constexpr std::array<char, 4> letters = {'F', 'B', 'I', 'W'};
  return std::to_string(pass.chunk) + letters[static_cast<std::size_t>(pass.kind)] + std::to_string(pass.micro_batch);
}

bool PipelineSchedule::splits_backward() const {
  return std::ranges::any_of(ranks, [](const std::vector<Pass>& list) {
    return std::ranges::any_of(list, [](const Pass& pass) { return pass.kind == PassKind::backward_input; });
  });
}

bool is_searched(std::string_view schedule) { return schedule == "zb_1p" || schedule == "zb_2p"; }

PipelineSchedule gpipe(int ranks, int micro_batches) {
  PipelineSchedule out = straight(ranks, micro_batches);
  for (int r = 0; r < ranks; ++r) {
    std::vector<Pass>& list = out.ranks[static_cast<std::size_t>(r)];
    for (int m = 0; m < micro_batches; ++m) list.push_back(forward(r, m));
    for (int m = 0; m < micro_batches; ++m) list.push_back(backward(r, m));
  }
  return out;
}

PipelineSchedule one_forward_one_backward(int ranks, int micro_batches) {
  PipelineSchedule out = straight(ranks, micro_batches);
  for (int r = 0; r < ranks; ++r) {
    std::vector<Pass>& list = out.ranks[static_cast<std::size_t>(r)];
    const int ahead = std::min(ranks - 1 - r, micro_batches);
    for (int m = 0; m < ahead; ++m) list.push_back(forward(r, m));
    for (int m = 0; m < micro_batches; ++m) {
      if (ahead + m < micro_batches) list.push_back(forward(r, ahead + m));
      list.push_back(backward(r, m));
    }
  }
  return out;
}

PipelineSchedule interleaved(int ranks, int chunks_per_rank, int micro_batches) {
  if (micro_batches % ranks != 0)
    throw InputError("schedule 'interleaved' sends groups of as many micro-batches as there are stages: " +
                     std::to_string(micro_batches) + " micro-batches do not divide by " + std::to_string(ranks));
  PipelineSchedule out = straight(ranks, micro_batches);
  out.rank_of_chunk.clear();
  for (int c = 0; c < ranks * chunks_per_rank; ++c) out.rank_of_chunk.push_back(c % ranks);
  const int total = micro_batches * chunks_per_rank, group = ranks * chunks_per_rank;
  for (int r = 0; r < ranks; ++r) {
    const auto pass = [&](PassKind kind, int k) {
      const int turn = k % group / ranks;
      const int chunk = kind == PassKind::forward ? turn : chunks_per_rank - 1 - turn;
      return Pass{kind, chunk * ranks + r, k / group * ranks + k % ranks};
    };
    // Megatron runs all forwards first where there is but one group.
    const int ahead =
        micro_batches == ranks ? total : std::min(total, 2 * (ranks - 1 - r) + (chunks_per_rank - 1) * ranks);
    std::vector<Pass>& list = out.ranks[static_cast<std::size_t>(r)];
    for (int k = 0; k < ahead; ++k) list.push_back(pass(PassKind::forward, k));
    for (int k = 0; k < total; ++k) {
      if (ahead + k < total) list.push_back(pass(PassKind::forward, ahead + k));
      list.push_back(pass(PassKind::backward, k));
    }
  }
  return out;
}

PipelineSchedule zero_bubble_h1(int ranks, int micro_batches) {
  PipelineSchedule out = straight(ranks, micro_batches);
  for (int r = 0; r < ranks; ++r) out.ranks[static_cast<std::size_t>(r)] = handcrafted(r, ranks - r, r, micro_batches);
  return out;
}

PipelineSchedule zero_bubble_h2(int ranks, int micro_batches) {
  PipelineSchedule out = straight(ranks, micro_batches);
  for (int r = 0; r < ranks; ++r)
    out.ranks[static_cast<std::size_t>(r)] = handcrafted(r, 2 * (ranks - r) - 1, 2 * r, micro_batches);
  return out;
}

PipelineSchedule zero_bubble_v(int ranks, int micro_batches) {
  PipelineSchedule out = straight(ranks, micro_batches);
  for (int r = 0; r < ranks; ++r) out.ranks[static_cast<std::size_t>(r)] = VRank(r, ranks, micro_batches).list();
  for (int r = ranks; r-- > 0;) out.rank_of_chunk.push_back(r);
  return out;
}

PipelineSchedule make_schedule(std::string_view name, int ranks, int chunks_per_rank, int micro_batches,
                               const std::vector<PassCosts>& costs, Nanos transfer) {
  check(ranks > 0 && chunks_per_rank > 0 && micro_batches > 0, "a pipeline has no rank, chunk or micro-batch");
  if (name == "interleaved") return interleaved(ranks, chunks_per_rank, micro_batches);
  if (name == "zb_v") {
    if (chunks_per_rank != 2)
      throw InputError("schedule 'zb_v' runs two chunks a stage, not " + std::to_string(chunks_per_rank));
    return zero_bubble_v(ranks, micro_batches);
  }
  need_one_chunk(name, chunks_per_rank);
  if (name == "gpipe") return gpipe(ranks, micro_batches);
  if (name == "1f1b") return one_forward_one_backward(ranks, micro_batches);
  if (name == "zb_h1") return zero_bubble_h1(ranks, micro_batches);
  if (name == "zb_h2") return zero_bubble_h2(ranks, micro_batches);
  check(is_searched(name), "no such schedule");
  check(costs.size() == static_cast<std::size_t>(ranks), "a searched schedule needs the costs of each rank");
  Bytes most;
  for (const PassCosts& cost : costs) most = std::max(most, cost.saved);
  return zero_bubble_searched(micro_batches, costs, transfer, std::int64_t{name == "zb_1p" ? 1 : 2} * ranks * most);
}

std::vector<int> most_in_flight(const PipelineSchedule& schedule) {
  std::vector<int> out;
  for (const std::vector<Pass>& list : schedule.ranks) {
    int now = 0, most = 0;
    for (const Pass& pass : list) {
      if (pass.kind == PassKind::forward) most = std::max(most, ++now);
      if (pass.backs_activations()) --now;
    }
    out.push_back(most);
  }
  return out;
}

}  // namespace tidemark
