// Where do tokens go, and what do models with experts, latent rows, pictures and segments run?
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "support/life.hpp"
#include "support/small_decoders.hpp"

using namespace tidemark;
using namespace tidemark::test;

namespace {

using Rows = std::vector<std::int64_t>;

Experts four_experts() {
  Experts out;
  out.count = 4;
  out.per_token = 2;
  out.hidden = 8;
  return out;
}

TransformerSpec small_mixtral() {
  TransformerSpec spec = small_llama();
  spec.model_type = "mixtral";
  spec.experts = four_experts();
  return spec;
}

std::string ops_of(const TransformerSpec& spec, const Training& how, const std::string& prefix) {
  std::string text;
  const Outline out = outline_of(spec, how);
  for (const OutlineOp& op : out.layers[1].ops)
    if (op.name.starts_with(prefix) && op.output_bytes.count > 0)
      text += (text.empty() ? "" : " ") + op.name.substr(prefix.size());
  return text;
}

std::int64_t matmul_flops(const TransformerSpec& spec, const Training& how) {
  std::int64_t total = 0;
  const Outline out = outline_of(spec, how);
  for (const OutlineOp& op : out.layers[1].ops)
    if (op.name.starts_with("mlp.")) total += static_cast<std::int64_t>(op.forward_flops.count);
  return total;
}

}  // namespace

