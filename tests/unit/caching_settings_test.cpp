#include "tidemark/input/caching_settings.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/report/text.hpp"
#include "tidemark/study/facts.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;

TEST_CASE("caching settings: PYTORCH_CUDA_ALLOC_CONF as PyTorch reads it") {
  const CachingSettings all = parse_alloc_conf(
      "max_split_size_mb:128,garbage_collection_threshold:0.6,expandable_segments:True,max_non_split_rounding_mb:64");
  CHECK(all.max_split_size == Bytes{128 << 20});
  CHECK(all.garbage_collection_threshold == 0.6);
  CHECK(all.expandable_segments);
  CHECK(all.max_non_split_rounding == Bytes{64 << 20});
  CHECK(parse_alloc_conf("") == CachingSettings{});

  struct Case {
    std::string name, divisions;
    CachingSettings::Divisions by_size;
  };
  const Case cases[] = {
      {"one number", "4", {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}},
      {"the first holds below it", "[4:8,8:2]", {8, 8, 8, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
      {"from the last on, itself included", "[2:1,8:2,>:4]", {1, 1, 0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}},
      {"beyond the last interval", "[65536:2]", {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(parse_alloc_conf("roundup_power2_divisions:" + c.divisions).roundup_power2_divisions == c.by_size);
  }
}

TEST_CASE("caching settings: what PyTorch refuses is refused") {
  const std::vector<std::string> bad = {"max_split_size_mb:20",
                                        "max_split_size_mb:x",
                                        "max_non_split_rounding_mb:20",
                                        "roundup_power2_divisions:3",
                                        "roundup_power2_divisions:[]",
                                        "roundup_power2_divisions:[3:4]",
                                        "roundup_power2_divisions:[4:3]",
                                        "roundup_power2_divisions:[4]",
                                        "garbage_collection_threshold:1",
                                        "garbage_collection_threshold:0",
                                        "expandable_segments:yes",
                                        "max_split_size:100",
                                        "expandable_segments"};
  for (const std::string& conf : bad) {
    CAPTURE(conf);
    CHECK_THROWS_AS(parse_alloc_conf(conf), InputError);
  }
}

TEST_CASE("caching settings: what works against each other is said") {
  CHECK(contradictions({}).empty());
  CHECK(contradictions(parse_alloc_conf("max_split_size_mb:100,expandable_segments:True")).size() == 1);
  CHECK(contradictions(parse_alloc_conf("garbage_collection_threshold:0.5")).size() == 1);
}

// a layer saves 30 MiB; boundaries are of 10 MiB
TEST_CASE("allocator of a scenario: what it reserves, and when the device has too little") {
  const std::string chain =
      "model: {family: chain, layers: 4, layer_activation: 30 MiB, boundary: 10 MiB, forward_flops: 1 FLOP}\n";
  struct Case {
    std::string name, allocator;
    bool columns, fails;
  };
  const Case cases[] = {
      {"live", "allocator: live", false, false},
      {"caching, any size", "allocator: cuda_caching", true, false},
      {"caching, too small", "allocator: {kind: cuda_caching, capacity: 64 MiB}", true, true},
      {"arena", "allocator: arena", true, false},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Scenario scenario = parse_scenario(chain + c.allocator, "s.yaml");
    const Run result = run(scenario);
    CHECK(!result.timeline.allocator.reserved.empty() == c.columns);
    CHECK(result.timeline.out_of_memory.has_value() == c.fails);
    const Summary summary = summarize(result.step, result.timeline, scenario_facts(scenario, result));
    if (c.columns && !c.fails) CHECK(*summary.reserved_peak >= result.timeline.peak);
    if (!c.fails) continue;
    CHECK(summary.fits == false);
    REQUIRE(summary.out_of_memory);
    CHECK(summary.margin->count < 0);
    CHECK(out_of_memory_text(*summary.out_of_memory).starts_with("out of memory in forward of "));
  }
}
