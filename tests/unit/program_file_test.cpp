#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "support/life.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/program/shapes.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;

namespace {

const std::string head = R"(profile: pytorch-2.6-cpu
model:
  family: program
  parameters: {w: [4, 6], b: [6]}
  inputs: {x: {shape: [5, 4], requires_grad: true}, target: [5, 6]}
  layers:
    - name: "0"
      block: true
      ops:
)";
const std::string good = R"(        - {op: matmul, in: [x, w], out: h}
        - {op: add, in: [h, b], out: y}
    - name: loss
      ops:
        - {op: mse_loss, in: [y, target], out: loss}
        - {release: y}
  loss: loss
)";

/// The scenario in a file of its own; "" or the message without the directory.
std::string mistake(const std::string& text) {
  const std::string path = std::filesystem::temp_directory_path() / "tidemark_program_test.yaml";
  std::ofstream(path) << text;
  try {
    (void)run(read_scenario(path));
    return "";
  } catch (const InputError& error) {
    const std::string what = error.what();
    return what.substr(what.find("test.yaml"));
  }
}

}  // namespace

TEST_CASE("a program written down runs, and its mistakes name the entry") {
  struct Case {
    std::string name, ops, message;
  };
  const Case cases[] = {
      {"well formed", good, ""},
      {"an undefined name", "        - {op: matmul, in: [x, v], out: h}\n  loss: h\n",
       "test.yaml:10:32: error: no tensor is called 'v' here; did you mean 'b'?"},
      {"a name defined twice",
       "        - {op: matmul, in: [x, w], out: h}\n        - {op: add, in: [h, b], out: h}\n  loss: h\n",
       "test.yaml:11:38: error: 'h' is defined already"},
      {"operands that do not fit", "        - {op: matmul, in: [x, b], out: h}\n  loss: h\n",
       "test.yaml:10:11: error: matmul needs [.., k] and [k, n], not [5, 4] and [6]"},
      {"an unknown op", "        - {op: matmull, in: [x, w], out: h}\n  loss: h\n",
       "test.yaml:10:16: error: unknown op 'matmull'; did you mean 'matmul'?"},
      {"a reshape that needs a copy",
       "        - {op: transpose, in: x, out: t, dims: [0, 1]}\n        - {op: reshape, in: t, out: r, shape: [20]}\n"
       "  loss: r\n",
       "test.yaml:11:11: error: a view of shape [20] cannot be had of a tensor of shape [4, 5] and strides [1, 4] "
       "without a copy"},
      {"a loss that nothing makes", "        - {op: matmul, in: [x, w], out: h}\n  loss: lose\n",
       "test.yaml:11:9: error: no tensor is called 'lose' here; expected one of: b, h, target, w, x"},
      {"a loss without a gradient", "        - {op: matmul, in: [x, w], out: h}\n  loss: target\n",
       "test.yaml:11:9: error: no gradient flows from the loss 'target'"},
      {"an op without a result", "        - {op: matmul, in: [x, w], out: []}\n  loss: h\n",
       "test.yaml:10:41: error: 'out' names no result"},
      {"a misspelt key", "        - {op: matmul, in: [x, w], outt: h}\n  loss: h\n",
       "test.yaml:10:36: error: unknown key 'outt' in 'program op'; did you mean 'out'?"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(mistake(head + c.ops) == c.message);
  }
}

TEST_CASE("a loop's variable may hold several tensors of a program") {
  const std::string yaml =
      "model:\n  family: program\n  parameters: {w: [4, 6], v: [6, 6]}\n  inputs: {x: [5, 4]}\n  logits: [b, c]\n"
      "  layers:\n    - name: all\n      ops:\n        - {op: matmul, in: [x, w], out: a}\n"
      "        - {op: matmul, in: [a, v], out: b}\n        - {op: add, in: [a, b], out: c}\n"
      "        - {op: sum, in: c, out: loss}\n  loss: loss\n";
  const std::string held = "120 B, all.b to backward of all.a";
  CHECK(test::life(test::step_of(yaml, {}), "all.b") == "120 B, all.b to all.c");
  CHECK(test::life(test::step_of(yaml, {"loop.logits_held=true"}), "all.b") == held);
  CHECK(test::life(test::step_of(yaml, {"loop.logits_held=true"}), "all.c") == "120 B, all.c to backward of all.a");
}

TEST_CASE("results: shapes and strides follow PyTorch's") {
  const auto tensor = [](Shape shape, Shape strides = {}) {
    Tensor t;
    t.strides = strides.empty() ? contiguous_strides(shape) : std::move(strides);
    t.shape = std::move(shape);
    return t;
  };
  struct Case {
    std::string name;
    OpKind kind;
    std::vector<Tensor> operands;
    ResultRequest request;
    Shape shape, strides;
    bool alias;
  };
  const Case cases[] = {
      {"linear on three dimensions",
       OpKind::linear,
       {tensor({2, 3, 4}), tensor({5, 4})},
       {},
       {2, 3, 5},
       {15, 5, 1},
       false},
      {"add broadcasts", OpKind::add, {tensor({3, 4}), tensor({4})}, {}, {3, 4}, {4, 1}, false},
      {"pointwise keeps a dense order", OpKind::relu, {tensor({4, 3}, {1, 4})}, {}, {4, 3}, {1, 4}, false},
      {"transpose",
       OpKind::view,
       {tensor({3, 4})},
       {.dims = {0, 1}, .view = ViewKind::transpose},
       {4, 3},
       {1, 4},
       true},
      {"heads", OpKind::view, {tensor({2, 6, 8})}, {.shape = Shape{2, 6, 4, 2}}, {2, 6, 4, 2}, {48, 8, 2, 1}, true},
      {"slice",
       OpKind::view,
       {tensor({3, 4})},
       {.dims = {1}, .sizes = {1, 2}, .view = ViewKind::slice},
       {3, 2},
       {4, 1},
       true},
      {"cat", OpKind::cat, {tensor({3, 4}), tensor({3, 2})}, {.dims = {-1}}, {3, 6}, {6, 1}, false},
      {"mean", OpKind::mean, {tensor({3, 4})}, {}, {3, 1}, {1, 1}, false},
      {"loss", OpKind::cross_entropy, {tensor({3, 4}), tensor({3})}, {}, {}, {}, false},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Result result = results(c.kind, c.operands, c.request).front();
    CHECK(result.shape == c.shape);
    CHECK(result.strides == c.strides);
    CHECK(result.alias == c.alias);
  }
}
