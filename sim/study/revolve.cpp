#include "tidemark/study/revolve.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/base/units.hpp"

namespace tidemark {
namespace {

/// C(s + r, s), the longest chain that s slots reverse when no step runs forward more than r times; capped.
std::int64_t beta(std::int64_t s, std::int64_t r) {
  if (r < 0) return 0;
  constexpr Int128 cap = std::numeric_limits<std::int64_t>::max() / 4;
  Int128 value = 1;
  for (std::int64_t k = 1; k <= std::min(s, r); ++k) {
    value = value * (std::max(s, r) + k) / k;
    if (value > cap) return static_cast<std::int64_t>(cap);
  }
  return static_cast<std::int64_t>(value);
}

std::int64_t repetition(std::int64_t n, std::int64_t s) {
  std::int64_t r = 0;
  while (beta(s, r) < n) ++r;
  return r;
}

/// Where to put the next checkpoint: any split that keeps both parts within their binomial bounds is optimal
/// (Griewank and Walther 2000, the lower end of their range).
std::int64_t advance(std::int64_t n, std::int64_t s) {
  if (s == 1) return n - 1;
  const std::int64_t r = repetition(n, s);
  const std::int64_t lowest = std::max<std::int64_t>(1, n - beta(s - 1, r));  // the right part must fit s - 1, r
  const std::int64_t highest = std::min(beta(s, r - 1), n - 1);               // the left part runs once more
  const std::int64_t wanted = std::max(beta(s, r - 2), lowest);
  return std::clamp(wanted, lowest, highest);
}

void write(std::int64_t first, std::int64_t n, std::int64_t s, bool to_end, std::string& out) {
  const auto op = [&](const char* kind, std::int64_t i) {
    if (!out.empty()) out += ' ';
    out += kind;
    if (i >= 0) out += std::to_string(i);
  };
  // Right parts one after the other, left parts in reverse: a loop over what is still to do.
  struct Part {
    std::int64_t first, n, s;
    bool to_end;
  };
  std::vector<Part> parts = {{first, n, s, to_end}};
  while (!parts.empty()) {
    const Part part = parts.back();
    parts.pop_back();
    if (part.n == 1) {
      op("Fe", part.first);
      if (part.to_end) op("L", -1);
      op("B", part.first);
      continue;
    }
    const std::int64_t j = advance(part.n, part.s);
    op("Fc", part.first);
    for (std::int64_t k = 1; k < j; ++k) op("Fn", part.first + k);
    parts.push_back({part.first, j, part.s, false});
    parts.push_back({part.first + j, part.n - j, std::max<std::int64_t>(1, part.s - 1), part.to_end});
  }
}

}  // namespace

std::int64_t revolve_forward_steps(std::int64_t n, std::int64_t slots) {
  check(n >= 1 && slots >= 1, "revolve needs a step and a slot");
  const std::int64_t r = repetition(n, slots);
  const std::int64_t extra = r * n - (r == 0 ? 0 : beta(slots + 1, r - 1));
  return n + extra;
}

std::string revolve_sequence(std::int64_t n, std::int64_t slots) {
  check(n >= 1 && slots >= 1, "revolve needs a step and a slot");
  std::string out;
  write(0, n, slots, true, out);
  return out;
}

std::int64_t mixed_forward_steps(std::int64_t n, std::int64_t units) {
  check(n >= 1 && units >= 1, "mixed checkpointing needs a step and a unit");
  const auto at = [](std::vector<std::vector<std::int64_t>>& table, std::int64_t i, std::int64_t s) -> std::int64_t& {
    return table[static_cast<std::size_t>(i)][static_cast<std::size_t>(s)];
  };
  std::vector<std::vector<std::int64_t>> table(static_cast<std::size_t>(n) + 1,
                                               std::vector<std::int64_t>(static_cast<std::size_t>(units) + 1, 0));
  for (std::int64_t s = 1; s <= units; ++s)
    for (std::int64_t k = 1; k <= n; ++k) {
      if (k <= s + 1) {
        at(table, k, s) = k;
      } else if (s == 1) {
        at(table, k, s) = k * (k + 1) / 2 - 1;
      } else {
        std::int64_t best = 1 + at(table, k - 1, s - 1);
        for (std::int64_t i = 2; i < k; ++i) best = std::min(best, i + at(table, i, s) + at(table, k - i, s - 1));
        at(table, k, s) = best;
      }
    }
  return at(table, n, units);
}

namespace {

/// opt_k(l, m) for l = n - 1 steps after the first (Herrmann and Pallez 2020, H-Revolve), level 0 is RAM, level 1 the
/// disk.
class TwoLevel {
 public:
  TwoLevel(std::int64_t n, std::int64_t ram, std::int64_t disk, const TwoLevelCosts& costs)
      : costs_(costs), l_(n - 1), ram_(ram), disk_(disk) {
    fill_ram();
    fill_disk();
  }
  double makespan() const {
    const std::size_t l = static_cast<std::size_t>(l_);
    return disk_ == 0 ? ram_best_[l][static_cast<std::size_t>(ram_)] : disk_best_[l][static_cast<std::size_t>(disk_)];
  }

