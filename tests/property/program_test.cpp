// Any policy on any small model: does its Step hold together, and does it run what the plan says?
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>

#include <string>
#include <vector>

#include "support/any_policy.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/plan/sequence.hpp"
#include "tidemark/program/mlp.hpp"
#include "tidemark/program/transformer.hpp"
#include "tidemark/step/kernel.hpp"
#include "tidemark/step/lower.hpp"

using namespace tidemark;

namespace {

std::string one_of(const std::vector<std::string>& names) {
  return names[static_cast<std::size_t>(number(0, static_cast<int>(names.size()) - 1))];
}

Program any_mlp(const Training& training) {
  MlpSpec spec;
  spec.layers = number(1, 6);
  spec.rows = number(1, 8);
  spec.width = number(1, 8);
  spec.hidden = number(1, 8);
  spec.style = one_of({"matmul", "addmm", "linear", "residual", "inplace"});
  spec.activation = spec.style == "inplace" ? "relu" : one_of({"relu", "gelu", "silu", "tanh"});
  spec.loss = one_of({"mse", "sum", "none"});
  spec.input_requires_grad = number(0, 1) == 1;
  return make_mlp(spec, training);
}

Program any_decoder(const Training& training) {
  TransformerSpec spec;
  spec.model_type = one_of({"gpt2", "llama", "qwen3"});
  spec.layers = number(1, 4);
  spec.heads = 4;
  spec.kv_heads = spec.model_type == "gpt2" ? 4 : number(1, 2) * 2;
  spec.head_dim = 4;
  spec.hidden = 16;
  spec.ffn_hidden = 24;
  spec.vocab = 32;
  spec.max_positions = 16;
  spec.embedding_dropout = spec.attention_dropout = spec.residual_dropout = number(0, 1) * 0.1;
  const bool llama = spec.model_type != "gpt2";
  spec.activation = llama ? "silu" : "gelu_new";
  spec.gated_ffn = spec.rms_norm = spec.rotary = llama;
  spec.qkv_bias = spec.projection_bias = spec.ffn_bias = !llama;
  spec.qk_norm = spec.model_type == "qwen3";
  spec.tied_embeddings = number(0, 1) == 1;
  spec.attention = one_of({"eager", "sdpa", "flash"});
  return make_transformer(spec, training);
}

}  // namespace

TEST_CASE("program: under any policy nothing is read after it died, and nothing is left") {
  CHECK(rc::check([] {
    Training training;
    training.batch = {number(1, 2), number(1, 8), number(1, 2)};
    training.loop.steps = number(1, 2);
    training.profile.runtime = one_of({"ideal", "pytorch-1.13", "pytorch-2.6"});
    training.profile.kernels = one_of({"ideal", "cuda-sm80", "transformer-engine"});
    training.profile.model_code = one_of({"reference", "huggingface", "megatron", "torchtitan"});
    const bool mlp = number(0, 1) == 0;
    const Program program = mlp ? any_mlp(training) : any_decoder(training);
    const KernelSet kernels(training.profile.kernels);
    const Outline seen = outline(program, kernels);
    Policy policy = random_policy(seen);
    const bool selects = policy.kind.index() > 6;  // which re-entrant regions cannot
    if (policy.schedule == RecomputeSchedule::per_segment && policy.nested.empty())
      policy.checkpointing.kind =
          selects ? static_cast<Checkpointing::Kind>(number(0, 1) * 2) : static_cast<Checkpointing::Kind>(number(0, 2));
    const Plan plan = make_plan(policy, seen);
    RC_LOG() << (mlp ? "mlp " : "decoder ") << training.profile.runtime << " " << training.profile.kernels << " "
             << static_cast<int>(plan.checkpointing.kind) << " " << to_sequence(plan, seen) << "\n";

    const Step step = lower(program, plan, training);
    const Timeline timeline = simulate(step, {});
    const auto fault = referee(step, timeline);
    if (fault) RC_FAIL(fault->message);

    if (plan.checkpointing.kind != Checkpointing::Kind::direct) return;  // the framework decides how far
    // What runs again is what the plan names, in every micro-batch of every step.
    Flops expected;
    for (const PlanStep& s : plan.steps) {
      if (s.action != Action::recompute) continue;
      const auto& ops = seen.layers[static_cast<std::size_t>(s.layer)].ops;
      for (std::size_t k = 0; k < ops.size(); ++k)
        if (s.ops.empty() || std::ranges::find(s.ops, static_cast<std::int32_t>(k)) != s.ops.end())
          expected += ops[k].forward_flops;
    }
    Flops executed;
    for (const StepOp& op : step.ops)
      if (op.phase == Phase::recompute) executed += Flops{op.flops};
    RC_ASSERT(executed == Int128{training.batch.accumulate} * training.loop.steps * expected);
  }));
}
