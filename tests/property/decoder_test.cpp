// Whatever decoder of whatever model code under whatever kernels: is its Program sound, and its step in order?
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tidemark/engine/referee.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/plan/describe.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/program/transformer.hpp"
#include "tidemark/step/kernel.hpp"
#include "tidemark/step/lower.hpp"

using namespace tidemark;

namespace {

bool coin() { return *rc::gen::inRange(0, 2) == 1; }
int number(int first, int last) { return *rc::gen::inRange(first, last + 1); }
std::string one_of(const std::vector<std::string>& names) {
  return names[static_cast<std::size_t>(number(0, static_cast<int>(names.size()) - 1))];
}

Experts any_experts(std::int64_t layers) {
  Experts out;
  out.count = number(1, 4);
  out.per_token = number(1, static_cast<int>(out.count));
  out.hidden = number(1, 5);
  out.shared_hidden = number(0, 3);
  out.shared_gate = out.shared_hidden > 0 && coin();
  out.normalized = coin();
  out.sigmoid = coin();
  out.first_dense = number(0, 2);
  out.every = number(1, 2);
  if (coin()) out.dense_layers = {number(0, 3)};
  const Ratio factor = {number(4, 4 * static_cast<int>(out.count)), 4};
  if (coin()) out.imbalance.assign(coin() ? 1 : static_cast<std::size_t>(layers), factor);
  if (coin()) out.capacity_factor = Ratio{number(1, 8), 8};
  out.pad_to_capacity = out.capacity_factor && coin();
  return out;
}

/// What the architectures have in common is drawn freely; what makes each one is set.
void shape_up(TransformerSpec& spec) {
  if (spec.model_type == "gemma2") {
    spec.norms = Norms::around;
    spec.softcaps = true;
  }
  if (spec.model_type == "phi") {
    spec.parallel_branches = spec.head_bias = true;
    spec.rotary_dim = 2;
  }
  if (spec.model_type == "mixtral" || spec.model_type == "deepseek_v3") {
    spec.experts = any_experts(spec.layers);
    spec.ffn_bias = false;
  }
  if (spec.model_type == "deepseek_v3") {
    spec.kv_heads = spec.heads;
    spec.latent = {.kv_rank = number(1, 4),
                   .query_rank = number(0, 3),
                   .nope_dim = number(1, 4),
                   .rope_dim = 2 * number(1, 2),
                   .value_dim = number(1, 4)};
    spec.head_dim = spec.latent.nope_dim + spec.latent.rope_dim;
  }
  if (spec.model_type == "bert" || spec.model_type == "vit") {
    spec.causal = spec.rotary = spec.rms_norm = false;
    spec.head = coin() ? "classification" : "none";
    spec.qk_norm = false;
  }
  if (spec.model_type == "bert") {
    spec.norms = Norms::after;
    spec.token_types = number(0, 2);
    spec.head_bias = coin();
    if (coin()) spec.head = "mlm";
  }
  if (spec.model_type == "vit") spec.image = {.size = 4, .patch = number(1, 2) * 2, .channels = number(1, 3)};
}

TransformerSpec any_decoder() {
  TransformerSpec spec;
  spec.model_type = one_of({"gpt2", "llama", "mistral", "qwen", "qwen2", "qwen3", "gemma", "gemma2", "granite", "phi",
                            "mixtral", "deepseek_v3", "gpt_bigcode", "bert", "vit"});
  const bool gpt2 = spec.model_type == "gpt2";
  spec.layers = number(1, 4);
  spec.kv_heads = number(1, 3);
  spec.heads = spec.kv_heads * (gpt2 ? 1 : number(1, 3));
  spec.hidden = spec.heads * number(1, 4) * 2;
  spec.head_dim = coin() ? 0 : 2 * number(1, 4);
  if (spec.head_dim == 0 && spec.hidden / spec.heads % 2 != 0) spec.head_dim = 2;
  spec.ffn_hidden = number(1, 9);
  spec.vocab = number(1, 20);
  spec.max_positions = 16;
  spec.embedding_dropout = coin() ? 0.1 : 0;
  spec.attention_dropout = coin() ? 0.1 : 0;
  spec.residual_dropout = coin() ? 0.1 : 0;
  spec.activation = one_of({"gelu", "gelu_new", "silu", "relu"});
  spec.gated_ffn = spec.rms_norm = spec.rotary = !gpt2;
  spec.tied_embeddings = coin();
  spec.qkv_bias = coin();
  spec.projection_bias = coin();
  spec.ffn_bias = coin();
  spec.qk_norm = coin();
  spec.attention = one_of({"eager", "sdpa", "flash", "fused"});
  spec.head = coin() ? "lm" : "none";
  spec.flops_convention = one_of({"palm", "torchtitan", "megatron"});
  spec.labels = number(1, 3);
  shape_up(spec);
  return spec;
}

Training any_training() {
  Training training;
  training.profile.runtime = one_of({"ideal", "pytorch-1.13", "pytorch-2.6"});
  training.profile.kernels = one_of({"ideal", "cuda-sm80", "cuda-sm90", "transformer-engine"});
  training.profile.model_code = one_of({"reference", "huggingface", "megatron", "torchtitan"});
  const std::vector<DType> floats = {DType::float32, DType::bfloat16, DType::float16};
  training.dtypes.parameters = floats[static_cast<std::size_t>(number(0, 2))];
  training.dtypes.compute = floats[static_cast<std::size_t>(number(0, 2))];
  training.dtypes.autocast = training.dtypes.parameters == DType::float32 && coin();
  if (coin()) training.dtypes.logits = DType::float32;
  training.batch = {.size = number(1, 3), .sequence = number(1, 6), .accumulate = number(1, 2)};
  training.loss = {.chunks = coin() ? 1 : number(1, 4), .fused = number(0, 3) == 0};
  training.loop = {.logits_held = coin(), .steps = number(1, 2)};
  return training;
}

/// What this model can be trained with.
Training any_training(const TransformerSpec& spec) {
  Training training = any_training();
  if (!spec.causal) training.profile.model_code = coin() ? "reference" : "huggingface";
  if (spec.head_bias || spec.softcaps || spec.head != "lm") training.loss = {};
  return training;
}

Policy any_policy(int layers) {
  Policy policy;
  switch (number(0, 4)) {
    case 0:
      policy.kind = policy::None{};
      break;
    case 1:
      policy.kind = policy::Full{};
      break;
    case 2:
      policy.kind = policy::Interval{number(1, layers), coin()};
      break;
    case 3:
      policy.kind = policy::Whole{};
      break;
    default: {
      policy::Selective selective;
      selective.recompute = {one_of({"core_attn", "attention", "mlp"})};
      policy.kind = selective;
    }
  }
  return policy;
}

const Tensor& at(const Program& program, TensorId id) { return program.tensors[static_cast<std::size_t>(id)]; }
bool is_static(const Tensor& tensor) {
  return tensor.category == Category::parameter || tensor.category == Category::input;
}

/// The last element that strides reach lies inside the storage.
void check_layout(const Program& program, const Tensor& tensor) {
  RC_ASSERT(tensor.strides.size() == tensor.shape.size());
  std::int64_t reach = 1;
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    if (tensor.shape[d] == 0) return;
    reach += (tensor.shape[d] - 1) * tensor.strides[d];
  }
  const Bytes bytes = program.storages[static_cast<std::size_t>(tensor.storage)].bytes;
  RC_ASSERT(reach * bytes_per_element(tensor.dtype) <= bytes.count);
}

