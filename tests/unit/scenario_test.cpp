// Does a scenario become exactly the values it says, and nothing it does not say?
#include "tidemark/input/scenario.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace tidemark;

TEST_CASE("scenario: a chain of equal layers") {
  const Scenario scenario = read_scenario("scenarios/chain-seed-36.yaml");
  CHECK(scenario.name == "chain-seed-36");
  CHECK(scenario.family == "chain");
  const auto& graph = std::get<LayerGraph>(scenario.model);
  CHECK(graph.is_chain);
  REQUIRE(graph.layers.size() == 36);
  CHECK(graph.input == Bytes{10'000'000});
  CHECK(graph.layers[34].output == Bytes{10'000'000});
  CHECK(graph.layers[35].output == Bytes{0});
  CHECK(graph.layers[35].layer_activation == Bytes{100'000'000});
  CHECK(scenario.policy.kind == PolicyKind(policy::Interval{6, true}));
  CHECK(scenario.policy.hold_boundaries);
  CHECK(scenario.training.loop.steps == 1);
  CHECK(scenario.training.profile.preset == "ideal");
}

TEST_CASE("scenario: a transformer from its config, with settings over it") {
  const Scenario scenario =
      read_scenario("scenarios/gpt2-small-every-3.yaml", {"batch.size=2", "policy.kind=full", "model.layers=3"});
  const auto& spec = std::get<TransformerSpec>(scenario.model);
  CHECK(spec.model_type == "gpt2");
  CHECK(spec.layers == 3);
  CHECK(spec.hidden == 768);
  CHECK(spec.heads == 12);
  CHECK(spec.kv_heads == 12);
  CHECK(spec.head_dim == 64);
  CHECK(spec.ffn_hidden == 3072);
  CHECK(spec.attention_dropout == 0.1);
  CHECK(spec.tied_embeddings);
  CHECK(spec.qkv_bias);
  CHECK_FALSE(spec.rms_norm);
  CHECK(scenario.training.batch.size == 2);
  CHECK(scenario.training.profile.preset == "pytorch-cuda");
  CHECK(scenario.training.loop.steps == 2);
  CHECK(scenario.policy.kind == PolicyKind(policy::Full{}));
  CHECK(scenario.device.name == "a100-80gb");
  CHECK(scenario.device.capacity == Bytes{80LL << 30});
}

TEST_CASE("scenario: flags without a file") {
  const Scenario scenario = scenario_from_config({"scenarios/configs/gpt2.json", "8", "512", "full"});
  CHECK(scenario.name == "gpt2");
  CHECK(scenario.training.batch.size == 8);
  CHECK(scenario.training.batch.sequence == 512);
  CHECK(scenario.policy.kind == PolicyKind(policy::Full{}));
}
