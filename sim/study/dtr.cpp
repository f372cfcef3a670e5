#include "tidemark/study/dtr.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

constexpr std::array<std::string_view, 6> names = {"h_DTR", "h_DTR_eq", "h_local", "h_LRU", "h_size", "h_MSPS"};

constexpr std::size_t nowhere = std::numeric_limits<std::size_t>::max();

enum class Way : std::uint8_t { ancestors, descendants };

class Runtime {
 public:
  Runtime(const DtrLog& log, std::int64_t budget, DtrHeuristic heuristic, std::int64_t most_again)
      : log_(log), budget_(budget), heuristic_(heuristic), most_again_(most_again), values_(log.cost.size()) {
    children_.resize(log.cost.size());
  }

  DtrRun run() {
    for (const DtrLog::Command& command : log_.commands)
      if (!step(command)) return std::move(out_);
    for (std::int32_t value = 0; value < static_cast<std::int32_t>(values_.size()); ++value) {
      Value& v = values_[at(value)];
      if (!v.exists || v.released) continue;
      if (!v.material && !materialize(value, true)) return std::move(out_);
      lock(value);  // for good
    }
    return std::move(out_);
  }

 private:
  struct Value {
    bool exists = false, material = false, released = false, pinned = false;
    std::int32_t locks = 0;
    std::int64_t last_access = 0;
    bool stale = false;  // its entry in pool_cost_ may be out of date
    std::size_t pool_place = nowhere;
    std::int64_t entered = 0;  // the pool, in order
    std::int32_t eq_class = -1;
  };

  bool step(const DtrLog::Command& command) {
    Value& v = values_[at(command.value)];
    if (command.what == DtrLog::What::release) {
      v.released = true;
      if (v.material && !v.pinned) evict(command.value);
      return true;
    }
    v.exists = true;
    for (const std::int32_t parent : log_.parents[at(command.value)]) children_[at(parent)].push_back(command.value);
    if (heuristic_ == DtrHeuristic::h_dtr_eq) v.eq_class = new_class(0);
    if (!materialize(command.value, false)) return false;
    access(command.value);
    if (command.what == DtrLog::What::constant) {
      lock(command.value);
      v.pinned = true;
    }
    return true;
  }

  bool materialize(std::int32_t value, bool again) {
    const auto& parents = log_.parents[at(value)];
    for (const std::int32_t parent : parents) access(parent);
    std::vector<std::int32_t> gone;
    for (const std::int32_t parent : parents) values_[at(parent)].material ? lock(parent) : gone.push_back(parent);
    for (const std::int32_t parent : gone) {
      if (!values_[at(parent)].material && !materialize(parent, true)) return false;
      lock(parent);
    }
    const std::int64_t bytes = log_.bytes[at(value)], cost = log_.cost[at(value)];
    while (used_ + bytes > budget_) {
      if (pool_.empty()) {
        out_.end = DtrRun::End::out_of_memory;
        return false;
      }
      evict(choose());
    }
    clock_ += cost;
    used_ += bytes;
    out_.peak = std::max(out_.peak, used_);
    (again ? out_.again_cost : out_.model_cost) += cost;
    out_.moves.push_back({value, false});
    become_material(value);
    enter_pool(value);
    for (const std::int32_t parent : parents) unlock(parent);
    if (out_.again_cost > most_again_) {
      out_.end = DtrRun::End::thrashing;
      return false;
    }
    return true;
  }

  // ---- who may go: the pool, what the score takes of each beside it, so that a choice is one scan of plain arrays

  void enter_pool(std::int32_t value) {
    Value& v = values_[at(value)];
    v.pool_place = pool_.size();
    v.entered = ++entries_;
    pool_.push_back(value);
    pool_cost_.push_back(0);
    pool_bytes_.push_back(static_cast<double>(log_.bytes[at(value)]));
    pool_access_.push_back(static_cast<double>(v.last_access));
    becomes_stale(value);
  }
  void becomes_stale(std::int32_t value) {
    if (!std::exchange(values_[at(value)].stale, true)) stale_.push_back(value);
  }
  void leave_pool(std::int32_t value) {
    const std::size_t place = values_[at(value)].pool_place;
    values_[at(pool_.back())].pool_place = place;
    const auto take_last = [place](auto& list) {
      list[place] = list.back();
      list.pop_back();
    };
    take_last(pool_);
    take_last(pool_cost_);
    take_last(pool_bytes_);
    take_last(pool_access_);
    values_[at(value)].pool_place = nowhere;
  }
  void lock(std::int32_t value) {
    if (values_[at(value)].locks++ == 0) leave_pool(value);
  }
  void unlock(std::int32_t value) {
    if (--values_[at(value)].locks == 0) enter_pool(value);
  }
  void access(std::int32_t value) {
    Value& v = values_[at(value)];
    v.last_access = clock_;
    if (v.pool_place != nowhere) pool_access_[v.pool_place] = static_cast<double>(clock_);
  }