/// Made before it is read; let go once, not before the last reader.
void check_lives(const Program& program) {
  const auto tensors = program.tensors.size();
  std::vector<int> made(tensors, -1), read(tensors, -1), released(tensors, -1), releases(tensors, 0);
  for (std::size_t k = 0; k < program.ops.size(); ++k) {
    const int turn = static_cast<int>(k);
    for (const TensorId id : program.ops[k].inputs) {
      RC_ASSERT(is_static(at(program, id)) || made[static_cast<std::size_t>(id)] >= 0);
      read[static_cast<std::size_t>(id)] = turn;
    }
    for (const TensorId id : program.ops[k].outputs) {
      RC_ASSERT(made[static_cast<std::size_t>(id)] < 0);
      made[static_cast<std::size_t>(id)] = turn;
    }
    for (const TensorId id : program.ops[k].releases) {
      released[static_cast<std::size_t>(id)] = turn;
      ++releases[static_cast<std::size_t>(id)];
    }
  }
  for (std::size_t t = 0; t < tensors; ++t) {
    if (is_static(program.tensors[t])) continue;
    RC_ASSERT(made[t] >= 0);
    const bool is_loss = static_cast<TensorId>(t) == program.loss;
    RC_ASSERT(releases[t] == (is_loss ? 0 : 1));
    RC_ASSERT(is_loss || (released[t] >= made[t] && released[t] >= read[t]));
  }
}

