#include "tidemark/step/graph.hpp"

#include <doctest/doctest.h>

#include <optional>

#include "support/hand_step.hpp"
#include "support/layers.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/step/emitter.hpp"
#include "tidemark/step/lower.hpp"

using namespace tidemark;

namespace {

constexpr auto data = Dependency::Why::data;
constexpr auto order = Dependency::Why::order;

/// "0>1 1~2": op 1 needs what op 0 made, op 2 only waits for op 1.
std::string shown(const StepGraph& graph) {
  std::string all;
  for (const Dependency& edge : graph.dependencies())
    all += (all.empty() ? "" : " ") + std::to_string(edge.before) + (edge.why == data ? ">" : "~") +
           std::to_string(edge.after);
  return all;
}

/// The smallest chain that shows what an order costs: every layer makes one value of one byte, and its backward reads
/// its input and the gradient of its output. Segments keep their input and rebuild the values between.
class OneByteChain {
 public:
  OneByteChain(int layers, int interval) : values_(static_cast<std::size_t>(layers) + 1), emit_(step_) {
    value(0) = emit_.initial("h0", Bytes{1}, Category::input, 0);
    for (int i = 0; i < layers; ++i) {
      run("F", i, Phase::forward, {input(i)}, i + 1);
      if (interval > 0 && i % interval != 0) drop(i);
    }
    run("L", layers, Phase::loss, {input(layers)}, std::nullopt);
    gradient_ = emit_.alloc("g", Bytes{1}, Category::autograd_detail, layers);
    emit_.compute({input(layers), gradient_});
    drop(layers);
    for (int i = layers; i-- > 0;) {
      if (interval > 0 && (i + 1 == layers || (i + 1) % interval == 0))
        for (int r = i - i % interval; r < i; ++r) run("R", r, Phase::recompute, {input(r)}, r + 1);
      run("B", i, Phase::backward, {}, std::nullopt);
      const StorageId made = emit_.alloc("g", Bytes{1}, Category::autograd_detail, i);
      emit_.compute({input(i), gradient_, made});
      emit_.release(gradient_);
      gradient_ = made;
      drop(i);
    }
  }
  const Step& step() const { return step_; }

 private:
  StorageId& value(int i) { return values_[static_cast<std::size_t>(i)]; }
  StorageId input(int i) { return value(i); }
  void drop(int i) { emit_.release(value(i)); }
  void run(const std::string& name, int layer, Phase phase, std::vector<StorageId> touched, std::optional<int> makes) {
    StepOp op;
    op.phase = phase;
    op.has_time = true;
    op.time = Nanos{1};
    emit_.begin_op(op, name + std::to_string(layer));
    if (!makes) return;
    value(*makes) = emit_.alloc("h" + std::to_string(*makes), Bytes{1}, Category::activation, layer);
    touched.push_back(value(*makes));
    emit_.compute(touched);
  }

  std::vector<StorageId> values_;
  StorageId gradient_ = no_id;
  Step step_;
  Emitter emit_;
};

std::int64_t peak(const Step& step, const StepGraph& graph, OrderBy by) {
  return peak_in_order(step, order_ops(graph, by)).count;
}

}  // namespace

TEST_CASE("order is the product: 64 layers in segments of 8, data edges alone against the program's order") {
  const Step plain = OneByteChain(64, 0).step();
  const Step checkpointed = OneByteChain(64, 8).step();
  CHECK(live_peak(plain).bytes == Bytes{66});
  CHECK(live_peak(checkpointed).bytes == Bytes{17});

  const StepGraph by_data = make_data_graph(checkpointed);
  CHECK(peak(checkpointed, by_data, OrderBy::program) == 17);
  CHECK(peak(checkpointed, by_data, OrderBy::topological) == 66);
  CHECK(peak(checkpointed, by_data, OrderBy::first_ready) == 66);
  CHECK(peak(plain, make_data_graph(plain), OrderBy::first_ready) == 66);

  const StepGraph with_turns = make_graph(checkpointed);
  CHECK(peak(checkpointed, with_turns, OrderBy::topological) == 17);
  CHECK(peak(checkpointed, with_turns, OrderBy::first_ready) == 17);
}

