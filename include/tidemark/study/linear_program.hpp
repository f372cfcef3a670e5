/// What is the least of a linear function over linear constraints, with or without whole numbers?
///
/// Solved by COIN-OR's Clp and CBC where the build has them (Debian: coinor-libcbc-dev).
#pragma once

#include <cstdint>
#include <vector>

namespace tidemark {

/// Minimise cost * x with rows * x >= least, low <= x <= high. Coefficients are whole, so that a bound can be proven.
struct LinearProgram {
  struct Term {
    std::int32_t column = 0;
    std::int64_t factor = 0;
  };
  std::vector<std::int64_t> cost, low, high;  // by column
  std::vector<bool> whole;                    // by column: x must be a whole number
  std::vector<std::vector<Term>> rows;
  std::vector<std::int64_t> least;  // by row

  std::int32_t add_column(std::int64_t column_cost, std::int64_t from, std::int64_t to, bool is_whole);
  void add_row(std::vector<Term> terms, std::int64_t at_least);
};

bool has_linear_solver();

/// Throws InputError that says what to install where the build has no solver.
void require_linear_solver();

struct Relaxation {
  bool feasible = false;
  double value = 0;         // as the solver says
  std::int64_t proven = 0;  // no x costs less: from the solver's dual values in whole numbers, rounded up
};
/// Without `whole`. `seconds`: nothing but the trivial bound past it.
Relaxation relax(const LinearProgram& program, double seconds);

struct WholeSolution {
  std::vector<std::int64_t> x;  // by column; empty: none found
  bool is_proven = false;       // optimal, or proven that there is none
  std::int64_t bound = 0;       // no solution costs less
};
/// Ends at the first moment past `seconds`.
WholeSolution solve(const LinearProgram& program, double seconds);

}  // namespace tidemark
