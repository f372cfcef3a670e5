#include <doctest/doctest.h>

#include "tidemark/base/errors.hpp"
#include "tidemark/program/mlp.hpp"
#include "tidemark/program/outline.hpp"
#include "tidemark/step/kernel.hpp"

using namespace tidemark;

namespace {

constexpr std::int64_t B = 256 * 32 * 4;  // a boundary
constexpr std::int64_t H = 256 * 64 * 4;  // a hidden tensor

Outline ideal_outline(const MlpSpec& spec) { return outline(make_mlp(spec, {}), KernelSet("ideal")); }

}  // namespace

TEST_CASE("mlp: what a middle layer saves, in each style") {
  struct Case {
    std::string name;
    std::string style, activation;
    std::int64_t saved;
    std::size_t ops;
  };
  const Case cases[] = {
      {"relu keeps its output, which the second product reads too", "matmul", "relu", B + H, 5},
      {"gelu keeps its input besides", "matmul", "gelu", B + 2 * H, 5},
      {"addmm", "addmm", "relu", B + H, 3},
      {"linear", "linear", "silu", B + 2 * H, 3},
      {"tanh keeps its output", "linear", "tanh", B + H, 3},
      {"the residual sum saves nothing", "residual", "relu", B + H, 6},
      {"in place: addmm, relu over it, product, sum", "inplace", "relu", B + H, 4},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    MlpSpec spec;
    spec.style = c.style;
    spec.activation = c.activation;
    const Outline out = ideal_outline(spec);
    REQUIRE(out.layers.size() == 5);
    CHECK(out.layers[1].saved_bytes == Bytes{c.saved});
    CHECK(out.layers[1].ops.size() == c.ops);
    CHECK(out.layers[0].saved_bytes == Bytes{c.saved - B});  // its boundary is the batch, which lives anyway
  }
}

TEST_CASE("mlp: FLOPs are the products executed, and the textbook's when the input needs a gradient") {
  MlpSpec spec;
  const Int128 forward = Int128{2} * 2 * 256 * 32 * 64 * 4;
  CHECK(ideal_outline(spec).step_flops == Flops{3 * forward});
  CHECK(make_mlp(spec, {}).model_flops == Flops{3 * forward});
  spec.input_requires_grad = false;  // the first product of the first layer needs no dX
  CHECK(ideal_outline(spec).step_flops == Flops{3 * forward - Int128{2} * 256 * 32 * 64});
}

TEST_CASE("mlp: parameters and names") {
  const Program program = make_mlp({}, {});
  CHECK(parameter_count(program) == 4 * (32 * 64 + 64 + 64 * 32 + 32));
  CHECK(ideal_outline({}).layers[2].ops[0].name == "fc1");
  CHECK(ideal_outline({}).layers[2].ops[2].kind == "relu");
  CHECK(program.layers.back().name == "loss");
}

TEST_CASE("mlp: an op's inputs are the ops that made what it reads") {
  using Refs = std::vector<OpRef>;
  MlpSpec spec;
  spec.style = "residual";
  const OutlineLayer layer = ideal_outline(spec).layers[1];  // fc1, + bias, relu, fc2, + bias, residual sum
  CHECK(layer.ops[0].inputs == Refs{{0, 5}});
  CHECK(layer.ops[3].inputs == Refs{{1, 2}});
  CHECK(layer.ops[5].inputs == Refs{{0, 5}, {1, 4}});
  CHECK(ideal_outline(spec).layers[0].ops[0].inputs.empty());
  Bytes saved;
  for (const OutlineOp& op : layer.ops) saved += op.saved_bytes;
  CHECK(saved == layer.saved_bytes);
  CHECK(layer.ops[0].saved_bytes == Bytes{B});  // its input; relu's output is the next saved
  CHECK(layer.ops[2].saved_bytes == Bytes{H});
}

TEST_CASE("mlp: in place, an op says what it writes over") {
  MlpSpec spec;
  spec.style = "inplace";
  const OutlineLayer layer = ideal_outline(spec).layers[1];  // fc1, relu over it, fc2, + bias over it
  CHECK(layer.ops[1].overwrites == OpRef{1, 0});
  CHECK(layer.ops[0].overwrites == std::nullopt);
  CHECK(layer.ops[2].overwrites == std::nullopt);
}

TEST_CASE("mlp: mistakes are named") {
  struct Case {
    std::string name;
    MlpSpec spec;
    std::string message;
  };
  const Case cases[] = {
      {"no layers", {.layers = 0}, "error: mlp: 'layers' must be positive"},
      {"style",
       {.style = "conv"},
       "error: mlp: unknown style 'conv'; known are matmul, addmm, linear, residual, inplace"},
      {"activation", {.activation = "elu"}, "error: mlp: unknown activation 'elu'; known are relu, gelu, silu, tanh"},
      {"loss", {.loss = "l1"}, "error: mlp: unknown loss 'l1'; known are mse, sum, none"},
      {"in-place gelu",
       {.style = "inplace", .activation = "gelu"},
       "error: mlp: style 'inplace' overwrites what 'gelu' saves; only relu and tanh save their output"},
      {"bytes", {.rows = std::int64_t{1} << 62}, "error: the size of 'x' passes 2^63 bytes"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK_THROWS_WITH_AS(make_mlp(c.spec, {}), c.message.c_str(), InputError);
  }
}