TEST_CASE("rows of each expert: exact ratios, rounded up once") {
  struct Case {
    std::string name;
    std::vector<Ratio> imbalance;
    std::optional<Ratio> capacity;
    bool pad;
    std::int64_t tokens;
    Rows rows;
  };
  const Case cases[] = {
      {"even", {}, {}, false, 16, {8, 8, 8, 8}},
      {"what does not divide", {}, {}, false, 17, {9, 9, 8, 8}},
      {"one and a half times the mean", {{3, 2}}, {}, false, 16, {12, 7, 7, 6}},
      {"none gets more rows than there are tokens", {{4, 1}}, {}, false, 16, {16, 6, 5, 5}},
      {"this layer's own factor", {{1, 1}, {5, 4}}, {}, false, 16, {10, 8, 7, 7}},
      {"dropped above the capacity", {{3, 2}}, Ratio{5, 4}, false, 16, {10, 7, 7, 6}},
      {"filled up to it", {{3, 2}}, Ratio{5, 4}, true, 16, {10, 10, 10, 10}},
      {"a third of the mean, rounded up", {}, Ratio{1, 3}, true, 16, {3, 3, 3, 3}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Experts experts = four_experts();
    experts.imbalance = c.imbalance;
    experts.capacity_factor = c.capacity;
    experts.pad_to_capacity = c.pad;
    CHECK(expert_rows(experts, 1, c.tokens) == c.rows);
  }
}

TEST_CASE("which layers have experts") {
  TransformerSpec spec = small_mixtral();
  spec.layers = 8;
  spec.experts.first_dense = 1;
  spec.experts.every = 2;
  spec.experts.dense_layers = {5};
  Rows with;
  for (std::int64_t i = 0; i < spec.layers; ++i)
    if (has_experts(spec, i)) with.push_back(i);
  CHECK(with == Rows{1, 3, 7});
}

TEST_CASE("ops of a layer with experts as each model code writes them") {
  const auto one = [](int i) {
    const std::string e = "experts." + std::to_string(i) + ".";
    return e + "places " + e + "rows " + e + "gate_proj " + e + "activation " + e + "up_proj " + e + "mul " + e +
           "down_proj " + e + "weights " + e + "weighted ";
  };
  const auto without_router = [](const std::string& code, const std::string& kernels) {
    const std::string all = ops_of(small_mixtral(), training(code, kernels, DType::bfloat16), "mlp.");
    const std::size_t cast = all.find("top_cast ");
    REQUIRE(cast != std::string::npos);
    return all.substr(cast + std::string("top_cast ").size());
  };
  CHECK(without_router("huggingface", "cuda-sm80") + " " ==
        "combined expert_mask " + one(0) + one(1) + one(2) + one(3));
  CHECK(without_router("torchtitan", "cuda-sm80") ==
        "permutation permuted experts.gate_proj experts.activation experts.up_proj experts.mul experts.down_proj "
        "permuted_weights weighted combined");
  CHECK(
      without_router("megatron", "transformer-engine") ==
      "permutation permuted experts.gate_up_proj experts.swiglu experts.down_proj permuted_weights weighted combined");
}

TEST_CASE("the router: softmax or sigmoid in fp32, the best ones, over their sum where the model asks for it") {
  const Training how = training("huggingface", "cuda-sm80", DType::bfloat16);
  TransformerSpec spec = small_mixtral();
  const auto router = [&] {
    const std::string all = ops_of(spec, how, "mlp.");
    return all.substr(0, all.find(" combined"));
  };
  const auto scores_kind = [&] {
    const Outline out = outline_of(spec, how);
    return std::ranges::find(out.layers[1].ops, "mlp.router_scores", &OutlineOp::name)->kind;
  };
  CHECK(router() == "router router_float router_scores top_k top_sum top_weights top_cast");
  CHECK(scores_kind() == "softmax");
  spec.experts.normalized = false;
  spec.experts.sigmoid = true;
  CHECK(router() == "router router_float router_scores top_k top_cast");
  CHECK(scores_kind() == "sigmoid");
}

// 16 tokens, each at 2 of 4 experts of width 8 (three products with 16 columns), and a router of 4.
TEST_CASE("FLOPs of experts are those of the rows they get, whoever writes the model") {
  const std::int64_t router = 2 * 16 * 16 * 4, row_flops = 3 * 2 * 16 * 8;
  for (const std::string code : {"reference", "huggingface", "megatron", "torchtitan"}) {
    CAPTURE(code);
    TransformerSpec spec = small_mixtral();
    CHECK(matmul_flops(spec, training(code, "ideal")) == router + 32 * row_flops);
    spec.experts.imbalance = {{3, 2}};
    CHECK(matmul_flops(spec, training(code, "ideal")) == router + 32 * row_flops);
    spec.experts.capacity_factor = Ratio{5, 4};
    CHECK(matmul_flops(spec, training(code, "ideal")) == router + 30 * row_flops);  // 10 + 7 + 7 + 6
    spec.experts.shared_hidden = 5;
    CHECK(matmul_flops(spec, training(code, "ideal")) == router + 30 * row_flops + 16 * 3 * 2 * 16 * 5);
  }
}

TEST_CASE("latent attention makes keys and values from one narrow row") {
  TransformerSpec spec = small_mixtral();
  spec.model_type = "deepseek_v3";
  spec.kv_heads = spec.heads;
  spec.latent = {.kv_rank = 6, .query_rank = 5, .nope_dim = 4, .rope_dim = 2, .value_dim = 3};
  spec.head_dim = 6;
  spec.attention = "flash";
  CHECK(ops_of(spec, training("torchtitan", "cuda-sm80"), "attention.") ==
        "q_a_proj q_a_norm.pow q_a_norm.mean q_a_norm.epsilon q_a_norm.rsqrt q_a_norm.normalize q_a_norm.scale "
        "q_b_proj kv_a_proj kv_a_norm.pow kv_a_norm.mean kv_a_norm.epsilon kv_a_norm.rsqrt kv_a_norm.normalize "
        "kv_a_norm.scale kv_b_proj q_rotary k_rotary q_join k_join core_attn.v_pad core_attn.attention "
        "core_attn.merge_copy o_proj");
  const Program program = make_transformer(spec, training("torchtitan", "cuda-sm80"));
  for (const std::string part : {"q_join", "k_join"}) {
    CAPTURE(part);
    const auto join = std::ranges::find(program.ops, "layers.0.attention." + part, &ProgramOp::name);
    REQUIRE(join != program.ops.end());
    CHECK(program.tensors[static_cast<std::size_t>(join->inputs[0])].shape.back() == spec.latent.nope_dim);
    CHECK(program.tensors[static_cast<std::size_t>(join->inputs[1])].shape.back() == spec.latent.rope_dim);
  }
}

TEST_CASE("encoders: embeddings and heads of their own") {
  TransformerSpec bert = small_gpt2();
  bert.model_type = "bert";
  bert.causal = false;
  bert.norms = Norms::after;
  bert.head = "mlm";
  bert.token_types = 2;
  bert.head_bias = true;
  bert.activation = "gelu";
  const auto layer = [](const TransformerSpec& spec, const std::string& name) {
    const Outline out = outline_of(spec, training("huggingface", "cuda-sm80"));
    std::string text;
    for (const OutlineOp& op : std::ranges::find(out.layers, name, &OutlineLayer::name)->ops)
      if (op.output_bytes.count > 0) text += (text.empty() ? "" : " ") + op.name;
    return text;
  };
  CHECK(layer(bert, "embedding").find("tokens") != std::string::npos);
  CHECK(layer(bert, "head") == "transform transform.activation transform.norm decoder");
  bert.head = "classification";
  CHECK(layer(bert, "head") == "pooler pooler.activation dropout classifier");
  TransformerSpec vit = small_gpt2();
  vit.model_type = "vit";
  vit.causal = false;
  vit.head = "classification";
  vit.image = {.size = 8, .patch = 4, .channels = 3};
  const Program program = make_transformer(vit, training("huggingface", "cuda-sm80"));
  const auto rows = std::ranges::find(program.tensors, "embedding.rows", &Tensor::name);
  REQUIRE(rows != program.tensors.end());
  CHECK(rows->shape == Shape{b, 5, h});  // four patches and the class
  // The projection reads the picture where it lies.
  const auto patches = std::ranges::find(program.tensors, "embedding.patches", &Tensor::name);
  REQUIRE(patches != program.tensors.end());
  const auto pixels = std::ranges::find(program.tensors, "pixel_values", &Tensor::name);
  REQUIRE(pixels != program.tensors.end());
  CHECK(patches->storage == pixels->storage);
}

TEST_CASE("Megatron's experts make gate and up in one product, whatever the activation") {
  TransformerSpec spec = small_mixtral();
  const Training how = training("megatron", "transformer-engine", DType::bfloat16);
  CHECK(ops_of(spec, how, "mlp.experts.") == "gate_up_proj swiglu down_proj");
  spec.activation = "gelu";
  CHECK(ops_of(spec, how, "mlp.experts.") == "gate_up_proj activation mul down_proj");
}

TEST_CASE("the mask of choices is a variable until all experts have run") {
  const std::string mixtral =
      "model: {family: transformer, model_type: mixtral, layers: 1, hidden: 16, heads: 2, kv_heads: 2, ffn_hidden: 8,\n"
      "        vocab: 40, experts: 4, experts_per_token: 2, attention: flash}\nbatch: {size: 1, sequence: 8}\n";
  CHECK(life(step_of(mixtral, {}), "layers.0.mlp.expert_mask") ==
        "512 B, layers.0.mlp.expert_mask to layers.0.mlp.experts.3.add");
}
