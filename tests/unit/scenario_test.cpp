// Does a scenario become exactly the values it says, and nothing it does not say?
#include "tidemark/input/scenario.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

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

namespace {

Scenario read(const std::string& yaml, const std::vector<std::string>& sets = {}) {
  return parse_scenario(yaml, "s.yaml", sets);
}

Policy policy_of(PolicyKind kind) {
  Policy policy;
  policy.kind = std::move(kind);
  return policy;
}

const std::string chain = "model: {family: chain, layers: 3}\n";
const std::string decoder =
    "model: {family: transformer, model_type: llama, layers: 2, hidden: 64, heads: 4, ffn_hidden: 96, vocab: 100}\n";

}  // namespace

TEST_CASE("scenario: what holds when only the model is given") {
  const Scenario scenario = read(decoder);
  CHECK(scenario.name == "s");
  CHECK(scenario.file == "s.yaml");
  CHECK(scenario.training.profile == *find_profile("pytorch-cuda"));
  CHECK(scenario.training.dtypes == DTypes{});
  CHECK(scenario.training.optimizer == Optimizer{});
  CHECK(scenario.training.batch == Batch{});
  CHECK(scenario.training.loss == Loss{});
  CHECK(scenario.training.loop == Loop{});
  CHECK(scenario.policy == Policy{});
  CHECK(scenario.convention == Convention::framework);
  CHECK_FALSE(scenario.budget.has_value());
  CHECK(scenario.flops_convention == "palm");
  CHECK(scenario.allocator == "live");
  CHECK(std::get<TransformerSpec>(scenario.model).kv_heads == 4);
  CHECK(std::get<MlpSpec>(read("model: {family: mlp}").model) == MlpSpec{});
  CHECK(read("model: {family: mlp}").training.profile == *find_profile("ideal"));
}

TEST_CASE("scenario: every setting has its place") {
  const Scenario scenario = read(decoder + R"(
name: all
profile: {preset: megatron, loop: plain}
batch: {size: 8, sequence: 16, accumulate: 4}
dtype: {parameters: bfloat16, compute: float16, gradients: float32, main_gradients: float32, master: float32,
        moments: bfloat16, logits: float32}
optimizer: {kind: momentum, multi_tensor: false, fused: true, zero_grad: zero}
loss: {chunks: 4, fused: true}
loop: {logits_held: true}
steps: 3
budget: 1.5 GiB
flops_convention: megatron
allocator: {kind: live}
parallel: {}
)");
  CHECK(scenario.name == "all");
  CHECK(scenario.training.profile.preset == "megatron");
  CHECK(scenario.training.profile.model_code == "megatron");
  CHECK(scenario.training.profile.loop == "plain");
  CHECK(scenario.training.batch == Batch{8, 16, 4});
  CHECK(scenario.training.dtypes == DTypes{DType::bfloat16, DType::float16, DType::float32, DType::float32,
                                           DType::float32, DType::bfloat16, DType::float32, false});
  CHECK(scenario.training.optimizer == Optimizer{OptimizerKind::momentum, false, true, false});
  CHECK(scenario.training.loss == Loss{4, true});
  CHECK(scenario.training.loop == Loop{.logits_held = true, .steps = 3});
  CHECK(scenario.budget == Bytes{3LL << 29});
  CHECK(scenario.flops_convention == "megatron");
  CHECK(std::get<TransformerSpec>(scenario.model).flops_convention == "megatron");
}

TEST_CASE("scenario: data types that follow from others") {
  CHECK(read(decoder + "dtype: {parameters: bfloat16}").training.dtypes.compute == DType::bfloat16);
  const DTypes autocast = read(decoder + "dtype: {autocast: bfloat16}").training.dtypes;
  CHECK(autocast.autocast);
  CHECK(autocast.compute == DType::bfloat16);
  CHECK(autocast.parameters == DType::float32);
  CHECK(read(decoder + "optimizer: sgd").training.loop.steps == 2);
  CHECK(read(decoder + "optimizer: sgd\nsteps: 1").training.loop.steps == 1);
}

