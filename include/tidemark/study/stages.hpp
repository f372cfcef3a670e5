/// How does a scenario's pipeline become one Step?
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tidemark/input/scenario.hpp"
#include "tidemark/plan/pipeline_schedule.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/program/outline.hpp"
#include "tidemark/step/chunk.hpp"
#include "tidemark/step/step.hpp"
#include "tidemark/study/allocation.hpp"

namespace tidemark {

/// What the device's cuBLAS keeps on each rank; kernels of other devices have none.
Bytes cublas_workspace(const Scenario& scenario);

/// Each chunk of `scenario.pipeline`, lowered under its stage's policy, and the order in which they run.
struct StageChunks {
  std::vector<ChunkStep> chunks;
  PipelineSchedule schedule;
};
StageChunks lower_chunks(const Scenario& scenario);

/// One chunk under a policy, and what a policy sees of it.
ChunkStep lower_chunk(const Scenario& scenario, std::size_t chunk, const Policy& policy);
Outline outline_of_chunk(const Scenario& scenario, std::size_t chunk);

/// All stages, or one and what it waits for. `schedule` is that of `chunks`, or a fold of it; `begins` as of `weave`.
Step weave_stages(const Scenario& scenario, const std::vector<ChunkStep>& chunks, const PipelineSchedule& schedule,
                  std::optional<int> stage, std::vector<OpId>* begins = nullptr);

struct StagesRun {
  Step step;
  Allocation allocation;
  std::vector<std::int32_t> stands_for;  // by op: for how many of the whole run it stands; empty: each for itself
};
/// Weaves and simulates all stages, or one; under `steady`, without the periods that only repeat where that is the
/// same.
StagesRun run_stages(const Scenario& scenario, const StageChunks& stages, std::optional<int> stage,
                     bool with_allocator);

/// Runs `f` for each of `count` on all cores. Of several that fail the first one's exception is thrown.
void in_parallel(std::size_t count, const std::function<void(std::size_t)>& f);

}  // namespace tidemark
