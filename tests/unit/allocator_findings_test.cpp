// Is it said who splits which segment, and from when on every step is the same?
#include "tidemark/report/allocator_findings.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/hand_step.hpp"
#include "tidemark/engine/caching_model.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/report/fragmentation_text.hpp"
#include "tidemark/study/allocation.hpp"
#include "tidemark/study/fragmentation.hpp"
#include "tidemark/study/pipeline.hpp"
#include "tidemark/study/steady_state.hpp"

using namespace tidemark;
using tidemark::test::HandStep;

namespace {

constexpr std::int64_t MiB = 1 << 20;

// A segment of 20 MiB: | a 8, freed | b 8 | rest 4 |, then c, which no hole holds, in a segment of 12 MiB.
HandStep split() {
  return HandStep()
      .op("A", 1)
      .alloc("a", 8 * MiB)
      .alloc("b", 8 * MiB)
      .run()
      .free("a")
      .op("C", 1)
      .alloc("c", 12 * MiB)
      .run();
}

Scenario with_capacity(std::optional<Bytes> capacity) {
  Scenario scenario;
  scenario.allocator = "cuda_caching";
  scenario.caching = CachingSettings{.capacity = capacity};
  return scenario;
}

}  // namespace

TEST_CASE("fragmentation: the holes, and the blocks that keep them apart") {
  struct Case {
    std::string name;
    std::optional<Bytes> capacity;
    Bytes reserved, live;
  };
  const Case cases[] = {
      {"at the most reserved", {}, Bytes{32 * MiB}, Bytes{20 * MiB}},
      {"out of memory", Bytes{31 * MiB}, Bytes{20 * MiB}, Bytes{8 * MiB}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const HandStep made = split();
    const Scenario scenario = with_capacity(c.capacity);
    const Timeline timeline = simulate_with_allocator(scenario, made.step).timeline;
    CHECK(timeline.out_of_memory.has_value() == c.capacity.has_value());
    const auto found = find_fragmentation(scenario, made.step, timeline);
    REQUIRE(found);
    CHECK(found->op == "C");
    CHECK(found->phase == "forward");
    CHECK(found->reserved == c.reserved);
    CHECK(found->live == c.live);
    CHECK(found->rounding == Bytes{});
    CHECK(found->unused == Bytes{});
    CHECK(found->free == Bytes{12 * MiB});
    CHECK(found->holes == 2);
    CHECK(found->largest_free == Bytes{8 * MiB});
    CHECK(found->segments == std::vector<SplitSegment>{{Bytes{20 * MiB}, Bytes{12 * MiB}, Bytes{8 * MiB}, 2, {"b"}}});
    CHECK(found->live + found->rounding + found->waiting + found->free + found->unused == found->reserved);
    CHECK(fragmentation_text(*found, {}).find("12.0 MiB   20.0 MiB  b\n") != std::string::npos);
  }
  const HandStep made = split();
  CHECK(!find_fragmentation({}, made.step, simulate(made.step, {})));
}

TEST_CASE("steady state: the first step that all later ones repeat") {
  Scenario scenario = parse_scenario(
      "model: {family: mlp, layers: 3, rows: 4096, width: 256, hidden: 512}\noptimizer: adam\nallocator: cuda_caching",
      "s.yaml");
  const Plan plan = plan_of(scenario, outline(scenario));
  const auto steady = find_steady_state(scenario, plan);
  REQUIRE(steady);
  REQUIRE(steady->first);
  // Step 0 has no optimizer state before its end, so it is never like the others.
  CHECK(*steady->first >= 1);
  CHECK(*steady->first + 2 <= steady->replayed);
  scenario.training.loop.steps = 12;
  const Step step = lower(scenario, plan);
  const Timeline timeline = simulate_with_allocator(scenario, step).timeline;
  std::vector<std::vector<Bytes>> reserved(12);
  for (std::size_t i = 0; i < timeline.events.size(); ++i)
    if (const OpId op = timeline.events[i].op(); op != no_id)
      reserved[static_cast<std::size_t>(step.ops[op].step)].push_back(timeline.allocator.reserved[i]);
  for (std::size_t k = static_cast<std::size_t>(*steady->first); k + 1 < reserved.size(); ++k)
    CHECK(reserved[k] == reserved[k + 1]);
  CHECK(std::ranges::max(reserved.back()) == steady->reserved);
}

TEST_CASE("steady state: none where there is no allocator, or no memory") {
  const std::string model = "model: {family: mlp, layers: 3, rows: 4096, width: 256, hidden: 512}\n";
  for (const std::string& allocator :
       {std::string("live"), std::string("arena"), std::string("{kind: cuda_caching, capacity: 8 MiB}")}) {
    CAPTURE(allocator);
    const Scenario scenario = parse_scenario(model + "allocator: " + allocator, "s.yaml");
    CHECK(!find_steady_state(scenario, plan_of(scenario, outline(scenario))));
  }
}

TEST_CASE("arena: a run says how far it is above the live peak") {
  const Scenario scenario = parse_scenario(
      "model: {family: chain, layers: 4, layer_activation: 10 MB, boundary: 1 MB}\n"
      "allocator: arena",
      "s.yaml");
  const Run result = run(scenario);
  REQUIRE(result.findings.arena);
  CHECK(result.findings.arena->live_peak == result.timeline.peak);
  CHECK(result.findings.arena->height == result.arena->height);
  CHECK(result.findings.arena->lower_bound >= result.timeline.peak);
  CHECK(result.arena->offsets.size() == static_cast<std::size_t>(result.findings.arena->storages));
}
