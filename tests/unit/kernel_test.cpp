#include "tidemark/step/kernel.hpp"

#include <doctest/doctest.h>

#include "support/rules.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/program/outline.hpp"

using namespace tidemark;

namespace {

test::RuleText rule(const std::string& kernels, const std::string& sample_name) {
  static const std::vector<test::Sample> all = test::samples();
  const test::Sample& sample = test::find_sample(all, sample_name);
  return test::text_of(sample, KernelSet(kernels).kernel(sample.program, sample.op()));
}

Kernel kernel(const std::string& kernels, const std::string& sample_name) {
  static const std::vector<test::Sample> all = test::samples();
  const test::Sample& sample = test::find_sample(all, sample_name);
  return KernelSet(kernels).kernel(sample.program, sample.op());
}

struct Case {
  std::string op;
  test::RuleText expected;
};

void check_all(const std::string& kernels, const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    CAPTURE(kernels);
    CAPTURE(c.op);
    const test::RuleText got = rule(kernels, c.op);
    CHECK(got.forward == c.expected.forward);
    CHECK(got.saved == c.expected.saved);
    CHECK(got.backward == c.expected.backward);
  }
}

}  // namespace

// x [4, 6], hidden 8, vocabulary 10, all fp32; q [2, 4, 3, 8] in bf16.
TEST_CASE("ideal rules: what the mathematics of backward needs, and nothing besides") {
  check_all("ideal",
            {
                {"linear", {"+out run", "x weight", "+dweight +dx run"}},
                {"matmul, frozen weight", {"+out run", "weight", "+dx run"}},
                {"matmul, constant x", {"+out run", "x", "+dweight run"}},
                {"add", {"+out run", "", "g→x g→y"}},
                {"add of a bias", {"+out run", "", "+dbias run g→x"}},
                {"mul by a constant", {"+out run", "y", "+dx run"}},
                {"relu", {"+out run", "out", "+dx run"}},
                {"relu in place", {"run", "out", "+dx run"}},
                {"gelu", {"+out run", "x", "+dx run"}},
                {"layer_norm", {"+out +mean 16 +rstd 16 run", "x weight mean rstd", "+dx +dweight +dbias run"}},
                {"rms_norm", {"+out +rstd 16 run", "x weight rstd", "+dx +dweight run"}},
                {"softmax", {"+out run", "out", "+dx run"}},
                {"dropout", {"+out +mask 24 run", "mask", "+dx run"}},
                {"attention", {"+out +logsumexp 96 run", "q k v logsumexp out", "+dq +dk +dv run"}},
                {"view, reshaped", {"", "", "g→x"}},
                {"view, a slice", {"", "", "+dx run"}},
                {"split", {"", "", "+dx run"}},
                {"cross_entropy", {"+out +logsumexp 16 run", "logits target logsumexp", "+dlogits run"}},
            });
}

// Flash attention rounds its 3 rows to 128 in backward: 2 x 4 x 128 fp32 row sums, and 32 fp32 of dq for each.
// Grouped heads: dk and dv for all 4 query heads, 2 x 4 x 3 x 8 bf16 each, are made beside those of 2 heads.
TEST_CASE("CUDA rules: grouped flash attention, products of head-split views, the loss") {
  const std::string flash_saved = "k out logsumexp philox_offset philox_seed q v";
  const std::string flash_forward = "+out +logsumexp 96 +philox_seed 8 +philox_offset 8 run";
  check_all(
      "cuda-sm80",
      {
          {"attention",
           {flash_forward, flash_saved, "+dq +dk +dv +softmax_d 4096 +dq_accum 131072 run -dq_accum -softmax_d"}},
          {"attention, 2 of 4 heads for k and v",
           {flash_forward, flash_saved,
            "+dq +dk +dv +softmax_d 4096 +dq_accum 131072 +dk_expanded 384 +dv_expanded 384 run -dv_expanded "
            "-dk_expanded -dq_accum -softmax_d"}},
          {"bmm", {"+out run", "b a", "+db +da run"}},
          {"bmm of head-split q and kT",
           {"+left_copy 192 +right_copy 192 +out run", "right_copy left_copy", "+dk +dq run"}},
          {"bmm of weights and head-split v", {"+right_copy 192 +out run", "right_copy weights", "+dv +dweights run"}},
          {"linear with bias", {"+out run", "x weight", "+dx +dweight run +dbias"}},
          {"log_softmax", {"+out run", "out", "+dx run"}},
          {"nll_loss",
           {"+out +total_weight 4 run", "log_probabilities target total_weight", "+dlog_probabilities run"}},
          {"cross_entropy",
           {"+log_softmax 160 +out +total_weight 4 run", "log_softmax target total_weight",
            "+nll_gradient 160 +dlogits run -nll_gradient"}},
          {"pow", {"+out run", "x", "+factor 96 +factor 96 +dx run -factor -factor"}},
          {"mul by a number a row", {"+out run", "y x", "+unreduced_gradient 96 +dx run +dy -unreduced_gradient"}},
      });
}

