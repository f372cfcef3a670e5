// Do networks whose convolutions no rule knows come out as recorded, with those ops' temporaries given as data?
#include <doctest/doctest.h>

#include <string>

#include "support/csv.hpp"
#include "support/torch_streams.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;
using test::Row;

TEST_CASE(
    "recorded PyTorch steps with ops given as data: every allocation and free, and a warning that names the ops") {
  for (const Row& row : test::table("tests/oracle/data/torch_programs.csv")) {
    const std::string name = row.at("version") + " " + row.at("name");
    CAPTURE(name);
    std::string text =
        "profile: pytorch-" + row.at("version") + "-cpu\nmodel: {family: program, file: " + row.at("program") + "}\n";
    if (row.at("interval") != "0")
      text += "policy: {kind: interval, interval: " + row.at("interval") +
              ", checkpointing: {kind: " + row.at("checkpointing") + ", preserve_rng: " + row.at("preserve_rng") +
              "}}\n";
    const Scenario scenario = parse_scenario(text, "case");
    const Step step = run(scenario).step;
    const auto live = static_cast<std::size_t>(std::stoi(row.at("live")));
    CHECK(test::difference(test::events_of(step, live), test::split(row.at("events"), ' ')) == "");
    REQUIRE(!step.warnings.empty());
    const std::string op = row.at("program").find("moe") == std::string::npos ? "aten.convolution" : "aten.nonzero";
    CHECK(step.warnings.front().find("no rule for " + op) == 0);
  }
}