void check_layers(const Program& program) {
  for (std::size_t k = 1; k < program.ops.size(); ++k) RC_ASSERT(program.ops[k - 1].layer <= program.ops[k].layer);
  RC_ASSERT(program.layers.front().name == "embedding");
  RC_ASSERT(program.layers.back().name == "loss");
}

/// Of an op's forward, from shapes alone.
std::int64_t products(const Program& program, const ProgramOp& op, bool gradients_in_forward) {
  const auto extent = [&](TensorId id, std::size_t from_last) {
    const Shape& shape = at(program, id).shape;
    return shape[shape.size() - 1 - from_last];
  };
  const auto count = [&](TensorId id) { return *element_count(at(program, id).shape); };
  switch (op.kind) {
    case OpKind::linear:
      return 2 * count(op.inputs[0]) * extent(op.inputs[1], 1);
    case OpKind::addmm:
      return 2 * count(op.inputs[1]) * extent(op.inputs[2], 0);
    case OpKind::bmm:
      return 2 * count(op.outputs[0]) * extent(op.inputs[0], 0);
    case OpKind::grouped_linear:
      return 2 * count(op.inputs[0]) * extent(op.inputs[1], 1);
    case OpKind::attention: {
      const std::int64_t values = count(op.inputs[0]) / extent(op.inputs[0], 0) * extent(op.inputs[2], 0);
      return 2 * (count(op.inputs[0]) + values) * extent(op.inputs[1], 1) / (op.attributes.causal ? 2 : 1);
    }
    case OpKind::linear_cross_entropy:
      return (gradients_in_forward ? 6 : 2) * count(op.inputs[0]) * extent(op.inputs[1], 1);
    default:
      return 0;
  }
}

}  // namespace

std::string told(const TransformerSpec& spec, const Training& training) {
  const Profile& p = training.profile;
  return spec.model_type + " " + std::to_string(spec.layers) + " layers, " + spec.attention + " attention, head " +
         spec.head + ", " + p.runtime + ", " + p.kernels + ", " + p.model_code + ", " +
         std::string(to_string(training.dtypes.compute)) + ", accumulate " + std::to_string(training.batch.accumulate) +
         ", steps " + std::to_string(training.loop.steps) + ", chunks " + std::to_string(training.loss.chunks) +
         (training.loss.fused ? ", fused loss" : "") + (training.loop.logits_held ? ", logits held" : "");
}

TEST_CASE("any decoder: tensors lie in their storages, live from maker to last reader, and layers stand together") {
  CHECK(rc::check([] {
    const TransformerSpec spec = any_decoder();
    const Program program = make_transformer(spec, any_training(spec));
    for (const Tensor& tensor : program.tensors) check_layout(program, tensor);
    check_lives(program);
    check_layers(program);
    RC_ASSERT(parameter_count(program) == parameter_count([&] {
                TransformerSpec filled = spec;
                if (filled.head_dim == 0) filled.head_dim = filled.hidden / filled.heads;
                return filled;
              }()));
  }));
}

TEST_CASE("any decoder: forward FLOPs are 2 m n k of its products") {
  CHECK(rc::check([] {
    const TransformerSpec spec = any_decoder();
    const Training training = any_training(spec);
    const Program program = make_transformer(spec, training);
    const KernelSet kernels(training.profile.kernels);
    for (const ProgramOp& op : program.ops) {
      RC_LOG() << op.name;
      RC_ASSERT(kernels.kernel(program, op).forward_cost.matmul_flops ==
                products(program, op, training.profile.kernels != "ideal"));
    }
  }));
}

TEST_CASE("any decoder under any policy: the referee accepts its step") {
  CHECK(rc::check([] {
    const TransformerSpec spec = any_decoder();
    const Training training = any_training(spec);
    const Program program = make_transformer(spec, training);
    const Outline out = outline(program, KernelSet(training.profile.kernels));
    const Plan plan = make_plan(any_policy(static_cast<int>(spec.layers)), out);
    const Step step = lower(program, plan, training);
    const auto violation = referee(step, simulate(step, {}));
    if (violation) RC_LOG() << violation->message << "; " << told(spec, training) << " under " << describe(plan, out);
    RC_ASSERT(!violation);
  }));
}
