#include "tidemark/report/peak.hpp"
#include "tidemark/report/holding.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "support/tide.hpp"
#include "tidemark/engine/simulate.hpp"

using namespace tidemark;
using tidemark::test::HandStep;
using tidemark::test::small_tide;

namespace {

std::vector<std::string> names(const Step& step, const std::vector<PeakStorage>& storages) {
  std::vector<std::string> out;
  for (const PeakStorage& s : storages) out.push_back(step.names[step.storages[s.storage].name]);
  return out;
}

/// The peak when a storage takes no bytes.
Bytes peak_without(Step step, StorageId storage) {
  const Bytes bytes = step.storages[storage].bytes;
  Timeline timeline = simulate(step, {});
  bool alive = false;
  Bytes highest;
  for (const MemoryEvent& event : timeline.events) {
    if (event.storage == storage) alive = event.is_alloc();
    highest = std::max(highest, alive ? event.live - bytes : event.live);
  }
  return highest;
}

struct Why {
  std::string name;
  HandStep made;
  std::string tensor, reason;
};

std::string reason_of(const HandStep& made, const std::string& tensor) {
  const Timeline timeline = simulate(made.step, {});
  for (const PeakStorage& s : peak_storages(made.step, timeline))
    if (made.step.names[made.step.storages[s.storage].name] == tensor) return held_by(made.step, timeline, s);
  return "not alive at the peak";
}

/// Two ops of forward, then `big` of 100 bytes in the op "layers.5.now": the peak.
HandStep until_peak(Category category) {
  HandStep made;
  made.op("layers.5.before", 1).op_layer("layers.5").alloc("t", 1).is(category).run({"t"});
  made.op("layers.5.now", 1).op_layer("layers.5").alloc("big", 100).run({"big"});
  return made;
}

}  // namespace

TEST_CASE("peak: what is alive stands largest first, equal sizes in order of birth") {
  const HandStep made = small_tide();
  const Timeline timeline = simulate(made.step, {});
  const std::vector<PeakStorage> alive = peak_storages(made.step, timeline);
  CHECK(names(made.step, alive) == std::vector<std::string>{"w", "gw", "mid", "h", "gh", "x"});
  CHECK(alive[2].rebuilt);
  CHECK_FALSE(alive[3].rebuilt);
  CHECK(alive[5].read_by_recompute);
}

TEST_CASE("peak: dropping a tensor lowers it by exactly what a replay without the tensor says") {
  const HandStep made = small_tide();
  const Timeline timeline = simulate(made.step, {});
  const std::vector<PeakStorage> alive = peak_storages(made.step, timeline);
  const std::vector<Bytes> drops = peak_drops(timeline, made.step, alive);
  // gw: without it the peak is 186, in b's backward.
  CHECK(drops == std::vector<Bytes>{{100}, {94}, {30}, {20}, {20}, {10}});
  for (std::size_t i = 0; i < alive.size(); ++i) {
    CAPTURE(i);
    CHECK(timeline.peak - drops[i] == peak_without(made.step, alive[i].storage));
  }
}

TEST_CASE("peak: dropping one of two equal peaks' tensors lowers nothing") {
  HandStep made;
  made.op("A", 1).alloc("first", 50).run().free("first");
  made.op("B", 1).alloc("second", 50).run().free("second");
  const Timeline timeline = simulate(made.step, {});
  const std::vector<PeakStorage> alive = peak_storages(made.step, timeline);
  REQUIRE(names(made.step, alive) == std::vector<std::string>{"first"});
  CHECK(peak_drops(timeline, made.step, alive) == std::vector<Bytes>{{0}});
}

