#include <doctest/doctest.h>

#include "tidemark/engine/simulate.hpp"
#include "tidemark/program/mlp.hpp"
#include "tidemark/step/lower.hpp"

using namespace tidemark;

namespace {

Plan keep_all(const Program& program) {
  Plan plan;
  const auto layers = static_cast<std::int32_t>(program.layers.size());
  for (std::int32_t i = 0; i < layers; ++i)
    if (program.layers[static_cast<std::size_t>(i)].name != "loss")
      plan.steps.push_back({.action = Action::forward, .layer = i, .ops = {}});
  plan.steps.push_back({.action = Action::loss, .layer = -1, .ops = {}});
  for (std::int32_t i = layers; i-- > 0;) plan.steps.push_back({.action = Action::backward, .layer = i, .ops = {}});
  return plan;
}

/// One op: name, then its allocations and frees in order, "run" for the kernel.
std::vector<std::string> script(const Step& step) {
  std::vector<std::string> rows;
  OpId op = no_id;
  for (const Instruction& i : step.instructions) {
    if (i.op != op) {
      op = i.op;
      rows.push_back(step.names[step.ops[op].name] + (step.ops[op].phase == Phase::backward ? "'" : ""));
    }
    if (i.what == Do::compute)
      rows.back() += " run";
    else
      rows.back() += std::string(i.what == Do::alloc ? " +" : " -") + to_string(step.storages[i.index].bytes);
  }
  return rows;
}

}  // namespace

// x [3,5] -> @W1 [5,7] -> +b1 -> relu -> @W2 -> +b2 -> mse: boundary 60, hidden 84, weights 140, biases 28 and 20.
TEST_CASE("one MLP layer: what each op allocates and frees when memory dies at its last use") {
  const MlpSpec spec{.layers = 1, .rows = 3, .width = 5, .hidden = 7, .input_requires_grad = false};
  const Program program = make_mlp(spec, {});
  const Step step = lower(program, keep_all(program), {});
  CHECK(script(step) == std::vector<std::string>{
                            "layers.0.fc1 +84 run",
                            "layers.0.fc1_bias +84 run -84",
                            "layers.0.activation +84 run -84",
                            "layers.0.fc2 +60 run",
                            "layers.0.fc2_bias +60 run -60",
                            "loss.mse +4 run -4",
                            "loss.gradient' +4 run",
                            "loss.mse' +60 run -4 -60",
                            "layers.0.fc2_bias' +20 run",
                            "layers.0.fc2' +140 +84 run -60",
                            "layers.0.activation' +84 run -84 -84",
                            "layers.0.fc1_bias' +28 run",
                            "layers.0.fc1' +140 run -84",
                        });
}
