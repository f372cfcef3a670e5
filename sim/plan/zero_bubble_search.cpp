#include <algorithm>
#include <numeric>
#include <optional>

#include "tidemark/base/errors.hpp"
#include "tidemark/plan/pipeline_schedule.hpp"

namespace tidemark {
namespace {

/// The three decisions in which the greedy schedules differ.
struct Taste {
  bool wait_before_first_backward = true;  // no forward that would delay it
  bool backward_first = true;              // a forward may be left out for the sake of the next rank's backward
  bool fill_always = true;                 // put a weights' pass even where the gap is one the rank can afford
};

/// Builds all ranks' lists round by round: one forward each from the first rank on, one backward each from the last on,
/// weights' passes where a rank would wait or is out of memory.
class Greedy {
 public:
  Greedy(int micro_batches, const std::vector<PassCosts>& costs, Nanos transfer, Bytes limit, Taste taste)
      : micro_batches_(micro_batches),
        ranks_(static_cast<int>(costs.size())),
        costs_(costs),
        transfer_(transfer),
        limit_(limit),
        taste_(taste),
        states_(costs.size()) {
    schedule_.ranks.resize(costs.size());
    schedule_.rank_of_chunk.resize(costs.size());
    std::iota(schedule_.rank_of_chunk.begin(), schedule_.rank_of_chunk.end(), 0);
    schedule_.micro_batches = micro_batches;
  }

  /// false: some rank has no room for a forward however many weights' passes it runs.
  bool build() {
    if (!warm_up()) return false;
    for (int i = 1; i < micro_batches_; ++i)
      if (!forwards() || !backwards(i)) return false;
    for (int r = 0; r < ranks_; ++r)
      while (at(r).weights < micro_batches_) put_weights(r);
    return true;
  }

  /// The longest time a rank takes from its first pass to its last.
  Nanos span() const {
    Nanos longest;
    for (std::size_t r = 0; r < states_.size(); ++r)
      longest = std::max(longest, states_[r].end - states_[r].forward_ends[0] + costs_[r].forward);
    return longest;
  }
  PipelineSchedule schedule() && { return std::move(schedule_); }

 private:
  struct State {
    int forwards = 0, inputs = 0, weights = 0;
    Bytes held;
    Nanos end, idle;  // idle: all waits since its first forward
    std::vector<Nanos> forward_ends, input_ends;
  };
  State& at(int r) { return states_[static_cast<std::size_t>(r)]; }
  const PassCosts& cost(int r) const { return costs_[static_cast<std::size_t>(r)]; }

  void put(int r, PassKind kind, int micro_batch, Nanos arrival, Nanos length) {
    State& s = at(r);
    const Nanos start = std::max(s.end, arrival);
    if (s.forwards > 0) s.idle += start - s.end;
    s.end = start + length;
    schedule_.ranks[static_cast<std::size_t>(r)].push_back({kind, r, micro_batch});
  }
  Nanos forward_arrival(int r) {
    return r == 0 ? Nanos{} : at(r - 1).forward_ends[static_cast<std::size_t>(at(r).forwards)] + transfer_;
  }
  Nanos input_arrival(int r) {
    return r + 1 == ranks_ ? Nanos{} : at(r + 1).input_ends[static_cast<std::size_t>(at(r).inputs)] + transfer_;
  }
  void put_forward(int r) {
    State& s = at(r);
    put(r, PassKind::forward, s.forwards, forward_arrival(r), cost(r).forward);
    s.held += cost(r).saved;
    s.forward_ends.push_back(s.end);
    ++s.forwards;
  }
  void put_input(int r) {
    State& s = at(r);
    put(r, PassKind::backward_input, s.inputs, input_arrival(r), cost(r).backward_input);
    s.held -= cost(r).freed_by_input;
    s.input_ends.push_back(s.end);
    ++s.inputs;
  }
  void put_weights(int r) {
    State& s = at(r);
    put(r, PassKind::backward_weight, s.weights, {}, cost(r).backward_weight);
    s.held -= cost(r).saved - cost(r).freed_by_input;
    ++s.weights;
  }