TEST_CASE("Transformer Engine and Megatron write gradients over what they have") {
  check_all(
      "transformer-engine",
      {
          {"softmax", {"+out run", "out", "run g→x"}},
          {"cross_entropy",
           {"+logits_max 16 +logits_max_indices 32 -logits_max_indices +target_below 4 +target_above 4 +target_mask 4 "
            "-target_above -target_below +target_clone 32 +masked_target 32 -target_clone +arange 32 +gathered_logits "
            "16 +predicted_logits 16 -gathered_logits +sum_exp_logits 16 -arange +log_sum_exp 16 +out run "
            "-log_sum_exp -sum_exp_logits -predicted_logits -logits_max",
            "logits target_mask masked_target",
            "+arange 32 +target_mask_float 16 +softmax_update 16 -target_mask_float +picked_softmax 16 run "
            "-picked_softmax -softmax_update -arange logits→dlogits"}},
          {"bias_dropout_add", {"+out +mask 24 run", "mask", "+dx +dbias run g→residual"}},
          {"bias_dropout_add, p = 0", {"+out run", "", "run g→x g→residual"}},
          {"gelu of x + bias", {"+out run", "x bias", "+dx +dbias run"}},
          {"swiglu of both halves", {"+out run", "both", "+dboth run"}},
      });
}

TEST_CASE("the loss as two ops: the saved log-softmax, then two tensors of its size in backward") {
  // log_softmax keeps its output and nll_loss the same storage as its input, so it is there once.
  CHECK(kernel("cuda-sm80", "log_softmax").saved == std::vector<Saved>{{Saved::Of::output, 0}});
  CHECK(kernel("cuda-sm80", "nll_loss").saved.front() == Saved{Saved::Of::input, 0});
  CHECK(kernel("cuda-sm80", "nll_loss").gradients.front().bytes == Bytes{160});
  CHECK(kernel("cuda-sm80", "log_softmax").gradients.front().bytes == Bytes{160});
}

TEST_CASE("FLOPs of products: 2 m n k, one product more for each gradient that is needed") {
  struct FlopCase {
    std::string op, kernels;
    std::int64_t forward, backward;
  };
  const FlopCase cases[] = {
      {"linear", "ideal", 2 * 4 * 6 * 8, 2 * 2 * 4 * 6 * 8},
      {"addmm", "cuda-sm80", 2 * 4 * 6 * 8, 2 * 2 * 4 * 6 * 8},
      {"matmul, frozen weight", "ideal", 2 * 4 * 6 * 8, 2 * 4 * 6 * 8},
      {"matmul, constant x", "ideal", 2 * 4 * 6 * 8, 2 * 4 * 6 * 8},
      {"bmm", "ideal", 2 * 2 * 3 * 4 * 5, 2 * 2 * 2 * 3 * 4 * 5},
      // two products of half a square (causal), five in backward
      {"attention", "ideal", 2 * (2 * 4 * 3 * 3 * 8), 5 * (2 * 4 * 3 * 3 * 8)},
      {"attention", "cuda-sm90", 2 * (2 * 4 * 3 * 3 * 8), 5 * (2 * 4 * 3 * 3 * 8)},
      {"attention, 2 of 4 heads for k and v", "cuda-sm80", 2 * (2 * 4 * 3 * 3 * 8), 5 * (2 * 4 * 3 * 3 * 8)},
      {"linear_cross_entropy", "ideal", 2 * 4 * 6 * 10, 3 * 2 * 4 * 6 * 10},  // the logits again, then two gradients
      {"linear_cross_entropy", "cuda-sm80", 3 * 2 * 4 * 6 * 10, 0},           // forward makes the gradients
      {"gelu", "ideal", 0, 0},
  };
  for (const FlopCase& c : cases) {
    CAPTURE(c.op);
    CAPTURE(c.kernels);
    CHECK(kernel(c.kernels, c.op).forward_cost.matmul_flops == c.forward);
    CHECK(kernel(c.kernels, c.op).backward_cost.matmul_flops == c.backward);
  }
}