  std::int32_t choose() {
    if (heuristic_ == DtrHeuristic::h_dtr_eq) stale_ = pool_;  // a class may have changed far from a value
    for (const std::int32_t value : stale_) {
      values_[at(value)].stale = false;
      if (const std::size_t place = values_[at(value)].pool_place; place != nowhere)
        pool_cost_[place] = static_cast<double>(cost_around(value));
    }
    stale_.clear();
    scores_.resize(pool_.size());
    switch (heuristic_) {
      case DtrHeuristic::lru:
        scores_ = pool_access_;
        break;
      case DtrHeuristic::size:
        for (std::size_t i = 0; i < scores_.size(); ++i) scores_[i] = 1 / pool_bytes_[i];
        break;
      case DtrHeuristic::msps:
        for (std::size_t i = 0; i < scores_.size(); ++i) scores_[i] = pool_cost_[i] / pool_bytes_[i];
        break;
      default: {
        const auto now = static_cast<double>(clock_);
        for (std::size_t i = 0; i < scores_.size(); ++i)
          scores_[i] = pool_cost_[i] / (pool_bytes_[i] * (now - pool_access_[i]));
      }
    }
    return pool_[least_score()];
  }

  /// Of equal scores the last to enter; of zeros the first, where the published loop ends. What has no bytes or was
  /// accessed now stands at infinity.
  std::size_t least_score() const {
    constexpr double never = std::numeric_limits<double>::infinity();
    double least = never;
    for (const double score : scores_) least = score < least ? score : least;
    std::size_t best = scores_.size();
    for (std::size_t i = 0; i < scores_.size(); ++i) {
      if (!(scores_[i] == least || (least == never && !(scores_[i] < never)))) continue;
      const auto entered = [&](std::size_t k) { return values_[at(pool_[k])].entered; };
      if (best == scores_.size() || (entered(i) > entered(best)) == (least != 0)) best = i;
    }
    return best;
  }

  std::int64_t cost_around(std::int32_t value) {
    std::int64_t cost = log_.cost[at(value)];
    if (heuristic_ == DtrHeuristic::h_dtr || heuristic_ == DtrHeuristic::msps) cost += around(value, Way::ancestors);
    if (heuristic_ == DtrHeuristic::h_dtr) cost += around(value, Way::descendants);
    if (heuristic_ == DtrHeuristic::h_dtr_eq) cost += classes_around(value);
    return cost;
  }

  // ---- what is gone around a value

  const std::vector<std::int32_t>& next(std::int32_t value, Way way) const {
    return way == Way::ancestors ? log_.parents[at(value)] : children_[at(value)];
  }

  /// Calls `inside` with each evicted value reached through evicted ones, `border` with the material ones behind.
  template <class Inside, class Border>
  void walk(std::int32_t from, Way way, const Inside& inside, const Border& border) {
    ++mark_;
    marks_.resize(values_.size(), 0);
    stack_.assign(1, from);
    while (!stack_.empty()) {
      const std::int32_t value = stack_.back();
      stack_.pop_back();
      for (const std::int32_t other : next(value, way)) {
        if (marks_[at(other)] == mark_) continue;
        marks_[at(other)] = mark_;
        if (values_[at(other)].material) {
          border(other);
        } else {
          inside(other);
          stack_.push_back(other);
        }
      }
    }
  }

  std::int64_t around(std::int32_t value, Way way) {
    std::int64_t sum = 0;
    const auto add = [&](std::int32_t other) { sum += log_.cost[at(other)]; };
    walk(value, way, add, [](std::int32_t) {});
    return sum;
  }

  /// What lies beyond `value` counts for the material values on the other side, or no longer.
  void sums_change_around(std::int32_t value) {
    if (heuristic_ != DtrHeuristic::h_dtr && heuristic_ != DtrHeuristic::msps) return;
    const auto none = [](std::int32_t) {};
    const auto changes = [&](std::int32_t other) {
      if (values_[at(other)].pool_place != nowhere) becomes_stale(other);
    };
    if (heuristic_ == DtrHeuristic::h_dtr) walk(value, Way::ancestors, none, changes);
    walk(value, Way::descendants, none, changes);
  }

  void evict(std::int32_t value) {
    Value& v = values_[at(value)];
    leave_pool(value);
    v.material = false;
    used_ -= log_.bytes[at(value)];
    out_.moves.push_back({value, true});
    sums_change_around(value);
    if (heuristic_ == DtrHeuristic::h_dtr_eq) join_classes(value);
  }

