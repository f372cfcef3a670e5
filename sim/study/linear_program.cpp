#include "tidemark/study/linear_program.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tidemark/base/errors.hpp"
#include "tidemark/base/units.hpp"

#ifdef TIDEMARK_HAS_CBC
#include <Cbc_C_Interface.h>
#include <Clp_C_Interface.h>
#endif

namespace tidemark {

std::int32_t LinearProgram::add_column(std::int64_t column_cost, std::int64_t from, std::int64_t to, bool is_whole) {
  cost.push_back(column_cost);
  low.push_back(from);
  high.push_back(to);
  whole.push_back(is_whole);
  return static_cast<std::int32_t>(cost.size()) - 1;
}

void LinearProgram::add_row(std::vector<Term> terms, std::int64_t at_least) {
  rows.push_back(std::move(terms));
  least.push_back(at_least);
}

#ifndef TIDEMARK_HAS_CBC

bool has_linear_solver() { return false; }
void require_linear_solver() {
  throw InputError("this build has no integer programs: install coinor-libcbc-dev and build tidemark again");
}
Relaxation relax(const LinearProgram&, double) {
  require_linear_solver();
  return {};
}
WholeSolution solve(const LinearProgram&, double) {
  require_linear_solver();
  return {};
}

#else

bool has_linear_solver() { return true; }
void require_linear_solver() {}

namespace {

/// The constraints by columns, as COIN takes them.
struct Columns {
  std::vector<CoinBigIndex> start;
  std::vector<int> index;
  std::vector<double> value;
  std::vector<double> low, high, cost, row_low, row_high;
};

Columns by_columns(const LinearProgram& program) {
  const std::size_t columns = program.cost.size();
  Columns out;
  out.start.assign(columns + 1, 0);
  for (const auto& row : program.rows)
    for (const auto& term : row) ++out.start[static_cast<std::size_t>(term.column) + 1];
  for (std::size_t c = 0; c < columns; ++c) out.start[c + 1] += out.start[c];
  out.index.resize(static_cast<std::size_t>(out.start.back()));
  out.value.resize(out.index.size());
  std::vector<CoinBigIndex> next(out.start.begin(), out.start.end() - 1);
  for (std::size_t r = 0; r < program.rows.size(); ++r)
    for (const auto& term : program.rows[r]) {
      const auto at = static_cast<std::size_t>(next[static_cast<std::size_t>(term.column)]++);
      out.index[at] = static_cast<int>(r);
      out.value[at] = static_cast<double>(term.factor);
    }
  const auto doubles = [](const std::vector<std::int64_t>& from) {
    return std::vector<double>(from.begin(), from.end());
  };
  out.low = doubles(program.low);
  out.high = doubles(program.high);
  out.cost = doubles(program.cost);
  out.row_low = doubles(program.least);
  out.row_high.assign(program.rows.size(), std::numeric_limits<double>::max());
  return out;
}

/// For duals y >= 0 every x within its limits costs at least y * least + sum of min over x of (cost - y * rows) x. In
/// whole numbers, y in units of 2^-shift: the bound holds whatever the solver's rounding.
std::int64_t proven_bound(const LinearProgram& program, const double* duals) {
  constexpr int shift = 24;
  std::vector<Int128> reduced(program.cost.size());
  Int128 bound = 0;
  for (std::size_t c = 0; c < program.cost.size(); ++c) reduced[c] = Int128{program.cost[c]} << shift;
  for (std::size_t r = 0; r < program.rows.size() && duals != nullptr; ++r) {
    if (!(duals[r] > 0) || duals[r] > 1e12) continue;
    const auto dual = static_cast<std::int64_t>(std::ldexp(duals[r], shift));
    bound += Int128{dual} * program.least[r];
    for (const auto& term : program.rows[r])
      reduced[static_cast<std::size_t>(term.column)] -= Int128{dual} * term.factor;
  }
  for (std::size_t c = 0; c < program.cost.size(); ++c)
    bound += reduced[c] * (reduced[c] > 0 ? program.low[c] : program.high[c]);
  const Int128 unit = Int128{1} << shift;
  const Int128 up = bound > 0 ? (bound + unit - 1) / unit : bound / unit;
  return static_cast<std::int64_t>(up);
}

}  // namespace

Relaxation relax(const LinearProgram& program, double seconds) {
  const Columns columns = by_columns(program);
  Clp_Simplex* model = Clp_newModel();
  Clp_setLogLevel(model, 0);
  Clp_loadProblem(model, static_cast<int>(program.cost.size()), static_cast<int>(program.rows.size()),
                  columns.start.data(), columns.index.data(), columns.value.data(), columns.low.data(),
                  columns.high.data(), columns.cost.data(), columns.row_low.data(), columns.row_high.data());
  Clp_setMaximumSeconds(model, seconds);
  Clp_initialDualSolve(model);
  Relaxation out;
  out.feasible = Clp_status(model) != 1;
  out.value = Clp_objectiveValue(model);
  // Past the time the duals may be anything at all, and still prove what they prove.
  out.proven = std::max(proven_bound(program, nullptr), proven_bound(program, Clp_dualRowSolution(model)));
  Clp_deleteModel(model);
  return out;
}

WholeSolution solve(const LinearProgram& program, double seconds) {
  const Columns columns = by_columns(program);
  Cbc_Model* model = Cbc_newModel();
  Cbc_setLogLevel(model, 0);
  Cbc_loadProblem(model, static_cast<int>(program.cost.size()), static_cast<int>(program.rows.size()),
                  columns.start.data(), columns.index.data(), columns.value.data(), columns.low.data(),
                  columns.high.data(), columns.cost.data(), columns.row_low.data(), columns.row_high.data());
  for (std::size_t c = 0; c < program.whole.size(); ++c)
    if (program.whole[c]) Cbc_setInteger(model, static_cast<int>(c));
  Cbc_setParameter(model, "timeMode", "elapsed");
  Cbc_setMaximumSeconds(model, seconds);
  Cbc_setAllowableGap(model, 0.99);  // costs are whole numbers: a bound within less than one is the optimum
  Cbc_solve(model);
  WholeSolution out;
  out.is_proven = Cbc_isProvenOptimal(model) != 0 || Cbc_isProvenInfeasible(model) != 0;
  const double* x = Cbc_numberSavedSolutions(model) > 0 ? Cbc_bestSolution(model) : nullptr;
  std::int64_t cost = 0;
  for (std::size_t c = 0; x != nullptr && c < program.cost.size(); ++c) {
    out.x.push_back(std::llround(x[c]));
    cost += program.cost[c] * out.x.back();
  }
  const double possible = Cbc_getBestPossibleObjValue(model);
  out.bound = proven_bound(program, nullptr);
  if (out.is_proven)
    out.bound = x != nullptr ? cost : std::numeric_limits<std::int64_t>::max();
  else if (std::isfinite(possible) && std::abs(possible) < 9e17)
    out.bound = std::max(out.bound, static_cast<std::int64_t>(std::ceil(possible - 1e-6 * std::max(1.0, possible))));
  Cbc_deleteModel(model);
  return out;
}

#endif

}  // namespace tidemark