TEST_CASE("bytes moved: what a kernel reads and what it writes") {
  const Kernel linear = kernel("ideal", "linear");
  CHECK(linear.forward_cost.moved == Bytes{4 * (4 * 6 + 6 * 8 + 4 * 8)});
  CHECK(linear.backward_cost.moved == Bytes{4 * (4 * 8 + (4 * 6 + 6 * 8) + (4 * 6 + 6 * 8))});  // g, saved, made
  CHECK(kernel("ideal", "view, reshaped").forward_cost == Cost{});
  CHECK(kernel("ideal", "add").backward_cost.moved == Bytes{0});  // the gradient is handed on
}

TEST_CASE("an op without a gradient to make has no node") {
  ProgramBuilder builder;
  builder.begin_layer("layer", "block", true);
  const TensorId x = builder.input("x", {4, 6}, DType::float32);
  builder.op(OpKind::layer_norm, "norm", {x, x, x}, {4, 6}, DType::float32);
  const Program& program = builder.program();
  const Kernel kernel = KernelSet("ideal").kernel(program, program.ops.back());
  CHECK(kernel.saved.empty());
  CHECK(kernel.gradients.empty());
  CHECK(kernel.backward.empty());
  CHECK(kernel.temps.size() == 2);  // the statistics are made, and die with the op
}

TEST_CASE("mistakes of kernel sets and sizes") {
  CHECK_THROWS_WITH_AS(KernelSet("cuda-sm70"), doctest::Contains("unknown kernels 'cuda-sm70'; known are ideal, "),
                       InputError);
  ProgramBuilder builder;
  builder.begin_layer("layer", "block", true);
  const std::int64_t large = std::int64_t{1} << 22;
  const TensorId x = builder.input("x", {large, large}, DType::float32);
  const TensorId w = builder.input("w", {large, large}, DType::float32);
  builder.op(OpKind::linear, "layer.huge", {x, w}, {large, large}, DType::float32);
  const Program& program = builder.program();
  CHECK_THROWS_WITH_AS(KernelSet("ideal").kernel(program, program.ops.back()),
                       "error: the bytes or FLOPs of 'layer.huge' pass 2^63", InputError);
}

TEST_CASE("an outline counts a storage once a layer, and neither parameters nor the batch") {
  ProgramBuilder builder;
  builder.begin_layer("layers.0", "block", true);
  const TensorId x = builder.input("x", {4, 6}, DType::float32, true);
  const TensorId w = builder.parameter("w", {6, 6}, DType::float32);
  const TensorId h = builder.op(OpKind::matmul, "layers.0.attention.first", {x, w}, {4, 6}, DType::float32);
  const TensorId r = builder.op(OpKind::relu, "layers.0.relu", {h}, {4, 6}, DType::float32);
  const TensorId y = builder.op(OpKind::matmul, "layers.0.second", {r, w}, {4, 6}, DType::float32);
  const Program program = builder.finish(y);
  const Outline out = outline(program, KernelSet("ideal"));
  REQUIRE(out.layers.size() == 1);
  CHECK(out.layers[0].saved_bytes == Bytes{96});  // relu's output, which the second product saves too
  CHECK(out.layers[0].ops[0].name == "attention.first");
  CHECK(out.layers[0].ops[0].saved_bytes == Bytes{0});
  CHECK(out.layers[0].ops[1].kind == "relu");
  CHECK(out.layers[0].ops[1].output_bytes == Bytes{96});
  CHECK(out.layers[0].ops[2].forward_flops == Flops{2 * 4 * 6 * 6});
  CHECK(out.step_flops == Flops{2 * 3 * 2 * 4 * 6 * 6});
}
