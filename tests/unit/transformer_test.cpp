#include "tidemark/program/transformer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "support/small_decoders.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/program/outline.hpp"
#include "tidemark/step/kernel.hpp"

using namespace tidemark;
using namespace tidemark::test;

namespace {

const OutlineLayer& layer_of(const Outline& out, const std::string& name) {
  return *std::ranges::find(out.layers, name, &OutlineLayer::name);
}

/// Names of a layer's ops that allocate an output or run: views left out.
std::string ops_of(const OutlineLayer& layer, const std::string& prefix) {
  std::string text;
  for (const OutlineOp& op : layer.ops)
    if (op.name.starts_with(prefix) && op.output_bytes.count > 0)
      text += (text.empty() ? "" : " ") + op.name.substr(prefix.size());
  return text;
}

int count_kind(const OutlineLayer& layer, const std::string& kind) {
  return static_cast<int>(std::ranges::count(layer.ops, kind, &OutlineOp::kind));
}

}  // namespace

TEST_CASE("a decoder has an embedding, its blocks, a head and a loss") {
  const Program program = make_transformer(small_gpt2(), training("reference", "ideal"));
  std::vector<std::string> names;
  for (const Layer& layer : program.layers) names.push_back(layer.name + (layer.is_block ? "*" : ""));
  CHECK(names == std::vector<std::string>{"embedding", "layers.0*", "layers.1*", "head", "loss"});
  CHECK(program.tensors[static_cast<std::size_t>(program.logits.at(0))].name == "head.lm_head");
}