TEST_CASE("which op waits for which") {
  struct Case {
    std::string name;
    Step step;
    std::string data, all;
  };
  const LayerGraph chain = test::equal_chain(2, 10, 1);
  LayerGraph fork;  // a -> b, a -> c: b and c both add to the gradient of a
  for (const char* const name : {"a", "b", "c"}) {
    LayerCost layer;
    layer.name = name;
    layer.layer_activation = layer.output = Bytes{1};
    if (layer.name != "a") layer.inputs = {0};
    fork.layers.push_back(layer);
  }
  using Hand = test::HandStep;
  const Case cases[] = {
      {"nothing shared", Hand().op("A", 1).alloc("x", 1).run({"x"}).op("B", 1).run().step, "", ""},
      {"who touches waits for who allocated, not for who touched before",
       Hand().op("A", 1).alloc("x", 1).run({"x"}).op("B", 1).run({"x"}).op("C", 1).run({"x"}).step, "0>1 0>2",
       "0>1 0>2"},
      {"two storages, one edge", Hand().op("A", 1).alloc("x", 1).alloc("y", 1).run().op("B", 1).run({"x", "y"}).step,
       "0>1", "0>1"},
      // Fc0 Fc1 L Fe1 B1 Fe0 B0: the second layer is rebuilt after the loss, the first after B1. The gradients of the
      // boundaries count nothing here.
      {"a recompute waits for the backward before it",
       lower(chain, test::sequence("Fc0 Fc1 L Fe1 B1 Fe0 B0"), Convention::framework, 1), "0>1 0>3 0>4 3>4 5>6",
       "0>1 0>3 0>4 2~3 3>4 4~5 5>6"},
      // Fe a, Fe b, Fe c, L, B c, B b, B a: 4>5 is the gradient of a, made by B c and added to by B b, 5>6 its reader.
      {"gradients are added to one after the other",
       lower(fork, test::sequence("Fe0 Fe1 Fe2 L B2 B1 B0"), Convention::framework, 1),
       "0>1 0>2 0>4 0>5 0>6 1>3 1>5 2>3 2>4 3>4 3>5 4>5 5>6", "0>1 0>2 0>4 0>5 0>6 1>3 1>5 2>3 2>4 3>4 3>5 4>5 5>6"},
      {"an event makes another stream wait",
       Hand().op("A", 1).run().record(0).op("C", 1, Stream::copy_out).wait(0).copy().op("B", 1).run().step, "", "0~1"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(shown(make_data_graph(c.step)) == c.data);
    CHECK(shown(make_graph(c.step)) == c.all);
    CHECK(is_acyclic(make_graph(c.step)));
  }
}

TEST_CASE("graphs: duplicates, cycles, paths and orders") {
  struct Case {
    std::string name;
    StepGraph graph;
    bool acyclic;
    std::string edges;
    std::int64_t path;
    std::vector<OpId> first_ready;
  };
  // Ops last 1, 10, 100, 1000 ns.
  const Case cases[] = {
      {"no edges", {4, {}}, true, "", 1000, {0, 1, 2, 3}},
      {"a line backwards", {4, {{data, 3, 2}, {data, 2, 1}, {data, 1, 0}}}, true, "1>0 2>1 3>2", 1111, {3, 2, 1, 0}},
      {"a diamond",
       {4, {{data, 0, 1}, {order, 0, 2}, {data, 1, 3}, {data, 2, 3}}},
       true,
       "0>1 0~2 1>3 2>3",
       1101,
       {0, 1, 2, 3}},
      {"the same edge twice, data before order", {4, {{order, 0, 1}, {data, 0, 1}}}, true, "0>1", 1000, {0, 2, 3, 1}},
      {"a cycle", {4, {{data, 1, 2}, {order, 2, 1}}}, false, "1>2 2~1", 0, {0, 3}},
      {"an op that waits for itself", {4, {{data, 1, 1}}}, false, "1>1", 0, {0, 2, 3}},
  };
  const std::vector<Nanos> durations = {{1}, {10}, {100}, {1000}};
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(shown(c.graph) == c.edges);
    CHECK(is_acyclic(c.graph) == c.acyclic);
    CHECK(order_ops(c.graph, OrderBy::first_ready) == c.first_ready);
    CHECK(order_ops(c.graph, OrderBy::program) == std::vector<OpId>{0, 1, 2, 3});
    if (c.acyclic)
      CHECK(critical_path(c.graph, durations) == Nanos{c.path});
    else
      CHECK_THROWS_AS(critical_path(c.graph, durations), InternalError);
  }
  CHECK_THROWS_AS(StepGraph(4, {{data, 0, 4}}), InternalError);
}

TEST_CASE("what the layers of a graph hold in program order is what the simulation says") {
  LayerGraph graph = test::equal_chain(12, 7, 3);
  for (LayerCost& layer : graph.layers) {
    layer.forward_workspace = Bytes{5};
    layer.gradient = Bytes{3};
    layer.parameters = Bytes{2};
  }
  for (const int interval : {1, 3, 5, 12}) {
    CAPTURE(interval);
    const Step step = lower(graph, test::every(interval, 12), Convention::framework, 1);
    CHECK(Bytes{peak(step, make_graph(step), OrderBy::program)} == live_peak(step).bytes);
  }
}
