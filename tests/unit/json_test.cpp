#include "tidemark/report/json.hpp"

#include <doctest/doctest.h>

#include "support/tide.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/report/json_writer.hpp"

using namespace tidemark;
using tidemark::test::HandStep;
using tidemark::test::small_tide;

TEST_CASE("json: a writer for numbers of any size") {
  JsonWriter out;
  out.begin_object();
  out.member("text", "a\"b\n");
  out.member("yes", true);
  out.member("third", 1.0 / 3.0);
  out.member("large", Flops{Int128{1} << 65});
  out.member("negative", std::int64_t{-5});
  out.member("absent", std::optional<Bytes>{});
  out.begin_array("empty");
  out.end_array();
  out.begin_array("list");
  out.element("x");
  out.begin_object();
  out.end_object();
  out.end_array();
  out.end_object();
  CHECK(out.take() == R"({
  "text": "a\"b\n",
  "yes": true,
  "third": 0.3333333333333333,
  "large": 36893488147419103232,
  "negative": -5,
  "absent": null,
  "empty": [],
  "list": [
    "x",
    {}
  ]
}
)");
}

TEST_CASE("json: a name that is no UTF-8 stays readable") { CHECK(json_string("a\xff") == "\"a\xef\xbf\xbd\""); }

TEST_CASE("json: the summary of the small tide") {
  ScenarioFacts facts;
  facts.name = "small";
  facts.profile = {"ideal", "ideal", "ideal", "reference", "plain"};
  facts.top = 1;
  facts.policy = "1 of 2 blocks runs again";
  facts.budget = Bytes{279};
  facts.warnings = {"careful"};
  HandStep made = small_tide();
  made.step.model_flops = Flops{54};
  const std::string text = summary_json(summarize(made.step, simulate(made.step, {}), facts));
  const std::string figures = R"("phase_peaks": {
    "initial": 110,
    "forward": 165,
    "loss": 166,
    "recompute": 180,
    "backward": 280,
    "optimizer": 210,
    "communication": null,
    "offload": null
  },
  "forward_end_bytes": 165,
  "steady_bytes": 110,
)";
  const std::string expected = R"({
  "scenario": "small",
  "profile": {
    "preset": "ideal",
    "runtime": "ideal",
    "kernels": "ideal",
    "model_code": "reference",
    "loop": "plain"
  },
  "parameters": null,
  "peak_bytes": 280,
  "peak_step": 0,
  "peak_time_ns": 55,
  "peak_op": "layers.0.a",
  "peak_phase": "backward",
  "peak_by_category": {
    "parameter": 100,
    "gradient": 100,
    "optimizer_state": 0,
    "input": 10,
    "activation": 50,
    "temporary": 20,
    "autograd_detail": 0,
    "workspace": 0
  },
  "peak_tensors": [
    {
      "tensor": "w",
      "op": null,
      "layer": "layers.0",
      "category": "parameter",
      "bytes": 100,
      "birth_ns": 0,
      "death_ns": null,
      "drop_bytes": 100,
      "held_by": "parameter"
    }
  ],
  "tensors_at_peak": 6,
  )" + figures + R"(  "allocated_peak_bytes": null,
  "reserved_peak_bytes": null,
  "limit_bytes": 279,
  "non_torch_bytes": 0,
  "fits": false,
  "fits_by": "live",
  "margin_bytes": -1,
  "allocator": null,
  "flops": {
    "forward": 18,
    "recompute": 7,
    "backward": 36,
    "total": 61,
    "model": 54
  },
  "other_flops": {
    "forward": 5,
    "recompute": 2,
    "backward": 0,
    "total": 7
  },
  "recompute_overhead": 0.12962962962962962,
  "time_ns": {
    "step": 78,
    "forward": 25,
    "recompute": 10,
    "backward": 40,
    "optimizer": 3,
    "exposed_copy": 0
  },
  "mfu": null,
  "hfu": null,
  "policy": "1 of 2 blocks runs again",
  "recompute_at_peak": {
    "rebuilt_bytes": 30,
    "to_be_dropped_bytes": 0,
    "kept_bytes": 0,
    "layers_rebuilt": 1,
    "layers_recomputed": 1
  },
  "no_checkpoint_peak_bytes": null,
  "textbook_bytes": null,
  "events": 18,
  "ops": 7,
  "warnings": [
    "careful"
  ],
  "steps": [
    {
)";
  CHECK(text.substr(0, expected.size()) == expected);
  CHECK(text.ends_with("      \"hfu\": null\n    }\n  ]\n}\n"));
}