 private:
  static constexpr double never = 1e300;
  using Grid = std::vector<std::vector<double>>;

  void fill_ram() {
    // One backward of a step: its forward, then the adjoint.
    const double step = costs_.forward + costs_.backward;
    ram_best_ = Grid(static_cast<std::size_t>(l_) + 1, std::vector<double>(static_cast<std::size_t>(ram_) + 1, never));
    for (std::int64_t m = 0; m <= ram_; ++m) value(ram_best_, 0, m) = step;
    for (std::int64_t l = 1; l <= l_; ++l)
      for (std::int64_t m = 1; m <= ram_; ++m) {
        double best = never;
        if (m == 1) {
          // Every step from the one kept state: forwards 0..k for each.
          best = static_cast<double>(l + 1) * step + static_cast<double>(l * (l + 1)) / 2 * costs_.forward;
        } else {
          for (std::int64_t j = 1; j <= l; ++j)
            best = std::min(best, static_cast<double>(j) * costs_.forward + value(ram_best_, l - j, m - 1) +
                                      value(ram_best_, j - 1, m));
        }
        value(ram_best_, l, m) = best;
      }
  }

  void fill_disk() {
    disk_kept_ =
        Grid(static_cast<std::size_t>(l_) + 1, std::vector<double>(static_cast<std::size_t>(disk_) + 1, never));
    disk_best_ = disk_kept_;
    for (std::int64_t l = 0; l <= l_; ++l) {
      const double in_ram = value(ram_best_, l, ram_);
      value(disk_best_, l, 0) = in_ram;
      for (std::int64_t m = 1; m <= disk_; ++m) {
        double kept = in_ram;
        for (std::int64_t j = 1; j <= l; ++j)
          kept = std::min(kept, static_cast<double>(j) * costs_.forward + value(disk_best_, l - j, m - 1) +
                                    costs_.disk_read + value(disk_kept_, j - 1, m));
        value(disk_kept_, l, m) = kept;
        value(disk_best_, l, m) = std::min(in_ram, costs_.disk_write + kept);
      }
    }
  }

  static double& value(Grid& grid, std::int64_t l, std::int64_t m) {
    return grid[static_cast<std::size_t>(l)][static_cast<std::size_t>(m)];
  }

  TwoLevelCosts costs_;
  std::int64_t l_, ram_, disk_;
  Grid ram_best_, disk_kept_, disk_best_;
};

}  // namespace

double two_level_makespan(std::int64_t n, std::int64_t ram, std::int64_t disk, const TwoLevelCosts& costs) {
  check(n >= 1 && ram >= 1 && disk >= 0, "two-level checkpointing needs a step and a slot");
  return TwoLevel(n, ram, disk, costs).makespan();
}

}  // namespace tidemark
