// Does another order of a step's ops hold what a published simulator says it holds?
#include <doctest/doctest.h>

#include <algorithm>

#include "support/csv.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/step/emitter.hpp"
#include "tidemark/step/graph.hpp"

using namespace tidemark;
using test::Row;
using test::split;
using test::table;

namespace {

const std::string folder = "tests/oracle/data/orders/";

/// The graph's ops in this order: a tensor is made by its source and let go by the last op to read it.
Step step_in_order(const std::string& graph, const std::vector<std::string>& order) {
  Step step;
  Emitter emit(step);
  std::vector<Row> tensors;
  for (const Row& row : table(folder + "tensors.csv"))
    if (row.at("graph") == graph) tensors.push_back(row);
  std::vector<StorageId> made(tensors.size(), no_id);
  for (std::size_t now = 0; now < order.size(); ++now) {
    emit.begin_op({}, order[now]);
    std::vector<StorageId> touched, ended;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const std::vector<std::string> readers = split(tensors[t].at("readers"), ' ');
      const auto still_reads = [&](const std::string& op) { return std::ranges::find(readers, op) != readers.end(); };
      if (tensors[t].at("source") == order[now])
        touched.push_back(
            made[t] = emit.alloc(order[now], Bytes{std::stoll(tensors[t].at("bytes"))}, Category::activation, -1));
      if (!still_reads(order[now])) continue;
      touched.push_back(made[t]);
      if (std::none_of(order.begin() + static_cast<std::ptrdiff_t>(now) + 1, order.end(), still_reads))
        ended.push_back(made[t]);
    }
    emit.compute(touched);
    for (const StorageId id : ended) emit.release(id);
  }
  return step;
}

}  // namespace

TEST_CASE("orders: live bytes at each op, and the peak of another order from the same step") {
  std::map<std::string, Row> given;
  std::size_t ops = 0;
  for (const Row& row : table(folder + "orders.csv")) {
    const std::string name = row.at("graph") + " " + row.at("kind");
    CAPTURE(name);
    const std::vector<std::string> order = split(row.at("order"), ' ');
    const Step step = step_in_order(row.at("graph"), order);
    std::string live;
    for (const OpSpan& op : simulate(step, Device{}).ops) live += (live.empty() ? "" : " ") + to_string(op.peak);
    CHECK(live == row.at("live"));
    ops += order.size();

    if (row.at("kind") == "given") {
      given[row.at("graph")] = row;
      continue;
    }
    // The least order, asked of the step that was lowered in the given one.
    const std::vector<std::string> program = split(given.at(row.at("graph")).at("order"), ' ');
    const Step other = step_in_order(row.at("graph"), program);
    std::vector<OpId> ids;
    for (const std::string& op : order)
      ids.push_back(static_cast<OpId>(std::ranges::find(program, op) - program.begin()));
    CHECK(to_string(peak_in_order(other, ids)) == row.at("peak"));
    const StepGraph graph = make_data_graph(other);
    CHECK(to_string(peak_in_order(other, order_ops(graph, OrderBy::program))) == given.at(row.at("graph")).at("peak"));
    for (const OrderBy by : {OrderBy::topological, OrderBy::first_ready})
      CHECK(peak_in_order(other, order_ops(graph, by)) >= Bytes{std::stoll(row.at("peak"))});
  }
  CHECK(ops == 2 * 70);
}