TEST_CASE("scenario: every policy") {
  struct Case {
    std::string written;
    PolicyKind kind;
  };
  const Case cases[] = {
      {"none", policy::None{}},
      {"{kind: full}", policy::Full{}},
      {"{kind: interval, interval: 3, checkpoint_last: false}", policy::Interval{3, false}},
      {"sqrt", policy::Sqrt{true}},
      {"{kind: sequential, segments: 4}", policy::Sequential{4}},
      {"{kind: block, layers: 0}", policy::Block{0}},
      {"whole", policy::Whole{}},
      {"{kind: selective, recompute: attention}", policy::Selective{{"attention"}, {}, {}, 1}},
      {"{kind: selective, keep: [matmul, softmax], layers: '0-3,8,10-11', every: 2}",
       policy::Selective{{}, {"matmul", "softmax"}, {{0, 3}, {8, 8}, {10, 11}}, 2}},
      {"{kind: selective, keep: a, layers: 5}", policy::Selective{{}, {"a"}, {{5, 5}}, 1}},
      {"{kind: rule, attention_threshold: 1 MB, ffn_max_ratio: 0.5}",
       policy::Rule{Bytes{1'000'000}, Bytes{500'000'000}, 0.5}},
      {"{kind: plan, sequence: Fe0 L B0}", policy::Sequence{"Fe0 L B0"}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.written);
    CHECK(read(chain + "policy: " + c.written).policy.kind == c.kind);
  }
  const Policy policy = read(chain +
                             "policy: {kind: full, schedule: {on_grad_of: mlp.down}, boundaries: hold, nested: [4, 2], "
                             "checkpointing: {kind: reentrant, preserve_rng: false}}")
                            .policy;
  CHECK(policy.schedule == RecomputeSchedule::on_grad_of);
  CHECK(policy.on_grad_of == "mlp.down");
  CHECK(policy.hold_boundaries);
  CHECK(policy.nested == std::vector<int>{4, 2});
  CHECK(policy.checkpointing == Checkpointing{Checkpointing::Kind::reentrant, true, false});
  CHECK(read(chain + "policy: {kind: full, nested: 2}").policy.nested == std::vector<int>{2});
  CHECK(read(chain + "policy: {kind: full, schedule: up_front}").policy.schedule == RecomputeSchedule::up_front);
  CHECK(read(chain + "policy: {kind: full, schedule: just_in_time}").policy.schedule ==
        RecomputeSchedule::just_in_time);
}

TEST_CASE("scenario: values of a chain, one for all layers or one a layer") {
  const auto graph = std::get<LayerGraph>(read(R"(
model:
  family: chain
  layers: 2
  layer_activation: [100 MB, 50 MiB]
  boundary: [8 B, 9 B, 10 B]
  forward_flops: 1.5 TFLOP
  attention_fraction: [0.15, 1]
  forward_time: 3.5 us
  backward_time: [1 ms, 2 s]
  forward_workspace: 1 kB
  backward_workspace: 2 kB
  gradient: [3 B, 4 B]
  type: [attention, ffn]
  loss_time: 7 ns
  loss_workspace: 11 B
)")
                                              .model);
  CHECK(graph.input == Bytes{8});
  CHECK(graph.output_gradient == Bytes{0});
  CHECK(graph.loss_time == Nanos{7});
  CHECK(graph.loss_workspace == Bytes{11});
  LayerCost first;
  first.name = "layers.0";
  first.type = "attention";
  first.layer_activation = {100'000'000};
  first.output = {9};
  first.gradient = {3};
  first.forward_workspace = {1'000};
  first.backward_workspace = {2'000};
  first.forward_flops = {1'500'000'000'000};
  first.backward_flops = {3'000'000'000'000};
  first.attention_flops = {225'000'000'000};
  first.forward_time = {3'500};
  first.backward_time = {1'000'000};
  CHECK(graph.layers[0] == first);
  CHECK(graph.layers[1].output == Bytes{10});
  CHECK(graph.layers[1].attention_flops == graph.layers[1].forward_flops);
  CHECK(graph.layers[1].inputs == std::vector<std::int32_t>{0});
}

TEST_CASE("scenario: under convention rotor each boundary is its gradient") {
  const Scenario scenario = read("model: {family: chain, layers: 2, boundary: [1 B, 2 B, 3 B]}\nconvention: rotor");
  CHECK(scenario.convention == Convention::rotor);
  const auto& graph = std::get<LayerGraph>(scenario.model);
  CHECK(graph.layers[0].gradient == Bytes{1});
  CHECK(graph.layers[1].gradient == Bytes{2});
  CHECK(graph.output_gradient == Bytes{3});
}

TEST_CASE("scenario: settings replace, add, and drop what belonged to another kind") {
  const std::string yaml = chain + "policy: {kind: interval, interval: 3, boundaries: hold}";
  CHECK(read(yaml, {"policy.interval=2"}).policy.kind == PolicyKind(policy::Interval{2, true}));
  CHECK(read(yaml, {"policy.interval=2"}).policy.hold_boundaries);
  CHECK(read(yaml, {"policy.kind=full"}).policy == policy_of(policy::Full{}));
  CHECK(read(yaml, {"policy=sqrt"}).policy == policy_of(policy::Sqrt{true}));
  CHECK(read(yaml, {"policy.kind=interval", "policy.interval=5"}).policy == policy_of(policy::Interval{5, true}));
  CHECK(read(chain + "policy: full", {"policy.schedule=up_front"}).policy.schedule == RecomputeSchedule::up_front);
  CHECK(read(chain, {"policy={kind: selective, keep: [a, b]}"}).policy.kind ==
        PolicyKind(policy::Selective{{}, {"a", "b"}, {}, 1}));
  CHECK(read(decoder, {"batch.size=4", "batch.sequence=32"}).training.batch == Batch{4, 32, 1});
  CHECK(read(decoder + "profile: megatron", {"profile.runtime=ideal"}).training.profile.model_code == "megatron");
  CHECK(read(chain, {"model.layers=5", "model.layers=7"}).name == "s");
  CHECK(std::get<LayerGraph>(read(chain, {"model.layers=5", "model.layers=7"}).model).layers.size() == 7);
  CHECK(read(chain, {"device.flops.float32=1 TFLOP/s"}).device.flops[0] == 1e12);
  CHECK(read(chain, {"name=\"a=b\""}).name == "a=b");
}
