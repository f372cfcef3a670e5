#include "tidemark/study/dag.hpp"

#include <algorithm>
#include <numeric>

#include "tidemark/base/errors.hpp"
#include "tidemark/base/units.hpp"

namespace tidemark {
namespace {

std::size_t at(std::int32_t row) { return static_cast<std::size_t>(row); }

}  // namespace

std::int64_t Dag::total() const { return std::accumulate(cost.begin(), cost.end(), std::int64_t{0}); }

std::int64_t Dag::unit() const {
  std::int64_t common = 0;
  for (const std::int64_t of_row : bytes) common = std::gcd(common, of_row);
  return std::max<std::int64_t>(common, 1);
}

Dag make_dag(const LayerGraph& graph, bool ends_stay) {
  if (!graph.is_whole_step)
    throw InputError("this planner needs a graph whose rows are the whole step (convention checkmate or dtr)");
  const bool timed = std::ranges::any_of(graph.layers, [](const LayerCost& row) { return row.forward_time.count > 0; });
  Dag out;
  out.readers.resize(graph.layers.size());
  Int128 total = 0;
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    const LayerCost& row = graph.layers[i];
    const Int128 cost = timed ? Int128{row.forward_time.count} : row.forward_flops.count;
    total += cost;
    if (total >= Int128{1} << 62)
      throw InputError("the graph's costs pass 2^62 in total: give times, or a larger unit");
    out.cost.push_back(static_cast<std::int64_t>(cost));
    out.bytes.push_back(row.output.count);
    out.inputs.push_back(row.inputs);
    std::ranges::sort(out.inputs.back());
    for (const std::int32_t input : row.inputs) out.readers[at(input)].push_back(static_cast<std::int32_t>(i));
  }
  for (std::size_t i = 0; i < graph.layers.size(); ++i)
    out.stays.push_back(ends_stay && (out.inputs[i].empty() || out.readers[i].empty()));
  return out;
}

std::optional<DagSchedule> measure(const Dag& dag, std::vector<DagMove> moves) {
  // From the back: whether a value is read before it is made again, or dropped.
  const std::size_t rows = dag.cost.size();
  std::vector<std::vector<std::int32_t>> last(moves.size());  // values that go after a position
  std::vector<bool> read_later(rows, false);
  for (std::size_t i = 0; i < rows; ++i) read_later[i] = dag.stays[i];
  for (std::size_t p = moves.size(); p-- > 0;) {
    const std::int32_t row = moves[p].row;
    if (moves[p].is_drop) {
      last[p].push_back(row);
      read_later[at(row)] = true;
      continue;
    }
    if (!read_later[at(row)]) last[p].push_back(row);
    read_later[at(row)] = dag.stays[at(row)];  // it goes by a drop alone
    for (const std::int32_t input : dag.inputs[at(row)]) {
      if (!read_later[at(input)]) last[p].push_back(input);
      read_later[at(input)] = true;
    }
  }
  DagSchedule out;
  std::vector<bool> live(rows, false);
  std::int64_t held = 0;
  for (std::size_t p = 0; p < moves.size(); ++p) {
    const std::int32_t row = moves[p].row;
    if (!moves[p].is_drop) {
      if (live[at(row)]) return std::nullopt;
      for (const std::int32_t input : dag.inputs[at(row)])
        if (!live[at(input)]) return std::nullopt;
      live[at(row)] = true;
      held += dag.bytes[at(row)];
      out.peak = std::max(out.peak, held);
      out.cost += dag.cost[at(row)];
    }
    for (const std::int32_t gone : last[p]) {
      if (!live[at(gone)]) return std::nullopt;
      live[at(gone)] = false;
      held -= dag.bytes[at(gone)];
    }
  }
  out.moves = std::move(moves);
  return out;
}

std::optional<DagSchedule> measure(const Dag& dag, const std::vector<std::int32_t>& runs) {
  std::vector<DagMove> moves;
  moves.reserve(runs.size());
  for (const std::int32_t row : runs) moves.push_back({row, false});
  return measure(dag, std::move(moves));
}

Plan to_plan(const DagSchedule& schedule, const Dag& dag) {
  Plan plan;
  std::vector<bool> ran(dag.cost.size(), false);
  for (const DagMove& move : schedule.moves) {
    const Action action = move.is_drop ? Action::drop : ran[at(move.row)] ? Action::recompute : Action::forward;
    plan.steps.push_back({action, move.row, {}, move.is_drop ? Keep::all : Keep::none, -1});
    ran[at(move.row)] = true;
  }
  return plan;
}

std::int64_t widest_row(const Dag& dag) {
  std::int64_t widest = 0;
  for (std::size_t i = 0; i < dag.cost.size(); ++i) {
    std::int64_t need = dag.bytes[i];
    for (const std::int32_t input : dag.inputs[i]) need += dag.bytes[at(input)];
    widest = std::max(widest, need);
  }
  return widest;
}

}  // namespace tidemark
