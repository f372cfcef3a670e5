#include "tidemark/study/rotor.hpp"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

/// best[m] = min(best[m], cost + a[m] + b[m]): the whole cost of the dynamic program is in this loop.
template <class Time>
void take_least(Time* best, const Time* a, const Time* b, Time cost, std::int64_t count) {
  for (std::int64_t m = 0; m < count; ++m) best[m] = std::min(best[m], static_cast<Time>(cost + a[m] + b[m]));
}

template <class Time>
class Table {
 public:
  static constexpr Time never = std::numeric_limits<Time>::max() / 4;

  Table(const ChainCosts& costs, std::int64_t limit, RotorVariant variant)
      : costs_(costs),
        tight_(variant == RotorVariant::tight),
        stages_(static_cast<std::int64_t>(costs.stages())),
        limit_(limit),
        width_(limit + 1),
        cells_(static_cast<std::size_t>((stages_ + 1) * (stages_ + 2) / 2 * width_), never) {
    prefix_.push_back(0);
    for (const std::int64_t time : costs.forward_time) prefix_.push_back(prefix_.back() + time);
    for (std::int64_t length = 0; length <= stages_; ++length)
      tbb::parallel_for(std::int64_t{0}, stages_ + 1 - length, [&](std::int64_t i) { fill(i, i + length); });
  }

  Time least(std::int64_t i, std::int64_t l, std::int64_t m) const { return m < 0 ? never : row(i, l)[m]; }

  void write(std::int64_t i, std::int64_t l, std::int64_t m, std::string& out) const {
    if (i == l) {
      if (i < stages_) append(out, "Fe", i);
      append(out, i < stages_ ? "B" : "L", i < stages_ ? i : -1);
      return;
    }
    const Time target = least(i, l, m);
    if (save_all(i, l, m, forward_need(i, l, l)) == target) {
      append(out, "Fe", i);
      write(i + 1, l, m - saved(i + 1), out);
      append(out, "B", i);
      return;
    }
    for (std::int64_t j = i + 1; j <= l; ++j) {
      if (checkpoint(i, j, l, m) != target) continue;
      append(out, "Fc", i);
      for (std::int64_t k = i + 1; k < j; ++k) append(out, "Fn", k);
      write(j, l, m - boundary(j), out);
      write(i, j - 1, m, out);
      return;
    }
    throw InternalError("rotor's table has a value that no branch gives");
  }

 private:
  static void append(std::string& out, const char* op, std::int64_t stage) {
    if (!out.empty()) out += ' ';
    out += op;
    if (stage >= 0) out += std::to_string(stage);
  }
  std::size_t begin(std::int64_t i, std::int64_t l) const {
    // Rows of one i stand together, in order of l.
    const std::int64_t before = i * (stages_ + 1) - i * (i - 1) / 2;
    return static_cast<std::size_t>((before + l - i) * width_);
  }
  const Time* row(std::int64_t i, std::int64_t l) const { return cells_.data() + begin(i, l); }
  Time* row(std::int64_t i, std::int64_t l) { return cells_.data() + begin(i, l); }

  /// a[L + 1] = abar[L + 1] = 0.
  std::int64_t boundary(std::int64_t i) const { return i > stages_ ? 0 : costs_.boundary[static_cast<std::size_t>(i)]; }
  std::int64_t saved(std::int64_t i) const { return i > stages_ ? 0 : costs_.saved[static_cast<std::size_t>(i)]; }
  std::int64_t forward_workspace(std::int64_t i) const {
    return i >= stages_ ? 0 : costs_.forward_workspace[static_cast<std::size_t>(i)];
  }
  std::int64_t backward_workspace(std::int64_t i) const {
    return costs_.backward_workspace[static_cast<std::size_t>(i)];
  }
  Time own_time(std::int64_t i) const {
    const std::int64_t forward = i >= stages_ ? 0 : costs_.forward_time[static_cast<std::size_t>(i)];
    return static_cast<Time>(forward + costs_.backward_time[static_cast<std::size_t>(i)]);
  }
  Time forward_time(std::int64_t first, std::int64_t end) const {
    return static_cast<Time>(prefix_[static_cast<std::size_t>(end)] - prefix_[static_cast<std::size_t>(first)]);
  }

