#include "tidemark/study/revolve.hpp"

#include <algorithm>
#include <limits>
#include <string_view>
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

void append_op(std::string& out, std::string_view kind, std::int64_t step) {
  if (!out.empty()) out += ' ';
  out += kind;
  if (step >= 0) out += std::to_string(step);
}

}  // namespace

std::int64_t revolve_forward_steps(std::int64_t n, std::int64_t slots) {
  check(n >= 1 && slots >= 1, "revolve needs a step and a slot");
  const std::int64_t r = repetition(n, slots);
  const std::int64_t extra = r * n - (r == 0 ? 0 : beta(slots + 1, r - 1));
  return n + extra;
}

void write_revolve(std::int64_t first, std::int64_t n, std::int64_t slots, bool to_end, std::string& out) {
  const auto op = [&](const char* kind, std::int64_t i) { append_op(out, kind, i); };
  // Right parts one after the other, left parts in reverse: a loop over what is still to do.
  struct Part {
    std::int64_t first, n, s;
    bool to_end;
  };
  std::vector<Part> parts = {{first, n, slots, to_end}};
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

std::string revolve_sequence(std::int64_t n, std::int64_t slots) {
  check(n >= 1 && slots >= 1, "revolve needs a step and a slot");
  std::string out;
  write_revolve(0, n, slots, true, out);
  return out;
}

Mixed::Mixed(std::int64_t longest, std::int64_t most_units)
    : most_units_(most_units), choices_(static_cast<std::size_t>((longest + 1) * (most_units + 1))) {
  check(longest >= 1 && most_units >= 1, "mixed checkpointing needs a step and a unit");
  for (std::int64_t n = 1; n <= longest; ++n)
    for (std::int64_t s = 0; s <= most_units; ++s) {
      Choice& best = choices_[at(n, s)];
      if (n <= s + 1) {
        best.steps = n;
        continue;
      }
      best.steps = std::numeric_limits<std::int64_t>::max();
      if (s == 0) continue;  // nothing to restart from
      // In one unit only the last step is left to the right of a restart.
      if (s > 1) best = {1 + choices_[at(n - 1, s - 1)].steps, 0};
      for (std::int64_t i = s == 1 ? n - 1 : 2; i < n; ++i) {
        const std::int64_t steps = i + choices_[at(i, s)].steps + choices_[at(n - i, s - 1)].steps;
        if (steps < best.steps) best = {steps, i};
      }
    }
}

std::int64_t Mixed::forward_steps(std::int64_t n, std::int64_t units) const { return choices_[at(n, units)].steps; }

std::string Mixed::sequence(std::int64_t n, std::int64_t units) const {
  std::string out;
  // A step whose adjoint data is kept is reversed when all behind it is: a part of no steps.
  struct Part {
    std::int64_t first, n, units;
    bool to_end;
  };
  std::vector<Part> parts = {{0, n, units, true}};
  while (!parts.empty()) {
    const Part part = parts.back();
    parts.pop_back();
    if (part.n == 0) {
      append_op(out, "B", part.first);
      continue;
    }
    const std::int64_t advance = choices_[at(part.n, part.units)].advance;
    if (advance > 0) {
      append_op(out, "Fc", part.first);
      for (std::int64_t k = 1; k < advance; ++k) append_op(out, "Fn", part.first + k);
      parts.push_back({part.first, advance, part.units, false});
      parts.push_back({part.first + advance, part.n - advance, part.units - 1, part.to_end});
      continue;
    }
    append_op(out, "Fe", part.first);
    if (part.n == 1 && part.to_end) append_op(out, "L", -1);
    parts.push_back({part.first, 0, 0, false});
    if (part.n > 1) parts.push_back({part.first + 1, part.n - 1, part.units - 1, part.to_end});
  }
  return out;
}

}  // namespace tidemark
