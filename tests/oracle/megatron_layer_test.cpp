#include <doctest/doctest.h>

#include "support/decoder_specs.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/program/outline.hpp"
#include "tidemark/step/kernel.hpp"
#include "tidemark/step/lower.hpp"

using namespace tidemark;

namespace {

/// Megatron's GPT: every bias, learned positions, dropout 0.1, ffn 4 h.
TransformerSpec megatron_gpt(std::int64_t h, std::int64_t a) {
  TransformerSpec spec = test::gpt2_spec();
  spec.layers = 2;
  spec.hidden = h;
  spec.heads = spec.kv_heads = a;
  spec.head_dim = h / a;
  spec.ffn_hidden = 4 * h;
  spec.vocab = 512;
  spec.max_positions = 4096;
  spec.activation = "gelu";
  return spec;
}

Training megatron_training(std::int64_t s, std::int64_t b) {
  Training training;
  training.profile = {"megatron", "pytorch-2.6", "transformer-engine", "megatron", "megatron"};
  training.dtypes.parameters = training.dtypes.compute = DType::bfloat16;
  training.batch = {.size = b, .sequence = s};
  return training;
}

Outline layer_outline(const TransformerSpec& spec, const Training& training) {
  return outline(make_transformer(spec, training), KernelSet(training.profile.kernels));
}

}  // namespace

// Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", equation 2, in 16 bit with
// 1-byte dropout masks: attention 11 sbh + 5 a s^2 b, MLP 19 sbh, two norms 4 sbh; the paper leaves out the norms'
// fp32 statistics, 2 norms x 2 statistics x 4 B a row.
TEST_CASE("Megatron, eager attention: a layer saves sbh (34 + 5 a s / h) and 16 s b of norm statistics") {
  struct Case {
    std::string name;
    std::int64_t s, b, h, a;
  };
  const Case cases[] = {
      {"CI model", 1024, 4, 512, 8},
      {"GPT-2 small", 1024, 8, 768, 12},
      {"22B of the paper", 2048, 4, 6144, 64},
      {"one head", 128, 3, 64, 1},
      {"one sequence of odd length", 77, 1, 96, 6},
      {"more heads than tokens", 4, 2, 64, 16},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const std::int64_t sbh = c.s * c.b * c.h;
    const Outline out = layer_outline(megatron_gpt(c.h, c.a), megatron_training(c.s, c.b));
    REQUIRE(out.layers[1].name == "layers.0");
    for (const std::size_t block : {1, 2})
      CHECK(out.layers[block].saved_bytes == Bytes{34 * sbh + 5 * c.a * c.s * c.s * c.b + 16 * c.s * c.b});
    std::int64_t attention = 0, core = 0, mlp = 0;
    for (const OutlineOp& op : out.layers[2].ops) {
      if (op.name.starts_with("attention.") || op.name == "attention_residual") attention += op.saved_bytes.count;
      if (op.name.starts_with("attention.core_attn.")) core += op.saved_bytes.count;
      if (op.name.starts_with("mlp.") || op.name == "mlp_residual") mlp += op.saved_bytes.count;
    }
    CHECK(attention == 11 * sbh + 5 * c.a * c.s * c.s * c.b);
    CHECK(core == 6 * sbh + 5 * c.a * c.s * c.s * c.b);  // q, k, v besides what lies between them
    CHECK(mlp == 19 * sbh);
  }
}

// With fused attention the scores are gone: q, k, v (6 sbh) and the output (2 sbh) stay, one fp32 statistic a row and
// head, and the generator's 16 bytes.
TEST_CASE("Megatron, fused attention: 34 sbh, 4 a b s of softmax statistics, 16 s b, and the generator's state") {
  TransformerSpec spec = megatron_gpt(512, 8);
  spec.attention = "fused";
  const std::int64_t s = 1024, b = 4, h = 512, a = 8;
  const Outline out = layer_outline(spec, megatron_training(s, b));
  CHECK(out.layers[1].saved_bytes == Bytes{34 * s * b * h + 4 * a * b * s + 16 * s * b + 16});
}

namespace {

/// Live when forward ends, without parameters.
std::int64_t activations_after_forward(std::int64_t layers, const Policy& policy) {
  TransformerSpec spec = megatron_gpt(512, 8);
  spec.layers = layers;
  const Training training = megatron_training(1024, 4);
  const Program program = make_transformer(spec, training);
  const Plan plan = make_plan(policy, outline(program, KernelSet(training.profile.kernels)));
  const Step step = lower(program, plan, training);
  const Timeline timeline = simulate(step, {});
  std::int64_t live = 0;
  for (std::size_t i = 0; i < step.ops.size(); ++i)
    if (step.ops[i].phase == Phase::forward) live = timeline.ops[i].after.count;
  return live - 2 * parameter_count(program);
}

}  // namespace

TEST_CASE("Megatron: one layer more is 34 sbh + 5 a s^2 b + 16 s b, and 2 sbh under full recompute") {
  const std::int64_t s = 1024, b = 4, sbh = 1024 * 4 * 512;
  const auto a_layer = [](const PolicyKind& kind) {
    Policy policy;
    policy.kind = kind;
    return activations_after_forward(4, policy) - activations_after_forward(3, policy);
  };
  CHECK(a_layer(policy::None{}) == 34 * sbh + 5 * 8 * s * s * b + 16 * s * b);
  CHECK(a_layer(policy::Full{}) == 2 * sbh);
}