  /// What Fe_i and B_i need beside x_i when y of the boundary behind `live` is there during Fe_i.
  std::int64_t own_need(std::int64_t i, std::int64_t live) const {
    return std::max(boundary(live) + saved(i + 1) + forward_workspace(i),
                    boundary(i) + boundary(i + 1) + saved(i + 1) + backward_workspace(i));
  }
  /// What the forwards i .. j - 1 need that keep only x_i and leave x_j, under y_{l+1}.
  std::int64_t forward_need(std::int64_t i, std::int64_t j, std::int64_t l) const {
    std::int64_t need = boundary(l + 1) + boundary(i + 1) + forward_workspace(i);
    for (std::int64_t k = i + 1; k < j; ++k)
      need = std::max(need, boundary(l + 1) + boundary(k) + boundary(k + 1) + forward_workspace(k));
    return need;
  }

  /// `widest`: what the published variant demands of every branch, forward_need(i, l, l).
  Time save_all(std::int64_t i, std::int64_t l, std::int64_t m, std::int64_t widest) const {
    const std::int64_t inner = m - saved(i + 1);
    if (inner < 0 || m < (tight_ ? own_need(i, l + 1) : widest)) return never;
    return capped(tight_ ? own_time(i) : least(i, i, m), least(i + 1, l, inner));
  }
  Time checkpoint(std::int64_t i, std::int64_t j, std::int64_t l, std::int64_t m) const {
    if (m < boundary(j) || m < forward_need(i, tight_ ? j : l, l)) return never;
    return capped(static_cast<Time>(forward_time(i, j) + least(j, l, m - boundary(j))), least(i, j - 1, m));
  }
  static Time capped(Time a, Time b) { return std::min<Time>(static_cast<Time>(a + b), never); }

  void fill(std::int64_t i, std::int64_t l) {
    Time* best = row(i, l);
    if (i == l) {
      for (std::int64_t m = std::max<std::int64_t>(0, own_need(i, i + 1)); m <= limit_; ++m) best[m] = own_time(i);
      return;
    }
    const std::int64_t widest = forward_need(i, l, l);
    std::int64_t need = boundary(l + 1) + boundary(i + 1) + forward_workspace(i);
    for (std::int64_t j = i + 1; j <= l; ++j) {
      const std::int64_t from = std::max(boundary(j), tight_ ? need : widest);
      if (from <= limit_)
        take_least(best + from, row(j, l) + (from - boundary(j)), row(i, j - 1) + from, forward_time(i, j),
                   limit_ + 1 - from);
      need = std::max(need, boundary(l + 1) + boundary(j) + boundary(j + 1) + forward_workspace(j));
    }
    for (std::int64_t m = 0; m <= limit_; ++m) best[m] = std::min({best[m], save_all(i, l, m, widest), never});
  }

  const ChainCosts& costs_;
  bool tight_;
  std::int64_t stages_, limit_, width_;
  std::vector<std::int64_t> prefix_;
  std::vector<Time> cells_;
};

template <class Time>
std::optional<ChainSchedule> solve(const ChainCosts& costs, std::int64_t limit, RotorVariant variant) {
  const auto last = static_cast<std::int64_t>(costs.stages());
  const std::int64_t free = limit - costs.boundary.front();
  if (free < 0) return std::nullopt;
  const Table<Time> table(costs, free, variant);
  const Time time = table.least(0, last, free);
  if (time >= Table<Time>::never) return std::nullopt;
  ChainSchedule out{static_cast<std::int64_t>(time), ""};
  table.write(0, last, free, out.sequence);
  return out;
}

}  // namespace

std::optional<ChainSchedule> rotor(const ChainCosts& costs, std::int64_t limit, RotorVariant variant) {
  // No schedule is worth more than running each stage once for every stage behind it.
  Int128 worst = 0;
  for (const std::int64_t time : costs.forward_time) worst += static_cast<Int128>(time) * (costs.stages() + 1);
  for (const std::int64_t time : costs.backward_time) worst += time;
  if (worst < Table<std::uint32_t>::never) return solve<std::uint32_t>(costs, limit, variant);
  if (worst >= Table<std::int64_t>::never) throw InputError("the chain's times are too large to be added");
  return solve<std::int64_t>(costs, limit, variant);
}

}  // namespace tidemark
