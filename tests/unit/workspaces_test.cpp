// Is the workspace of a library allocated where it is, once, and kept?
#include "tidemark/step/workspaces.hpp"

#include <doctest/doctest.h>

#include "support/hand_step.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;
using tidemark::test::HandStep;

TEST_CASE("workspaces: before the first matrix product of each rank, once") {
  HandStep made;
  made.op("A", 1).alloc("a", 5).run().free("a");
  made.op("B", 1).alloc("b", 5).run().free("b");
  made.op("C", 1).alloc("c", 5).run().free("c");
  Step& step = made.step;
  step.ops[1].flops = step.ops[2].flops = 10;
  keep_cublas_workspace(step, Bytes{100});
  const Timeline timeline = simulate(step, {});
  CHECK(timeline.peak == Bytes{105});
  CHECK(timeline.events.back().live == Bytes{100});
  CHECK(timeline.events[2].op() == 1);  // b, then the workspace, then the kernel
  CHECK(step.names[step.storages[timeline.events[3].storage].name] == "cublas.workspace");
  CHECK(timeline.events.size() == 7);
  CHECK(!referee(step, timeline));
}

TEST_CASE("workspaces: the device's, under CUDA kernels") {
  const std::string model =
      "model: {family: transformer, model_type: gpt2, layers: 1, hidden: 64, heads: 2, vocab: 100, max_positions: 16}\n"
      "batch: {size: 1, sequence: 16}\nsteps: 1\n";
  const auto peak = [&](const std::string& more) { return run(parse_scenario(model + more, "s.yaml")).timeline.peak; };
  const Bytes without = peak("device: {capacity: 1 GiB}");
  CHECK(peak("device: a100-80gb") == without + Bytes{2 * 8'519'680});  // forward's thread and backward's
  CHECK(peak("device: h100-80gb") == without + Bytes{64 << 20});
  CHECK(peak("device: {workspaces: {cublas: 1 MiB}}") == without + Bytes{2 << 20});
  CHECK(peak("profile: reference\ndevice: a100-80gb") == peak("profile: reference"));
}
