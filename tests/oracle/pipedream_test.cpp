// Are PipeDream's published profiles read whole? The profiles are not part of this project; where they have been
// fetched to ../shared/data/files, all of them are read, refereed under two policies, and compared with sums over their
// lines.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "support/csv.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;

TEST_CASE("pipedream: the published profiles, node for node") {
  const std::string folder = "../shared/data/files/pipedream_";
  if (!std::filesystem::exists(folder + "vgg16_graph.txt")) {
    MESSAGE("skipped: the published profiles are not here");
    return;
  }
  for (test::Row& row : test::table("tests/oracle/data/pipedream.csv")) {
    CAPTURE(row["model"]);
    const std::string model = "model: {family: graph, file: " + folder + row["model"] + "_graph.txt}\n";
    const Scenario scenario = parse_scenario(model, "s.yaml");
    const auto& graph = std::get<LayerGraph>(scenario.model);
    std::size_t edges = 0;
    LayerCost sum;
    for (const LayerCost& layer : graph.layers) {
      edges += layer.inputs.size();
      sum.forward_time += layer.forward_time;
      sum.backward_time += layer.backward_time;
      sum.layer_activation += layer.layer_activation;
      sum.parameters += layer.parameters;
    }
    CHECK(std::to_string(graph.layers.size()) == row["nodes"]);
    CHECK(std::to_string(edges) == row["edges"]);
    CHECK(to_string(sum.forward_time) == row["forward_ns"]);
    CHECK(to_string(sum.backward_time) == row["backward_ns"]);
    CHECK(to_string(sum.layer_activation) == row["activation_bytes"]);
    CHECK(to_string(sum.parameters) == row["parameter_bytes"]);
    for (const std::string policy : {"none", "{kind: interval, interval: 4}"}) {
      CAPTURE(policy);
      const Run result = run(parse_scenario(model + "policy: " + policy, "s.yaml"));
      CHECK_FALSE(referee(result.step, result.timeline).has_value());
    }
  }
}
