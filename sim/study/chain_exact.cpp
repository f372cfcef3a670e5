#include "tidemark/study/chain_exact.hpp"

#include <algorithm>
#include <compare>
#include <functional>
#include <queue>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

/// Which x_i and xbar_i are live, and how far backward has come: y_{next+1} is live, stage `next` is to run backward;
/// next = L + 1 before the loss... the loss itself is stage L.
struct State {
  std::uint64_t inputs = 0, saved = 0;
  std::int32_t next = 0;
  friend auto operator<=>(const State&, const State&) = default;
};

struct StateHash {
  std::size_t operator()(const State& s) const {
    constexpr std::uint64_t odd = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio
    std::uint64_t hash = (s.inputs + static_cast<std::uint64_t>(s.next)) * odd;
    hash = (hash ^ (hash >> 32U) ^ s.saved) * odd;
    return hash ^ (hash >> 32U);
  }
};

/// "Fe3" as a kind and a stage; no kind at the start.
struct Op {
  enum class Kind : std::uint8_t { none, keep_all, keep_input, keep_none, loss, backward, drop_input, drop_saved };
  Kind kind = Kind::none;
  std::int8_t stage = 0;
};

std::string to_string(Op op) {
  constexpr const char* names[] = {"", "Fe", "Fc", "Fn", "L", "B", "Dx", "Dxbar"};
  const std::string name = names[static_cast<std::size_t>(op.kind)];
  return op.kind == Op::Kind::loss ? name : name + std::to_string(op.stage);
}

Op op_of(Op::Kind kind, std::int32_t stage) { return {kind, static_cast<std::int8_t>(stage)}; }

struct Reached {
  std::int64_t time = 0;
  std::int64_t ops = 0;
  State from;
  Op op;
  bool done = false;
};

class Search {
 public:
  Search(const ChainCosts& costs, std::int64_t limit)
      : costs_(costs), limit_(limit), stages_(static_cast<std::int32_t>(costs.stages())) {}

  ChainExact run(std::size_t most_states) {
    const State start{1, 0, stages_};
    if (memory(start) > limit_) return {std::nullopt, true, 0};
    push(start, 0, 0, start, Op{});
    while (!queue_.empty()) {
      const auto [least, ops, state] = queue_.top();
      queue_.pop();
      Reached& reached = reached_.at(state);
      if (reached.done) continue;
      if (reached_.size() > most_states) return {std::nullopt, false, least};
      reached.done = true;
      const std::int64_t time = reached.time;
      if (state.next < 0) return {ChainSchedule{time, path(state)}, true, time};
      expand(state, time, ops);
    }
    return {std::nullopt, true, 0};
  }

 private:
  using Entry = std::tuple<std::int64_t, std::int64_t, State>;

  std::int64_t at(const std::vector<std::int64_t>& list, std::int32_t i) const {
    return list[static_cast<std::size_t>(i)];
  }
  static std::uint64_t bit(std::int32_t i) { return std::uint64_t{1} << static_cast<std::uint32_t>(i); }

  std::int64_t memory(const State& s) const {
    std::int64_t sum = s.next < stages_ ? at(costs_.boundary, s.next + 1) : 0;  // y
    for (std::int32_t i = 0; i <= stages_; ++i) {
      if ((s.inputs & bit(i)) != 0) sum += at(costs_.boundary, i);
      if ((s.saved & bit(i)) != 0) sum += at(costs_.saved, i);
    }
    return sum;
  }

  /// Every backward that is left, and a forward of each stage whose saved activations are not there.
  std::int64_t still_to_run(const State& s) const {
    std::int64_t sum = 0;
    for (std::int32_t i = 0; i <= s.next; ++i) {
      sum += at(costs_.backward_time, i);
      if (i < stages_ && (s.saved & bit(i + 1)) == 0) sum += at(costs_.forward_time, i);
    }
    return sum;
  }

  void push(const State& s, std::int64_t time, std::int64_t ops, const State& from, Op op) {
    const auto [found, fresh] = reached_.try_emplace(s);
    Reached& r = found->second;
    if (!fresh && (r.done || std::pair(r.time, r.ops) <= std::pair(time, ops))) return;
    r = {time, ops, from, op, false};
    queue_.emplace(time + still_to_run(s), ops, s);
  }

