#include "tidemark/step/graph.hpp"

#include <algorithm>
#include <array>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/topological_sort.hpp>
#include <boost/range/iterator_range.hpp>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "tidemark/base/errors.hpp"

namespace tidemark {

namespace {

struct EdgeWhy {
  Dependency::Why why = Dependency::Why::data;
};
using Csr = boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, EdgeWhy, boost::no_property, OpId,
                                               std::size_t>;

std::span<const StorageId> touched_by(const Step& step, const StepOp& op) {
  return std::span(step.reads).subspan(op.read_begin, op.read_end - op.read_begin);
}

/// By storage: the op whose script allocates it; no_id for what is there from the start.
std::vector<OpId> makers_of(const Step& step) {
  std::vector<OpId> makers(step.storages.size(), no_id);
  for (const Instruction& instruction : step.instructions)
    if (instruction.what == Do::alloc) makers[instruction.index] = instruction.op;
  return makers;
}

bool is_added_to(const StepStorage& storage) {
  return storage.category == Category::gradient || storage.category == Category::autograd_detail;
}

void add_data_edges(const Step& step, std::vector<Dependency>& edges) {
  std::vector<OpId> made_by = makers_of(step);
  for (OpId op = 0; op < step.ops.size(); ++op)
    for (const StorageId id : touched_by(step, step.ops[op])) {
      OpId& before = made_by[id];
      if (before != no_id && before != op) edges.push_back({Dependency::Why::data, before, op});
      if (is_added_to(step.storages[id])) before = op;
    }
}

/// What each rank has done last, as the list is read from its top.
struct Passed {
  OpId backward = no_id;
  std::array<OpId, stream_names.size()> on_stream;
  std::array<std::vector<OpId>, stream_names.size()> awaited;  // by the next op of that stream
  Passed() { on_stream.fill(no_id); }
};

void add_order_edges(const Step& step, std::vector<Dependency>& edges) {
  std::map<std::int16_t, Passed> ranks;
  std::vector<OpId> recorded(step.events, no_id);
  for (const Instruction& instruction : step.instructions) {
    if (instruction.op == no_id) continue;
    Passed& passed = ranks[step.ops[instruction.op].rank];
    const auto stream = static_cast<std::size_t>(instruction.stream);
    if (instruction.what == Do::record) recorded[instruction.index] = passed.on_stream[stream];
    if (instruction.what == Do::wait) passed.awaited[stream].push_back(recorded[instruction.index]);
    if (instruction.what != Do::compute && instruction.what != Do::copy) continue;

    const OpId op = instruction.index;
    const Phase phase = step.ops[op].phase;
    for (const OpId before : std::exchange(passed.awaited[stream], {}))
      if (before != no_id) edges.push_back({Dependency::Why::order, before, op});
    if (phase == Phase::recompute && passed.backward != no_id)
      edges.push_back({Dependency::Why::order, passed.backward, op});
    if (phase == Phase::backward || phase == Phase::loss) passed.backward = op;
    passed.on_stream[stream] = op;
  }
}

/// Nothing when there is a cycle.
std::optional<std::vector<OpId>> topological(const Csr& graph) {
  std::vector<OpId> order;
  order.reserve(num_vertices(graph));
  try {
    topological_sort(graph, std::back_inserter(order), boost::vertex_index_map(get(boost::vertex_index, graph)));
  } catch (const boost::not_a_dag&) {
    return std::nullopt;
  }
  std::ranges::reverse(order);
  return order;
}

std::vector<OpId> first_ready(const Csr& graph) {
  std::vector<std::size_t> waits_for(num_vertices(graph));
  for (const auto edge : boost::make_iterator_range(edges(graph))) ++waits_for[target(edge, graph)];
  std::vector<OpId> order;  // its tail is the queue
  for (const OpId op : boost::make_iterator_range(vertices(graph)))
    if (waits_for[op] == 0) order.push_back(op);
  for (std::size_t next = 0; next < order.size(); ++next)
    for (const auto edge : boost::make_iterator_range(out_edges(order[next], graph)))
      if (--waits_for[target(edge, graph)] == 0) order.push_back(target(edge, graph));
  return order;
}

}  // namespace

struct StepGraph::Rows {
  Csr graph;
};

StepGraph::StepGraph(std::size_t ops, std::vector<Dependency> edges) {
  for (const Dependency& edge : edges)
    check(edge.before < ops && edge.after < ops, "a dependency names an op that is not there");
  const auto ends = [](const Dependency& edge) { return std::pair(edge.before, edge.after); };
  std::ranges::sort(edges, {}, [](const Dependency& e) { return std::tuple(e.before, e.after, e.why); });
  edges.erase(std::unique(edges.begin(), edges.end(),
                          [&](const Dependency& a, const Dependency& b) { return ends(a) == ends(b); }),
              edges.end());
  std::vector<std::pair<OpId, OpId>> pairs;
  std::vector<EdgeWhy> whys;
  for (const Dependency& edge : edges) {
    pairs.push_back(ends(edge));
    whys.push_back({edge.why});
  }
  rows_ = std::make_shared<const Rows>(Rows{
      Csr(boost::edges_are_sorted, pairs.begin(), pairs.end(), whys.begin(), static_cast<OpId>(ops), pairs.size())});
}

std::size_t StepGraph::ops() const { return num_vertices(rows_->graph); }

std::vector<Dependency> StepGraph::dependencies() const {
  const Csr& graph = rows_->graph;
  std::vector<Dependency> all;
  for (const auto edge : boost::make_iterator_range(edges(graph)))
    all.push_back({graph[edge].why, source(edge, graph), target(edge, graph)});
  return all;
}

StepGraph make_graph(const Step& step) {
  std::vector<Dependency> edges;
  add_data_edges(step, edges);
  add_order_edges(step, edges);
  return {step.ops.size(), std::move(edges)};
}

StepGraph make_data_graph(const Step& step) {
  std::vector<Dependency> edges;
  add_data_edges(step, edges);
  return {step.ops.size(), std::move(edges)};
}

bool is_acyclic(const StepGraph& graph) { return topological(graph.rows().graph).has_value(); }

Nanos critical_path(const StepGraph& graph, std::span<const Nanos> durations) {
  const Csr& csr = graph.rows().graph;
  std::vector<Nanos> start(graph.ops());
  Nanos longest;
  for (const OpId op : order_ops(graph, OrderBy::topological)) {
    const Nanos end = start[op] + durations[op];
    longest = std::max(longest, end);
    for (const auto edge : boost::make_iterator_range(out_edges(op, csr))) {
      Nanos& next = start[target(edge, csr)];
      next = std::max(next, end);
    }
  }
  return longest;
}

std::vector<OpId> order_ops(const StepGraph& graph, OrderBy by) {
  if (by == OrderBy::topological) {
    const auto order = topological(graph.rows().graph);
    check(order.has_value(), "a graph with a cycle has no topological order");
    return *order;
  }
  if (by == OrderBy::first_ready) return first_ready(graph.rows().graph);
  std::vector<OpId> order(graph.ops());
  std::iota(order.begin(), order.end(), OpId{0});
  return order;
}

Bytes peak_in_order(const Step& step, std::span<const OpId> order) {
  std::vector<std::vector<StorageId>> makes(step.ops.size()), ends(step.ops.size());
  std::vector<bool> is_freed(step.storages.size());
  std::vector<OpId> last = makers_of(step);
  for (StorageId id = 0; id < last.size(); ++id)
    if (last[id] != no_id) makes[last[id]].push_back(id);
  for (const Instruction& instruction : step.instructions)
    if (instruction.what == Do::free) is_freed[instruction.index] = true;
  for (const OpId op : order)
    for (const StorageId id : touched_by(step, step.ops[op])) last[id] = op;
  for (StorageId id = 0; id < last.size(); ++id)
    if (is_freed[id] && last[id] != no_id) ends[last[id]].push_back(id);

  Bytes live;
  for (const StorageId id : step.initial) live += step.storages[id].bytes;
  Bytes peak = live;
  for (const OpId op : order) {
    for (const StorageId id : makes[op]) live += step.storages[id].bytes;
    peak = std::max(peak, live);
    for (const StorageId id : ends[op]) live -= step.storages[id].bytes;
  }
  return peak;
}

}  // namespace tidemark
