/// What must come before what in a Step, and what would another order of the same ops cost?
///
/// Data alone does not fix an order worth having. A recompute needs no more than its segment's input, so an order that
/// knows only data may run it at once, long before its backward, and lose all that checkpointing saves. Order edges
/// make it wait. The order itself comes from the Plan; this graph proves it sound and measures others against it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// `after` may start when `before` has ended: it needs what that made, or only its turn.
struct Dependency {
  enum class Why : std::uint8_t { data, order } why = Why::data;
  OpId before = no_id, after = no_id;
  friend bool operator==(const Dependency&, const Dependency&) = default;
};

/// Read-only once built: a compressed sparse row graph of Boost, which only graph.cpp sees.
class StepGraph {
 public:
  /// Edges in any order; of several between two ops one stays, data before order. Throws InternalError for an op that
  /// is not there.
  StepGraph(std::size_t ops, std::vector<Dependency> edges);
  std::size_t ops() const;
  /// Sorted by the op before, then the op after.
  std::vector<Dependency> dependencies() const;

  struct Rows;
  const Rows& rows() const { return *rows_; }

 private:
  std::shared_ptr<const Rows> rows_;
};

/// Data edges run from the op that allocates a storage to each that touches it; gradients are added to in place, so
/// the ops that touch one follow one another. Order edges: a recompute waits for the backward (or the loss) that
/// stands before it in the list, and an op that waits for an event comes after the one recorded.
StepGraph make_graph(const Step& step);
/// What a scheduler sees that has never heard of recomputation.
StepGraph make_data_graph(const Step& step);

bool is_acyclic(const StepGraph& graph);

/// The longest chain of dependencies, each op taking `durations[op]`: no number of streams is faster. Throws
/// InternalError when there is a cycle.
Nanos critical_path(const StepGraph& graph, std::span<const Nanos> durations);

/// `program` is the list itself. `topological` is boost::topological_sort, an InternalError when there is a cycle.
/// `first_ready` is Kahn's algorithm with a first-in-first-out queue; ops on or behind a cycle are never ready.
enum class OrderBy : std::uint8_t { program, topological, first_ready };
std::vector<OpId> order_ops(const StepGraph& graph, OrderBy by);

/// Peak of live bytes when the ops run in this order: a storage is made by the op that allocates it in the Step and, if
/// the Step frees it at all, dies after the last op in this order that touches it. An op makes all before it frees.
Bytes peak_in_order(const Step& step, std::span<const OpId> order);

}  // namespace tidemark