  void become_material(std::int32_t value) {
    values_[at(value)].material = true;
    sums_change_around(value);
    if (heuristic_ != DtrHeuristic::h_dtr_eq) return;
    Value& v = values_[at(value)];
    class_cost_[at(root(v.eq_class))] -= log_.cost[at(value)];
    v.eq_class = -1;
  }

  // ---- classes of evicted neighbours

  std::int32_t new_class(std::int64_t cost) {
    class_cost_.push_back(cost);
    class_parent_.push_back(-1);
    return static_cast<std::int32_t>(class_cost_.size()) - 1;
  }
  std::int32_t root(std::int32_t of) {
    std::int32_t top = of;
    while (class_parent_[at(top)] >= 0) top = class_parent_[at(top)];
    while (of != top) {
      const std::int32_t up = class_parent_[at(of)];
      class_parent_[at(of)] = top;
      of = up;
    }
    return top;
  }
  template <class Do>
  void evicted_neighbours(std::int32_t value, const Do& act) {
    for (const Way way : {Way::ancestors, Way::descendants})
      for (const std::int32_t other : next(value, way))
        if (!values_[at(other)].material) act(other);
  }
  void join_classes(std::int32_t value) {
    Value& v = values_[at(value)];
    v.eq_class = new_class(log_.cost[at(value)]);
    evicted_neighbours(value, [&](std::int32_t other) {
      const std::int32_t theirs = root(values_[at(other)].eq_class), ours = root(v.eq_class);
      if (theirs == ours) return;
      class_parent_[at(theirs)] = ours;
      class_cost_[at(ours)] += class_cost_[at(theirs)];
    });
  }
  std::int64_t classes_around(std::int32_t value) {
    seen_.clear();
    std::int64_t sum = 0;
    evicted_neighbours(value, [&](std::int32_t other) {
      const std::int32_t of = root(values_[at(other)].eq_class);
      if (std::ranges::find(seen_, of) != seen_.end()) return;
      seen_.push_back(of);
      sum += class_cost_[at(of)];
    });
    return sum;
  }

  const DtrLog& log_;
  const std::int64_t budget_;
  const DtrHeuristic heuristic_;
  const std::int64_t most_again_;
  std::vector<Value> values_;
  std::vector<std::vector<std::int32_t>> children_;
  std::vector<std::int32_t> pool_, stale_, stack_, seen_;
  std::vector<double> pool_cost_, pool_bytes_, pool_access_, scores_;  // beside pool_
  std::vector<std::int64_t> marks_;
  std::int64_t mark_ = 0, entries_ = 0, clock_ = 1, used_ = 0;
  std::vector<std::int64_t> class_cost_;
  std::vector<std::int32_t> class_parent_;
  DtrRun out_;
};

}  // namespace

const std::vector<std::string>& heuristic_names() {
  static const std::vector<std::string> all(names.begin(), names.end());
  return all;
}

std::optional<DtrHeuristic> find_heuristic(const std::string& name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<DtrHeuristic>(found - names.begin());
}

DtrRun run_dtr(const DtrLog& log, std::int64_t budget, DtrHeuristic heuristic, std::int64_t most_again) {
  return Runtime(log, budget, heuristic, most_again).run();
}

DagSchedule dtr_schedule(const DtrRun& run, const Dag& dag) {
  std::vector<bool> there(dag.cost.size(), false);
  for (const DagMove& move : run.moves) there[at(move.row)] = !move.is_drop;
  std::vector<DagMove> moves = run.moves;
  for (std::int32_t row = 0; row < dag.rows(); ++row)
    if (there[at(row)] && !dag.stays[at(row)]) moves.push_back({row, true});
  const auto schedule = measure(dag, std::move(moves));
  check(schedule.has_value(), "a run of DTR is a schedule");
  return *schedule;
}

DtrLog dtr_log(const Dag& dag) {
  DtrLog out{dag.cost, dag.bytes, dag.inputs, {}};
  using What = DtrLog::What;
  for (std::int32_t row = 0; row < dag.rows(); ++row) {
    const bool constant = dag.inputs[at(row)].empty() && dag.stays[at(row)];
    if (constant) out.cost[at(row)] = 0;
    out.commands.push_back({constant ? What::constant : What::call, row});
    for (const std::int32_t input : dag.inputs[at(row)])
      if (dag.readers[at(input)].back() == row && !dag.stays[at(input)]) out.commands.push_back({What::release, input});
    if (dag.readers[at(row)].empty() && !dag.stays[at(row)]) out.commands.push_back({What::release, row});
  }
  return out;
}

}  // namespace tidemark