  void expand(const State& s, std::int64_t time, std::int64_t ops) {
    const std::int64_t live = memory(s);
    for (std::int32_t i = 0; i <= stages_; ++i) {
      State without = s;
      if ((s.inputs & bit(i)) != 0) {
        without.inputs = s.inputs & ~bit(i);
        push(without, time, ops + 1, s, op_of(Op::Kind::drop_input, i));
      }
      if ((s.saved & bit(i)) != 0) {
        without = s;
        without.saved = s.saved & ~bit(i);
        push(without, time, ops + 1, s, op_of(Op::Kind::drop_saved, i));
      }
    }
    for (std::int32_t i = 0; i < std::min(s.next + 1, stages_); ++i) forward(s, i, live, time, ops);
    s.next == stages_ ? loss(s, live, time, ops) : backward(s, live, time, ops);
  }

  void forward(const State& s, std::int32_t i, std::int64_t live, std::int64_t time, std::int64_t ops) {
    const bool plain = (s.inputs & bit(i)) != 0;
    if (!plain && (s.saved & bit(i)) == 0) return;
    const std::int64_t after = time + at(costs_.forward_time, i);
    const std::int64_t workspace = at(costs_.forward_workspace, i);
    if ((s.saved & bit(i + 1)) == 0 && live + at(costs_.saved, i + 1) + workspace <= limit_) {
      State full = s;
      full.saved |= bit(i + 1);
      push(full, after, ops + 1, s, op_of(Op::Kind::keep_all, i));
    }
    if ((s.inputs & bit(i + 1)) != 0 || live + at(costs_.boundary, i + 1) + workspace > limit_) return;
    State kept = s;
    kept.inputs |= bit(i + 1);
    push(kept, after, ops + 1, s, op_of(Op::Kind::keep_input, i));
    State moved = kept;
    (plain ? moved.inputs : moved.saved) &= ~bit(i);
    push(moved, after, ops + 1, s, op_of(Op::Kind::keep_none, i));
  }

  void loss(const State& s, std::int64_t live, std::int64_t time, std::int64_t ops) {
    if (((s.inputs | s.saved) & bit(stages_)) == 0) return;
    if (live + at(costs_.boundary, stages_) + at(costs_.backward_workspace, stages_) > limit_) return;
    State after = s;
    after.inputs &= ~bit(stages_);
    after.next = stages_ - 1;
    push(after, time + at(costs_.backward_time, stages_), ops + 1, s, op_of(Op::Kind::loss, 0));
  }

  void backward(const State& s, std::int64_t live, std::int64_t time, std::int64_t ops) {
    const std::int32_t i = s.next;
    if (i < 0 || (s.saved & bit(i + 1)) == 0 || ((s.inputs | s.saved) & bit(i)) == 0) return;
    if (live + at(costs_.boundary, i) + at(costs_.backward_workspace, i) > limit_) return;
    State after = s;
    after.inputs &= ~bit(i);
    after.saved &= ~bit(i + 1);
    after.next = i - 1;
    push(after, time + at(costs_.backward_time, i), ops + 1, s, op_of(Op::Kind::backward, i));
  }

  std::string path(const State& last) const {
    std::vector<std::string> ops;
    for (const Reached* r = &reached_.at(last); r->op.kind != Op::Kind::none; r = &reached_.at(r->from))
      ops.push_back(to_string(r->op));
    std::string out;
    for (std::size_t i = ops.size(); i-- > 0;) out += (out.empty() ? "" : " ") + ops[i];
    return out;
  }

  const ChainCosts& costs_;
  std::int64_t limit_;
  std::int32_t stages_;
  std::unordered_map<State, Reached, StateHash> reached_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

}  // namespace

ChainExact chain_exact(const ChainCosts& costs, std::int64_t limit, std::size_t most_states) {
  if (costs.stages() > max_exact_stages)
    throw InputError("the exact optimum is searched for chains of at most " + std::to_string(max_exact_stages) +
                     " layers, this one has " + std::to_string(costs.stages()));
  return Search(costs, limit).run(most_states);
}

}  // namespace tidemark