  /// How many forwards each rank runs before its first backward.
  bool warm_up() {
    for (int r = 0; r < ranks_; ++r) {
      if (cost(r).saved > limit_) return false;
      put_forward(r);
    }
    std::vector<int> more(costs_.size());
    Nanos backward_end = at(ranks_ - 1).end + cost(ranks_ - 1).backward_input;
    for (int r = ranks_ - 2; r >= 0; --r) {
      const Nanos arrival = backward_end + transfer_;
      Nanos end = at(r).end;
      Bytes held = at(r).held;
      int& n = more[static_cast<std::size_t>(r)];
      while (at(r).forwards + n < micro_batches_ && held + cost(r).saved <= limit_) {
        if (taste_.wait_before_first_backward ? end + cost(r).forward > arrival : end >= arrival) break;
        held += cost(r).saved;
        end += cost(r).forward;
        ++n;
      }
      backward_end = std::max(end, arrival) + cost(r).backward_input;
    }
    for (std::size_t r = 1; r < more.size(); ++r)
      while (more[r] > 0 && more[r] >= more[r - 1] && 1 + more[r] < micro_batches_) --more[r];
    for (int r = 0; r < ranks_; ++r)
      for (int i = 0; i < more[static_cast<std::size_t>(r)]; ++i) put_forward(r);
    for (int r = ranks_ - 1; r >= 0; --r) put_input(r);
    return true;
  }

  Nanos most_idle() const {
    Nanos most;
    for (const State& s : states_) most = std::max(most, s.idle);
    return most;
  }

  /// Weights' passes while the rank would only wait for what arrives then.
  void fill(int r, Nanos arrival) {
    State& s = at(r);
    while (s.weights < s.inputs && s.end + cost(r).backward_weight <= arrival) put_weights(r);
    if (s.weights == s.inputs || s.end >= arrival) return;
    const bool can_afford = arrival - s.end <= most_idle() - s.idle;
    if (!can_afford || taste_.fill_always) put_weights(r);
  }

  bool make_room(int r) {
    while (at(r).held + cost(r).saved > limit_) {
      if (at(r).weights >= at(r).inputs) return false;
      put_weights(r);
    }
    return true;
  }

  bool leaves_forward_out(int r) {
    State& s = at(r);
    if (!taste_.backward_first || r + 1 == ranks_ || s.forwards < at(r + 1).forwards + 2) return false;
    const Nanos needed = at(r + 1).end + cost(r + 1).forward + cost(r + 1).backward_input + transfer_;
    if (s.end >= needed) return true;
    Nanos room;
    Bytes held = s.held + cost(r).saved;
    for (int w = s.weights; held > limit_ && w < s.inputs; ++w) {
      room += cost(r).backward_weight;
      held -= cost(r).saved - cost(r).freed_by_input;
    }
    if (s.end + cost(r).forward + room <= needed) return false;
    return needed - s.end <= most_idle() - s.idle;
  }

  bool forwards() {
    std::vector<bool> runs(costs_.size());
    for (int r = 0; r < ranks_; ++r)
      runs[static_cast<std::size_t>(r)] = at(r).forwards < micro_batches_ && !leaves_forward_out(r);
    for (std::size_t r = runs.size() - 1; r-- > 0;) runs[r] = runs[r] && runs[r + 1];
    for (int r = 0; r < ranks_; ++r) {
      if (!runs[static_cast<std::size_t>(r)]) continue;
      if (!make_room(r)) return false;
      if (r > 0) fill(r, forward_arrival(r));
      put_forward(r);
    }
    return true;
  }

  bool backwards(int round) {
    for (int r = ranks_ - 1; r >= 0; --r) {
      if (at(r).forwards <= round) return false;
      if (r + 1 < ranks_) fill(r, input_arrival(r));
      if (r == 0 && at(r).forwards == micro_batches_)
        while (at(r).weights < at(r).inputs) put_weights(r);
      put_input(r);
    }
    return true;
  }

  int micro_batches_;
  int ranks_;
  const std::vector<PassCosts>& costs_;
  Nanos transfer_;
  Bytes limit_;
  Taste taste_;
  std::vector<State> states_;
  PipelineSchedule schedule_;
};

}  // namespace

PipelineSchedule zero_bubble_searched(int micro_batches, const std::vector<PassCosts>& costs, Nanos transfer,
                                      Bytes limit) {
  std::optional<PipelineSchedule> best;
  Nanos best_span;
  for (int taste = 0; taste < 8; ++taste) {
    Greedy greedy(micro_batches, costs, transfer, limit, {(taste & 4) == 0, (taste & 2) == 0, (taste & 1) == 0});
    if (!greedy.build() || (best && greedy.span() >= best_span)) continue;
    best_span = greedy.span();
    best = std::move(greedy).schedule();
  }
  if (!best) throw InputError("no zero-bubble schedule holds its activations in " + pretty(limit) + " a stage");
  return std::move(*best);
}

}  // namespace tidemark