TEST_CASE("ops of a block as each model code writes them") {
  struct Case {
    std::string name, code, kernels;
    TransformerSpec spec;
    std::string attention, mlp;
  };
  TransformerSpec flash = small_llama();
  flash.attention = "flash";
  TransformerSpec fused = small_llama();
  fused.attention = "fused";
  TransformerSpec sdpa = small_llama();
  sdpa.attention = "sdpa";
  const Case cases[] = {
      {"GPT-2 of Hugging Face", "huggingface", "cuda-sm80", small_gpt2(),
       "qkv_proj core_attn.scores core_attn.scale core_attn.mask core_attn.softmax core_attn.dropout core_attn.context "
       "core_attn.merge_copy o_proj output_dropout",
       "up_proj activation.half activation.pow activation.cubic activation.add activation.argument activation.tanh "
       "activation.one_plus activation.mul down_proj dropout"},
      {"GPT-2 of the reference", "reference", "ideal", small_gpt2(),
       "qkv_proj core_attn.scores core_attn.scale core_attn.mask core_attn.softmax core_attn.dropout core_attn.context "
       "core_attn.merge_copy o_proj output_dropout",
       "up_proj activation down_proj dropout"},
      {"GPT-2 of Megatron", "megatron", "transformer-engine", small_gpt2(),
       "qkv_proj core_attn.scores core_attn.softmax core_attn.dropout core_attn.context core_attn.merge_copy o_proj",
       "up_proj activation down_proj"},
      {"Llama of Hugging Face", "huggingface", "cuda-sm80", small_llama(),
       "q_proj k_proj v_proj q_rotary.cos q_rotary.negate q_rotary.rotate q_rotary.sin q_rotary.sum k_rotary.cos "
       "k_rotary.negate k_rotary.rotate k_rotary.sin k_rotary.sum core_attn.k_repeat core_attn.v_repeat "
       "core_attn.scores core_attn.scale core_attn.mask core_attn.softmax core_attn.context core_attn.merge_copy "
       "o_proj",
       "gate_proj activation up_proj mul down_proj"},
      {"Llama, sdpa repeats the grouped heads", "huggingface", "cuda-sm80", sdpa,
       "q_proj k_proj v_proj q_rotary.cos q_rotary.negate q_rotary.rotate q_rotary.sin q_rotary.sum k_rotary.cos "
       "k_rotary.negate k_rotary.rotate k_rotary.sin k_rotary.sum core_attn.k_repeat core_attn.v_repeat "
       "core_attn.attention o_proj",
       "gate_proj activation up_proj mul down_proj"},
      {"Llama, flash does not", "torchtitan", "cuda-sm80", flash,
       "q_proj k_proj v_proj q_rotary k_rotary core_attn.attention o_proj",
       "gate_proj activation up_proj mul down_proj"},
      {"Llama of Megatron: interleaved query heads are copied", "megatron", "transformer-engine", flash,
       "qkv_proj q_heads q_rotary k_rotary core_attn.q_copy core_attn.k_copy core_attn.v_copy core_attn.attention "
       "core_attn.merge_copy o_proj",
       "gate_up_proj swiglu down_proj"},
      {"cuDNN's kernel takes Megatron's rows as they are", "megatron", "transformer-engine", fused,
       "qkv_proj q_heads q_rotary k_rotary core_attn.attention o_proj", "gate_up_proj swiglu down_proj"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Outline out = outline_of(c.spec, training(c.code, c.kernels));
    CHECK(ops_of(out.layers[1], "attention.") == c.attention);
    CHECK(ops_of(out.layers[1], "mlp.") == c.mlp);
  }
}

// fp32, dropout masks of 1 byte. Both blocks save the same.
TEST_CASE("what a block saves, by hand") {
  struct Case {
    std::string name;
    TransformerSpec spec;
    Training how;
    std::int64_t saved;
  };
  const std::int64_t statistics = b * s * 4;
  const std::int64_t kv = b * s * 8;  // two heads of four
  TransformerSpec flash = small_llama();
  flash.attention = "flash";
  TransformerSpec gpt2_flash = small_gpt2();
  gpt2_flash.attention = "flash";
  const Case cases[] = {
      // norm 1: x, 2 statistics; qkv: its input; scores: copies of q and k; softmax, mask, dropout's output, copy of v;
      // output product: its input; mask; norm 2: x, 2 statistics; up: its input; GELU: x, x/2, tanh, 1 + tanh;
      // down: its input; mask
      {"GPT-2, Hugging Face on CUDA, fp32", small_gpt2(), training("huggingface", "cuda-sm80"),
       4 * (2 * row + 2 * row + square + square + row + row + row + row + 5 * b * s * f) + square + 2 * row +
           4 * statistics},
      // the least: one kernel for GELU, q, k and v as one storage without copies
      {"GPT-2, reference with ideal kernels", small_gpt2(), training("reference", "ideal"),
       4 * (2 * row + 3 * row + square + square + row + row + row + 2 * b * s * f) + square + 2 * row + 4 * statistics},
      {"GPT-2, ideal flash attention: q, k, v, output, logsumexp", gpt2_flash, training("reference", "ideal"),
       4 * (2 * row + 3 * row + row + row + row + 2 * b * s * f) + 2 * row + 4 * statistics + 4 * b * a * s},
      // norms: x, 1 statistic; one input for the three products; q, k, v, output, logsumexp; output product shares the
      // output's storage; gate and up: their input; silu: its input; silu's output times up; down: its input
      {"Llama, ideal flash attention, bf16", flash, training("reference", "ideal", DType::bfloat16),
       2 * (2 * row + row + row + 2 * kv + row + row + 4 * b * s * f) + 2 * statistics + 4 * b * a * s},
      // norms as operators: x in fp32 (x itself is not kept), 1/rms, the normed bf16 tensor, and the output that the
      // products keep; cos and sin; rotated q and k, v, output, logsumexp and the generator's seed and offset
      {"Llama, Hugging Face flash on CUDA, bf16", flash, training("huggingface", "cuda-sm80", DType::bfloat16),
       2 * (4 * row + 2 * row + 2 * row) + 2 * statistics + 2 * 2 * s * 4 + 2 * (row + 2 * kv + row) + 4 * b * a * s +
           16 + 2 * 4 * b * s * f},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Outline out = outline_of(c.spec, c.how);
    CHECK(out.layers[1].saved_bytes == Bytes{c.saved});
    CHECK(out.layers[2].saved_bytes == Bytes{c.saved});
  }
}

TEST_CASE("whatever the tensors' places in memory, an op's result and its copies follow PyTorch's strides") {
  const auto strides = [](const Program& program, const std::string& name) {
    const auto found = std::ranges::find(program.tensors, name, &Tensor::name);
    REQUIRE(found != program.tensors.end());
    return found->strides;
  };
  const Program gpt2 = make_transformer(small_gpt2(), training("huggingface", "cuda-sm80"));
  // q is a third of each row of 48, seen as 4 heads of 4.
  CHECK(strides(gpt2, "layers.0.attention.q_transposed") == Shape{s * 3 * h, 4, 3 * h, 1});
  // Pointwise results are dense in their operand's order: still token by token.
  const Program llama = make_transformer(small_llama(), training("huggingface", "cuda-sm80"));
  CHECK(strides(llama, "layers.0.attention.q_rotary.sum") == Shape{s * h, 4, h, 1});
  CHECK(strides(llama, "layers.0.attention.core_attn.k_repeat") == Shape{4 * s * 4, s * 4, 4, 1});
  // Megatron: q, k, v of a head side by side, sequence first. Batch and heads merge, so nothing is copied.
  const Program megatron = make_transformer(small_gpt2(), training("megatron", "transformer-engine"));
  CHECK(strides(megatron, "layers.0.attention.q_transposed") == Shape{3 * h, 12, b * 3 * h, 1});
}

TEST_CASE("the embedding: tables, positions, and what each model adds") {
  struct Case {
    std::string name, ops;
    TransformerSpec spec;
    std::string code;
  };
  TransformerSpec gemma = small_llama();
  gemma.model_type = "gemma";
  const Case cases[] = {
      {"GPT-2", "tokens positions add dropout", small_gpt2(), "huggingface"},
      {"Megatron turns the rows", "tokens positions add sequence_first dropout", small_gpt2(), "megatron"},
      {"Llama", "tokens rotary_cos rotary_sin causal_mask", small_llama(), "huggingface"},
      {"Llama with tables as inputs", "tokens", small_llama(), "reference"},
      {"Gemma scales", "tokens normalizer", gemma, "reference"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(ops_of(outline_of(c.spec, training(c.code, "cuda-sm80")).layers[0], "") == c.ops);
  }
}

// GemmaRMSNorm and Gemma2RMSNorm alike.
TEST_CASE("Gemma's norms multiply by 1 + weight") {
  for (const std::string type : {"llama", "gemma", "gemma2"}) {
    CAPTURE(type);
    TransformerSpec spec = small_llama();
    spec.model_type = type;
    const Program program = make_transformer(spec, training("huggingface", "cuda-sm80", DType::bfloat16));
    const bool adds_one =
        std::ranges::any_of(program.ops, [](const ProgramOp& op) { return op.name == "layers.0.attention_norm.gain"; });
    CHECK(adds_one == (type != "llama"));
  }
}

TEST_CASE("the loss chain") {
  struct Case {
    std::string name, code;
    DType dtype;
    std::int64_t sequences;
    int chunks;
    bool fused;
    std::string ops;
  };
  const DType bf16 = DType::bfloat16, fp32 = DType::float32;
  const Case cases[] = {
      {"one kernel", "reference", bf16, 2, 1, false, "cross_entropy"},
      {"fp32 copy, shifted copy", "huggingface", bf16, 2, 1, false,
       "float shift_copy shift_labels log_softmax nll_loss"},
      {"one sequence is contiguous without its last row", "huggingface", bf16, 1, 1, false,
       "float log_softmax nll_loss"},
      {"fp32 logits need no cast", "huggingface", fp32, 2, 1, false, "shift_copy shift_labels log_softmax nll_loss"},
      {"torchtitan", "torchtitan", bf16, 2, 1, false, "float log_softmax nll_loss"},
      {"Megatron", "megatron", bf16, 2, 1, false, "labels_copy float cross_entropy copy mask sum"},
      {"two chunks", "torchtitan", bf16, 2, 2, false,
       "lm_head_0 float_0 log_softmax_0 nll_loss_0 lm_head_1 float_1 log_softmax_1 nll_loss_1 total_1"},
      {"head and loss fused", "huggingface", bf16, 2, 1, true, "linear_cross_entropy"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Training how = training(c.code, "cuda-sm80", c.dtype);
    how.batch.size = c.sequences;
    how.loss = {c.chunks, c.fused};
    CHECK(ops_of(layer_of(outline_of(small_llama(), how), "loss"), "") == c.ops);
  }
  // GPT2LMHeadModel never widens its logits.
  CHECK(ops_of(layer_of(outline_of(small_gpt2(), training("huggingface", "cuda-sm80", bf16)), "loss"), "") ==
        "shift_copy shift_labels log_softmax nll_loss");
}

TEST_CASE("dtype.logits decides what the loss reads") {
  Training how = training("reference", "ideal", DType::bfloat16);
  CHECK(layer_of(outline_of(small_gpt2(), how), "loss").saved_bytes == Bytes{2 * b * s * V + 4 * b * s});
  how.dtypes.logits = DType::float32;
  CHECK(layer_of(outline_of(small_gpt2(), how), "loss").saved_bytes == Bytes{4 * b * s * V + 4 * b * s});
  how = training("huggingface", "cuda-sm80", DType::bfloat16);
  how.dtypes.logits = DType::bfloat16;
  CHECK(count_kind(layer_of(outline_of(small_gpt2(), how), "loss"), "cast") == 0);
}

TEST_CASE("uneven chunks: the last takes what is left") {
  Training how = training("reference", "ideal");
  how.loss.chunks = 3;  // 16 rows: 6, 6, 4
  const Program program = make_transformer(small_gpt2(), how);
  std::vector<std::int64_t> rows;
  for (const Tensor& tensor : program.tensors)
    if (tensor.name.starts_with("loss.lm_head_")) rows.push_back(tensor.shape[0]);
  CHECK(rows == std::vector<std::int64_t>{6, 6, 4});
}

TEST_CASE("tied embeddings are one parameter, read twice") {
  const Program program = make_transformer(small_gpt2(), training("reference", "ideal"));
  const TensorId table = program.ops.front().inputs[1];
  const auto head = std::ranges::find(program.ops, "head.lm_head", &ProgramOp::name);
  REQUIRE(head != program.ops.end());
  CHECK(head->inputs[1] == table);
  CHECK(std::ranges::count(program.parameters, table) == 1);
}

TEST_CASE("weights of another type are cast where they are used; autocast casts products only") {
  Training how = training("huggingface", "cuda-sm80", DType::bfloat16);
  how.dtypes.parameters = DType::float32;
  const Outline cast_all = outline_of(small_gpt2(), how);
  CHECK(count_kind(cast_all.layers[1], "cast") == 12);  // every weight and bias of the block
  how.dtypes.autocast = true;
  const Program program = make_transformer(small_gpt2(), how);
  std::map<std::string, DType> dtypes;
  for (const Tensor& tensor : program.tensors) dtypes[tensor.name] = tensor.dtype;
  CHECK(dtypes.at("embedding.tokens") == DType::float32);
  CHECK(dtypes.at("layers.0.attention_norm") == DType::float32);
  CHECK(dtypes.at("layers.0.attention.qkv_proj") == DType::bfloat16);
  CHECK(dtypes.at("layers.0.attention.core_attn.softmax") == DType::float32);
  CHECK(dtypes.at("layers.0.attention.core_attn.context") == DType::bfloat16);
  CHECK(dtypes.at("layers.0.attention_residual") == DType::float32);
}

TEST_CASE("variables of the model code outlive their last reader") {
  const Program program = make_transformer(small_gpt2(), training("huggingface", "cuda-sm80"));
  const auto released_at = [&](const std::string& tensor) -> std::string {
    for (const ProgramOp& op : program.ops)
      for (const TensorId id : op.releases)
        if (program.tensors[static_cast<std::size_t>(id)].name == tensor) return op.name;
    return "never";
  };
  CHECK(released_at("layers.0.attention.q_transposed") == "layers.0.attention.output_dropout");
  CHECK(released_at("layers.0.attention.core_attn.dropout") == "layers.0.attention.output_dropout");
  CHECK(released_at("layers.0.attention.core_attn.softmax") == "layers.0.attention.core_attn.dropout");
  CHECK(released_at("layers.0.mlp.up_proj") == "layers.0.mlp.activation.mul");
  CHECK(released_at("layers.0.mlp_residual") == "layers.1.mlp_residual");  // the next block's input
  CHECK(released_at("embedding.tokens") == "head.norm");
  CHECK(released_at("head.lm_head") == "loss.nll_loss");
}

// GPT-2 small, 8 x 1024 tokens: the figures below are the formulas' by hand.
TEST_CASE("model FLOPs by convention") {
  struct Case {
    std::string name, convention;
    TransformerSpec spec;
    Int128 a_token;
  };
  const std::int64_t sequence = 1024;
  const Int128 gpt2_attention = Int128{12} * 12 * 768 * sequence;
  const Int128 llama_attention = Int128{12} * 32 * 4096 * sequence;
  const Int128 llama_products = 6 * (Int128{32} * (4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336));
  const Case cases[] = {
      {"GPT-2", "palm", gpt2_spec(), 6 * Int128{124'439'808} + gpt2_attention},
      {"GPT-2 without its tables", "torchtitan", gpt2_spec(),
       6 * Int128{124'439'808 - (50257 + 1024) * 768} + gpt2_attention},
      {"GPT-2, products", "megatron", gpt2_spec(),
       6 * Int128{12} * 12 * 768 * 768 + 6 * Int128{50257} * 768 + gpt2_attention},
      {"Llama-3.1-8B", "palm", llama3_8b_spec(), 6 * Int128{8'030'261'248} + llama_attention},
      {"Llama-3.1-8B without its table", "torchtitan", llama3_8b_spec(),
       6 * Int128{8'030'261'248 - 128256 * 4096LL} + llama_attention},
      {"Llama-3.1-8B, products", "megatron", llama3_8b_spec(),
       llama_products + 6 * Int128{128256} * 4096 + llama_attention},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    TransformerSpec spec = c.spec;
    spec.flops_convention = c.convention;
    Training how = training("reference", "ideal");
    how.batch = {.size = 8, .sequence = sequence};
    CHECK(to_string(model_flops(spec, how)) == to_string(c.a_token * 8 * sequence));
  }
}
