#include "tidemark/study/checkmate.hpp"

#include <algorithm>
#include <utility>

#include "tidemark/base/errors.hpp"
#include "tidemark/study/linear_program.hpp"

namespace tidemark {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

/// `tight`: one constraint for each reason to hold a value, instead of their sum. The same whole solutions, and a
/// higher optimum without whole numbers.
class Formulation {
 public:
  Formulation(const Dag& dag, std::int64_t limit, bool tight)
      : dag_(dag), rows_(dag.rows()), unit_(dag.unit()), limit_(limit / unit_) {
    add_columns();
    for (std::int32_t t = 0; t < rows_; ++t) {
      add_dependencies(t);
      frees_of_.assign(dag.inputs.size(), {});
      for (std::int32_t k = 0; k < rows_; ++k) add_memory(t, k, tight);
      if (tight) add_balance(t);
    }
  }

  const LinearProgram& program() const { return program_; }

  /// R, stage by stage, without what runs though it is there.
  std::vector<std::int32_t> runs(const std::vector<std::int64_t>& x) const {
    std::vector<std::int32_t> out;
    for (std::int32_t t = 0; t < rows_; ++t)
      for (std::int32_t k = 0; k <= t; ++k)
        if (x[at(run(t, k))] != 0 && (k == t || x[at(held(t, k))] == 0)) out.push_back(k);
    return out;
  }

 private:
  using Term = LinearProgram::Term;
  std::int32_t run(std::int32_t t, std::int32_t i) const { return t * rows_ + i; }
  std::int32_t held(std::int32_t t, std::int32_t i) const { return (rows_ + t) * rows_ + i; }
  std::int32_t memory(std::int32_t t, std::int32_t k) const { return (2 * rows_ + t) * rows_ + k; }
  std::int64_t size(std::int32_t i) const { return dag_.bytes[at(i)] / unit_; }

  void add_columns() {
    for (std::int32_t t = 0; t < rows_; ++t)
      for (std::int32_t i = 0; i < rows_; ++i)
        program_.add_column(dag_.cost[at(i)], t == i ? 1 : 0, (dag_.stays[at(i)] ? t == i : i <= t) ? 1 : 0, true);
    for (std::int32_t t = 0; t < rows_; ++t)
      for (std::int32_t i = 0; i < rows_; ++i)
        program_.add_column(0, dag_.stays[at(i)] && i < t ? 1 : 0, i < t ? 1 : 0, true);
    for (std::int32_t t = 0; t < rows_; ++t)
      for (std::int32_t k = 0; k < rows_; ++k) program_.add_column(0, 0, limit_, false);
  }

  void add_dependencies(std::int32_t t) {
    for (std::int32_t v = 0; v < rows_; ++v)
      for (const std::int32_t u : dag_.inputs[at(v)])
        program_.add_row({{run(t, u), 1}, {held(t, u), 1}, {run(t, v), -1}}, 0);
    for (std::int32_t i = 0; t + 1 < rows_ && i < rows_; ++i)
      program_.add_row({{held(t, i), 1}, {run(t, i), 1}, {held(t + 1, i), -1}}, 0);
  }

  /// U(t, k), the memory while row k runs, in terms of U(t, k - 1).
  void add_memory(std::int32_t t, std::int32_t k, bool tight) {
    std::vector<Term> more = {{memory(t, k), 1}, {run(t, k), -size(k)}};
    std::vector<Term> less = {{memory(t, k), -1}, {run(t, k), size(k)}};
    const auto both = [&](std::int32_t column, std::int64_t factor) {
      more.push_back({column, -factor});
      less.push_back({column, factor});
    };
    if (k == 0) {
      for (std::int32_t i = 0; i < rows_; ++i) both(held(t, i), size(i));
    } else {
      both(memory(t, k - 1), 1);
      for (const std::int32_t i : dag_.inputs[at(k - 1)])
        if (!dag_.stays[at(i)]) both(add_free(t, i, k - 1, tight), -size(i));
    }
    program_.add_row(std::move(more), 0);
    program_.add_row(std::move(less), 0);
  }

  /// FREE(t, i, k): i goes after k has read it, no later row of the stage reads it, and stage t + 1 is without it.
  std::int32_t add_free(std::int32_t t, std::int32_t i, std::int32_t k, bool tight) {
    const std::int32_t free = program_.add_column(0, 0, 1, true);
    std::vector<Term> holding = {{run(t, k), -1}};  // 1 - R + S + later runs: how many reasons there are to hold i
    if (t + 1 < rows_) holding.push_back({held(t + 1, i), 1});
    for (const std::int32_t j : dag_.readers[at(i)])
      if (j > k) holding.push_back({run(t, j), 1});
    // Free where there is no reason to hold.
    std::vector<Term> forced = holding;
    forced.push_back({free, 1});
    program_.add_row(std::move(forced), 0);
    frees_of_[at(i)].push_back(free);
    if (tight) {
      program_.add_row({{run(t, k), 1}, {free, -1}}, 0);
      for (std::size_t h = 1; h < holding.size(); ++h) program_.add_row({{holding[h].column, -1}, {free, -1}}, -1);
      return free;
    }
    const auto most = static_cast<std::int64_t>(holding.size());
    std::vector<Term> barred;
    for (const Term& term : holding) barred.push_back({term.column, -term.factor});
    barred.push_back({free, -most});
    program_.add_row(std::move(barred), 1 - most);
    return free;
  }

  /// What goes was there, and what stage t + 1 begins with has not gone.
  void add_balance(std::int32_t t) {
    for (std::int32_t i = 0; i < rows_; ++i) {
      std::vector<Term> there = {{held(t, i), 1}, {run(t, i), 1}};
      if (t + 1 < rows_) there.push_back({held(t + 1, i), -1});
      for (const std::int32_t free : frees_of_[at(i)]) there.push_back({free, -1});
      program_.add_row(std::move(there), 0);
    }
  }

  const Dag& dag_;
  const std::int32_t rows_;
  const std::int64_t unit_, limit_;                  // of memory; the limit in units
  std::vector<std::vector<std::int32_t>> frees_of_;  // by row, of the stage at hand
  LinearProgram program_;
};

}  // namespace

std::optional<double> checkmate_relaxed(const Dag& dag, std::int64_t limit) {
  const Relaxation relaxed = relax(Formulation(dag, limit, false).program(), 1e9);
  return relaxed.feasible ? std::optional(relaxed.value) : std::nullopt;
}

CheckmateAnswer checkmate(const Dag& dag, std::int64_t limit, double seconds) {
  require_linear_solver();
  CheckmateAnswer out;
  out.bound = dag.total();
  const Formulation formulation(dag, limit, true);
  const WholeSolution found = solve(formulation.program(), seconds);
  out.is_proven = found.is_proven;
  out.bound = std::max(out.bound, found.bound);
  if (found.x.empty()) return out;
  out.schedule = measure(dag, formulation.runs(found.x));
  check(out.schedule && out.schedule->peak <= limit, "checkmate's schedule runs within its memory");
  return out;
}

}  // namespace tidemark
