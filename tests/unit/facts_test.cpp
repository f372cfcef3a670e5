#include "tidemark/study/facts.hpp"

#include <doctest/doctest.h>

using namespace tidemark;

namespace {

/// Four layers of 100 bytes on boundaries of 10.
Scenario four_layers(PolicyKind policy) {
  LayerGraph chain;
  chain.is_chain = true;
  chain.input = Bytes{10};
  for (int i = 0; i < 4; ++i) {
    LayerCost layer;
    layer.name = "layers." + std::to_string(i);
    layer.layer_activation = Bytes{100};
    if (i < 3) layer.output = Bytes{10};
    chain.layers.push_back(layer);
  }
  Scenario scenario;
  scenario.name = "four";
  scenario.model = chain;
  scenario.policy.kind = std::move(policy);
  return scenario;
}

ScenarioFacts facts_of(const Scenario& scenario) { return scenario_facts(scenario, run(scenario)); }

}  // namespace

TEST_CASE("facts: the textbook's numbers, where the policy makes equal segments of equal layers") {
  Scenario uneven = four_layers(policy::Full{});
  std::get<LayerGraph>(uneven.model).layers[2].layer_activation = Bytes{101};
  Scenario nested = four_layers(policy::Interval{2});
  nested.policy.nested = {1};
  Scenario smaller_first = four_layers(policy::Full{});
  std::get<LayerGraph>(smaller_first.model).layers[0].layer_activation = Bytes{90};
  Scenario huge = four_layers(policy::Interval{4});
  for (LayerCost& layer : std::get<LayerGraph>(huge.model).layers)
    layer.layer_activation = Bytes{std::int64_t{1} << 60};
  huge.policy.kind = policy::Interval{1 << 20};
  struct Case {
    std::string name;
    Scenario scenario;
    std::optional<Textbook> textbook;
  };
  const Textbook base{4, 1, {100}, {10}};
  const auto every = [&](std::int64_t interval) {
    Textbook out = base;
    out.interval = interval;
    return out;
  };
  const Case cases[] = {
      {"each layer", four_layers(policy::Full{}), every(1)},
      {"interval", four_layers(policy::Interval{3}), every(3)},
      {"square root", four_layers(policy::Sqrt{}), every(2)},
      {"whole", four_layers(policy::Whole{}), every(4)},
      {"the first layer saves less", smaller_first, every(1)},
      {"nothing runs again", four_layers(policy::None{}), {}},
      {"layers differ", uneven, {}},
      {"segments differ", four_layers(policy::Block{2}), {}},
      {"nested regions", nested, {}},
      {"the formula passes 2^63", huge, {}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(facts_of(c.scenario).textbook == c.textbook);
  }
}

TEST_CASE("facts: the same scenario without checkpointing") {
  const ScenarioFacts facts = facts_of(four_layers(policy::Interval{2}));
  // 4 x 100 and the input; with the policy 2 x 100 and two boundaries.
  CHECK(facts.no_checkpoint_peak == Bytes{410});
  CHECK(facts.policy == "4 of 4 blocks run again, in 2 regions");
  const ScenarioFacts none = facts_of(four_layers(policy::None{}));
  CHECK(none.no_checkpoint_peak == std::nullopt);
  CHECK(none.policy == "");
}

TEST_CASE("facts: what the device leaves to the framework") {
  struct Case {
    std::string name;
    std::optional<Bytes> capacity, usable;
    Bytes non_torch;
    std::optional<Bytes> expected;
  };
  const Case cases[] = {
      {"no device", {}, {}, {}, {}},
      {"all of it", Bytes{80}, {}, {}, Bytes{80}},
      {"what is usable", Bytes{80}, Bytes{78}, {}, Bytes{78}},
      {"less what others hold", Bytes{80}, Bytes{78}, {5}, Bytes{73}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Scenario scenario = four_layers(policy::None{});
    scenario.device.capacity = c.capacity;
    scenario.device.usable = c.usable;
    scenario.device.non_torch = c.non_torch;
    CHECK(facts_of(scenario).usable == c.expected);
  }
}

TEST_CASE("facts: the rate is that of the compute data type") {
  Scenario scenario = four_layers(policy::None{});
  scenario.device.flops[static_cast<std::size_t>(DType::float32)] = 1e12;
  scenario.device.flops[static_cast<std::size_t>(DType::bfloat16)] = 5e12;
  scenario.training.dtypes.compute = DType::bfloat16;
  CHECK(facts_of(scenario).flops_per_second == 5e12);
}

TEST_CASE("facts: a vocabulary that Megatron-LM would pad") {
  struct Case {
    std::string name;
    std::vector<std::string> sets;
    std::vector<std::string> warnings;
  };
  const std::string otherwise =
      ", whole 128s a tensor rank, unless --make-vocab-size-divisible-by says otherwise; 200 is simulated as it stands";
  const Case cases[] = {
      {"to the next 128", {}, {"Megatron-LM pads a vocabulary of 200 to 256" + otherwise}},
      {"of each tensor rank", {"parallel={tensor: 4}"}, {"Megatron-LM pads a vocabulary of 200 to 512" + otherwise}},
      {"padded already", {"model.vocab=256"}, {}},
      {"others do not", {"profile=pytorch-cuda"}, {}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Scenario scenario = parse_scenario(
        "profile: megatron\nmodel: {family: transformer, model_type: gpt2, layers: 1, hidden: 32, heads: "
        "4, vocab: 200, max_positions: 8}\nbatch: {size: 1, sequence: 8}\n",
        "s.yaml", c.sets);
    CHECK(facts_of(scenario).warnings == c.warnings);
  }
}