TEST_CASE("peak: who holds a tensor") {
  const Why cases[] = {
      {"parameter", small_tide(), "w", "parameter"},
      {"the op that runs at the peak reads it last", small_tide(), "mid", "read by the running op"},
      {"a gradient that the optimizer will read", small_tide(), "gw", "gradient until the optimizer"},
      {"freed at the peak's op, which does not read it", small_tide(), "h", "held until backward of layers.0.a"},
      {"an input of the batch, not read again", small_tide(), "x", "input of the step"},
      {"a backward op reads it next",
       until_peak(Category::activation)
           .op("layers.3.mlp.gelu", 1)
           .op_layer("layers.3")
           .phase(Phase::backward)
           .run({"t"}),
       "t", "saved for backward of layers.3.mlp.gelu"},
      {"a backward op whose name does not begin with its layer's: the layer",
       until_peak(Category::activation).op("B3", 1).op_layer("layer 3").phase(Phase::backward).run({"t"}), "t",
       "saved for backward of layer 3"},
      {"a recompute reads it next",
       until_peak(Category::activation).op("layers.2.norm", 1).op_layer("layers.2").phase(Phase::recompute).run({"t"}),
       "t", "input of the recompute of layers.2"},
      {"forward reads it next", until_peak(Category::activation).op("layers.6.norm", 1).run({"t"}), "t",
       "read next by layers.6.norm"},
      {"the first later reader counts, not the last",
       until_peak(Category::activation)
           .op("layers.6.norm", 1)
           .run({"t"})
           .op("layers.5.before", 1)
           .phase(Phase::backward)
           .run({"t"}),
       "t", "read next by layers.6.norm"},
      {"a gradient on its way through backward",
       until_peak(Category::gradient).op("layers.1.b", 1).phase(Phase::backward).run({"t"}), "t",
       "passed to backward of layers.1.b"},
      {"a tensor that backward made for backward",
       HandStep()
           .op("layers.2.c", 1)
           .phase(Phase::backward)
           .alloc("t", 1)
           .run({"t"})
           .op("layers.1.b", 1)
           .phase(Phase::backward)
           .alloc("big", 100)
           .run({"big"})
           .op("layers.1.a", 1)
           .phase(Phase::backward)
           .run({"t"}),
       "t", "passed to backward of layers.1.a"},
      {"optimizer state", until_peak(Category::optimizer_state), "t", "optimizer state"},
      {"a gradient nobody reads", until_peak(Category::gradient), "t", "gradient, kept to the end of the step"},
      {"a variable of the program", until_peak(Category::activation).op("zero", 1).run().free("t"), "t",
       "held until forward of zero"},
      {"never freed", until_peak(Category::activation), "t", "held to the end"},
  };
  for (const Why& c : cases) {
    CAPTURE(c.name);
    CHECK(reason_of(c.made, c.tensor) == c.reason);
  }
}

TEST_CASE("peak: a copy that lags behind the host still holds what it reads") {
  // compute   |A 1|B 1 (peak)
  // copy_out      |C 9        | reads t
  HandStep made;
  made.op("A", 1).alloc("t", 1).run({"t"});
  made.op("copy t", 9, Stream::copy_out).phase(Phase::offload).copy({"t"});
  made.op("B", 1).alloc("big", 100).run();
  CHECK(reason_of(made, "t") == "read next by copy t");
}

TEST_CASE("peak: what the policy recomputes of it") {
  struct Case {
    std::string name;
    HandStep made;
    RecomputeAtPeak expected;
  };
  HandStep nothing;
  nothing.op("A", 1).alloc("t", 5).run();
  HandStep dropped;  // peak in forward, at a tensor that will be dropped and rebuilt
  dropped.op("A", 1).alloc("t", 50).layer("0").run({"t"});
  dropped.op("B", 1).run({"t"}).free("t");
  dropped.op("A", 1).phase(Phase::recompute).alloc("t", 50).layer("0").run({"t"}).free("t");
  HandStep kept;  // the boundary has a second version too, but the first is what the recompute starts from
  kept.op("A", 1).alloc("b", 50).run({"b"}).alloc("c", 1);
  kept.op("B", 1).phase(Phase::recompute).alloc("d", 1).layer("1").run({"b"}).free("b").free("d").free("c");
  kept.op("A", 1).phase(Phase::recompute).alloc("b", 50).layer("0").run({"b"}).free("b");
  HandStep held_back;
  held_back.op("A", 1).alloc("b", 30).run({"b"}).op("loss", 1).phase(Phase::loss).alloc("l", 50).run().free("l");
  held_back.op("B", 1).phase(Phase::recompute).alloc("t", 1).layer("0").run({"b"}).free("b").free("t");
  const Case cases[] = {
      {"nothing is recomputed", nothing, {}},
      {"a rebuilt tensor", small_tide(), {true, {30}, {0}, {0}, 1, 1}},
      {"a first version that only forward reads", dropped, {true, {0}, {50}, {0}, 0, 1}},
      {"what a recompute will start from", held_back, {true, {0}, {0}, {30}, 0, 1}},
      {"a boundary is kept, not dropped", kept, {true, {1}, {0}, {0}, 1, 2}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Timeline timeline = simulate(c.made.step, {});
    CHECK(recompute_at_peak(c.made.step, peak_storages(c.made.step, timeline)) == c.expected);
  }
}

TEST_CASE("peak: of several ranks, only the one that reaches it") {
  HandStep made;
  made.op("A", 1, Stream::compute, 0).alloc("small", 10).run();
  made.op("A", 1, Stream::compute, 1).alloc("large", 20).run();
  const Timeline timeline = simulate(made.step, {});
  const std::vector<PeakStorage> alive = peak_storages(made.step, timeline);
  CHECK(names(made.step, alive) == std::vector<std::string>{"large"});
  CHECK(peak_drops(timeline, made.step, alive) == std::vector<Bytes>{{20}});
}

TEST_CASE("peak: an empty timeline has none") {
  const Step step;
  CHECK(peak_storages(step, Timeline{}).empty());
  CHECK(peak_drops(Timeline{}, step, {}).empty());
}
