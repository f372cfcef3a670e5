#include "tidemark/study/two_level.hpp"

#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/study/revolve.hpp"

namespace tidemark {
namespace {

/// What is best for n steps whose first state has just been made, and for n whose first state lies on the outer level.
/// A split of 0 leaves all of them to memory.
struct Best {
  Int128 made = 0, kept = 0;
  bool writes = false;     // made: it is written to the outer level first
  std::int64_t split = 0;  // kept: so many steps run forward, and what they reach is next
};

class TwoLevel {
 public:
  TwoLevel(std::int64_t n, std::int64_t memory, std::int64_t outer, const TwoLevelCosts& costs)
      : memory_(memory), is_bounded_(outer < n), columns_(is_bounded_ ? outer + 1 : 1) {
    best_.resize(static_cast<std::size_t>((n + 1) * columns_));
    for (std::int64_t k = 1; k <= n; ++k) {
      const Int128 in_memory = Int128{costs.forward} * revolve_forward_steps(k, memory) + Int128{costs.backward} * k;
      for (std::int64_t m = 0; m < columns_; ++m) {
        Best& best = best_[at(k, m)];
        best = {in_memory, in_memory, false, 0};
        if (is_bounded_ && m == 0) continue;
        for (std::int64_t j = 1; j < k; ++j) {
          const Int128 split = Int128{costs.forward} * j + of(k - j, less(m)).made + costs.read + of(j, m).kept;
          if (split < best.kept) best = {best.made, split, false, j};
        }
        if (costs.write + best.kept < best.made) {
          best.made = costs.write + best.kept;
          best.writes = true;
        }
      }
    }
  }

  Int128 makespan(std::int64_t n) const { return of(n, columns_ - 1).made; }

  std::string sequence(std::int64_t n) const {
    std::string out;
    const auto op = [&](std::string_view kind, std::int64_t step) {
      out += (out.empty() ? "" : " ") + std::string(kind) + std::to_string(step);
    };
    // Right parts one after the other, left parts in reverse: a loop over what is still to do.
    struct Part {
      std::int64_t first, n, outer;
      bool returns;  // its first state lies on the outer level
      bool to_end;
    };
    std::vector<Part> parts = {{0, n, columns_ - 1, false, true}};
    while (!parts.empty()) {
      const Part part = parts.back();
      parts.pop_back();
      const Best& best = of(part.n, part.outer);
      if (part.returns) op("Inx", part.first);
      if (part.returns ? best.split == 0 : !best.writes) {
        write_revolve(part.first, part.n, memory_, part.to_end, out);
        continue;
      }
      if (!part.returns) op("Outx", part.first);
      for (std::int64_t k = 0; k < best.split; ++k) op("Fn", part.first + k);
      parts.push_back({part.first, best.split, part.outer, true, false});
      parts.push_back({part.first + best.split, part.n - best.split, less(part.outer), false, part.to_end});
    }
    return out;
  }

 private:
  std::int64_t less(std::int64_t outer) const { return is_bounded_ ? outer - 1 : outer; }
  std::size_t at(std::int64_t n, std::int64_t outer) const { return static_cast<std::size_t>(n * columns_ + outer); }
  const Best& of(std::int64_t n, std::int64_t outer) const { return best_[at(n, outer)]; }

  std::int64_t memory_;
  bool is_bounded_;       // by fewer outer slots than there are steps
  std::int64_t columns_;  // free outer slots, from 0; one column without a limit
  std::vector<Best> best_;
};

}  // namespace

TwoLevelSchedule two_level(std::int64_t n, std::int64_t memory, std::int64_t outer, const TwoLevelCosts& costs) {
  check(n >= 1 && memory >= 1 && outer >= 0, "two-level checkpointing needs a step and a slot");
  const TwoLevel levels(n, memory, outer, costs);
  return {levels.makespan(n), levels.sequence(n)};
}

}  // namespace tidemark
