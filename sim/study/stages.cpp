#include "tidemark/study/stages.hpp"

#include <oneapi/tbb/parallel_for.h>

#include <exception>
#include <numeric>
#include <string>
#include <variant>

#include "tidemark/engine/simulate.hpp"
#include "tidemark/plan/schedule_fold.hpp"
#include "tidemark/step/kernel.hpp"
#include "tidemark/step/lower_pipeline.hpp"
#include "tidemark/step/op_times.hpp"
#include "tidemark/step/workspaces.hpp"
#include "tidemark/study/steady_schedule.hpp"

namespace tidemark {
namespace {

/// The stages' order, as far as it needs no times: a searched schedule puts chunk c on rank c too.
PipelineSchedule schedule_without_costs(const PipelineSettings& pipeline) {
  if (pipeline.custom) return *pipeline.custom;
  const std::string name = is_searched(pipeline.schedule) ? "zb_h1" : pipeline.schedule;
  return make_schedule(name, pipeline.stages, pipeline.chunks_per_stage, pipeline.micro_batches);
}

enum class PassPart : std::uint8_t { forward, backward, weights };

PassPart part_of(const ChunkStep& chunk, OpId id, std::size_t group) {
  const Phase phase = chunk.step.ops[id].phase;
  if (phase == Phase::forward || (phase == Phase::loss && !chunk.loss_runs_backward)) return PassPart::forward;
  const bool late = !chunk.weights_begin.empty() && id >= chunk.weights_begin[group];
  return late ? PassPart::weights : PassPart::backward;
}

/// What a searched schedule asks of a chunk: times, and bytes that its passes leave, of the micro-batch that stands for
/// all but the first.
PassCosts costs_of(const ChunkStep& chunk, const Device& device) {
  PassCosts costs;
  const OpTimes times(device);
  const auto group = static_cast<std::size_t>(chunk.pieces - 1);
  const auto counts = [&](const StepOp& op) {
    return op.step == 0 && op.micro_batch == chunk.pieces - 1 && op.phase != Phase::optimizer;
  };
  for (OpId id = 0; id < chunk.step.ops.size(); ++id) {
    if (!counts(chunk.step.ops[id])) continue;
    const PassPart part = part_of(chunk, id, group);
    (part == PassPart::forward    ? costs.forward
     : part == PassPart::backward ? costs.backward_input
                                  : costs.backward_weight) += times.of(chunk.step.ops[id]);
  }
  for (const Instruction& at : chunk.step.instructions) {
    if (!counts(chunk.step.ops[at.op]) || (at.what != Do::alloc && at.what != Do::free)) continue;
    const PassPart part = part_of(chunk, at.op, group);
    const Bytes bytes = chunk.step.storages[at.index].bytes;
    const Bytes change = at.what == Do::alloc ? bytes : Bytes{} - bytes;
    if (part == PassPart::forward) costs.saved += change;
    if (part == PassPart::backward) costs.freed_by_input -= change;
  }
  return costs;
}

/// A chain says itself what its layers save; gradients that they add up count with none.
void add_saved(const LayerGraph& part, PassCosts& costs) {
  costs.saved = costs.freed_by_input = {};
  for (const LayerCost& layer : part.layers) {
    costs.saved += layer.layer_activation;
    costs.freed_by_input += layer.layer_activation - layer.weight_activation;
  }
}

/// Which layers the chunk holds, and what stands in chunks of its own.
BlockRange range_of(const PipelineSettings& pipeline, std::size_t chunk) {
  const std::vector<std::int32_t>& layers = pipeline.layers_per_chunk;
  const auto at = layers.begin() + static_cast<std::ptrdiff_t>(chunk);
  const std::int32_t first = std::accumulate(layers.begin(), at, 0);
  const std::int32_t all = std::accumulate(at, layers.end(), first);
  return {.first = first,
          .count = *at,
          .embedding_before = chunk > 0 && first == 0,
          .head_behind = chunk + 1 < layers.size() && first + *at == all};
}

LayerGraph part_of(const LayerGraph& chain, const BlockRange& range) {
  return part_of_chain(chain, static_cast<std::int32_t>(range.first), static_cast<std::int32_t>(range.count));
}

TransformerChunk part_of(const Scenario& scenario, const BlockRange& range) {
  Training training = scenario.training;
  training.batch.accumulate = scenario.pipeline->micro_batches;
  return make_transformer_chunk(std::get<TransformerSpec>(scenario.model), training, range);
}

ChunkStep lower_chunk(const Scenario& scenario, std::size_t chunk, const Policy& policy, PassCosts& costs) {
  const bool splits = scenario.pipeline->splits_backward();
  const BlockRange range = range_of(*scenario.pipeline, chunk);
  if (const auto* chain = std::get_if<LayerGraph>(&scenario.model)) {
    const LayerGraph part = part_of(*chain, range);
    ChunkStep out = lower_chunk(part, make_plan(policy, outline(part)), scenario.training.loop.steps, splits);
    costs = costs_of(out, scenario.device);
    add_saved(part, costs);
    return out;
  }
  Training training = scenario.training;
  training.batch.accumulate = scenario.pipeline->micro_batches;
  const KernelSet kernels(training.profile.kernels, training.pytorch);
  const TransformerChunk part = part_of(scenario, range);
  ChunkStep out = lower_chunk(part, make_plan(policy, outline(part.program, kernels)), training, splits);
  costs = costs_of(out, scenario.device);
  return out;
}

}  // namespace

Bytes cublas_workspace(const Scenario& scenario) {
  const std::string& kernels = scenario.training.profile.kernels;
  if (!kernels.starts_with("cuda-") && kernels != "transformer-engine") return {};
  const auto found = scenario.device.workspaces.find("cublas");
  return found == scenario.device.workspaces.end() ? Bytes{} : found->second;
}

Outline outline_of_chunk(const Scenario& scenario, std::size_t chunk) {
  const BlockRange range = range_of(*scenario.pipeline, chunk);
  if (const auto* chain = std::get_if<LayerGraph>(&scenario.model)) return outline(part_of(*chain, range));
  return outline(part_of(scenario, range).program,
                 KernelSet(scenario.training.profile.kernels, scenario.training.pytorch));
}

ChunkStep lower_chunk(const Scenario& scenario, std::size_t chunk, const Policy& policy) {
  PassCosts costs;
  return lower_chunk(scenario, chunk, policy, costs);
}

StageChunks lower_chunks(const Scenario& scenario) {
  const PipelineSettings& pipeline = *scenario.pipeline;
  StageChunks out{.chunks = {}, .schedule = schedule_without_costs(pipeline)};
  const std::size_t count = pipeline.layers_per_chunk.size();
  std::vector<PassCosts> costs(count);
  out.chunks.resize(count);
  in_parallel(count, [&](std::size_t c) {
    const auto stage = static_cast<std::size_t>(out.schedule.rank_of_chunk[c]);
    const Policy& policy = pipeline.policies.empty() ? scenario.policy : pipeline.policies[stage];
    out.chunks[c] = lower_chunk(scenario, c, policy, costs[c]);
  });
  if (is_searched(pipeline.schedule))
    out.schedule = make_schedule(pipeline.schedule, pipeline.stages, 1, pipeline.micro_batches, costs,
                                 mean_transfer(pipeline.transfers, pipeline.stages, out.chunks.front().output_bytes));
  return out;
}

Step weave_stages(const Scenario& scenario, const std::vector<ChunkStep>& chunks, const PipelineSchedule& schedule,
                  std::optional<int> stage, std::vector<OpId>* begins) {
  const Transfers& transfers = scenario.pipeline->transfers;
  Step step = stage ? weave_rank(chunks, schedule, transfers, *stage, scenario.device, begins)
                    : weave(chunks, schedule, transfers, begins);
  keep_cublas_workspace(step, cublas_workspace(scenario));
  return step;
}

namespace {

/// Tries ever more of the schedule. Nothing where it does not come to repeat.
std::optional<StagesRun> run_folded(const Scenario& scenario, const StageChunks& stages, std::optional<int> stage) {
  FoldSize size{.before = 4};
  for (;;) {
    const std::optional<ScheduleFold> folded = fold(stages.schedule, size);
    if (!folded) return std::nullopt;
    std::vector<OpId> begins;
    StagesRun out{.step = weave_stages(scenario, stages.chunks, folded->schedule, stage, &begins),
                  .allocation = {},
                  .stands_for = {}};
    Timeline& timeline = out.allocation.timeline = simulate(out.step, scenario.device);
    const std::optional<PeriodCycle> cycle = find_cycle(out.step, timeline, *folded, begins);
    const PeakLives lives = lives_at_peak(out.step, timeline, *folded, begins);
    if (!cycle || lives == PeakLives::die_behind) {
      size.before *= 2;
    } else if (lives == PeakLives::born_before) {
      size.behind *= 2;
    } else if (folded->left_out % cycle->periods != 0) {
      size.cycle = cycle->periods;
    } else {
      out.stands_for = stands_for(out.step, *folded, begins, *cycle);
      unfold(*folded, begins, *cycle, out.step, timeline);
      out.step.in_flight = most_in_flight(stages.schedule);
      out.allocation.notes.push_back("steady: " + std::to_string(folded->schedule.micro_batches) + " of " +
                                     std::to_string(stages.schedule.micro_batches) +
                                     " micro-batches are simulated; the others repeat them exactly");
      return out;
    }
  }
}

}  // namespace

StagesRun run_stages(const Scenario& scenario, const StageChunks& stages, std::optional<int> stage,
                     bool with_allocator) {
  const bool steady = scenario.pipeline->steady;
  const bool copies = has_copies(stages.chunks);
  if (steady && !copies)
    if (std::optional<StagesRun> folded = run_folded(scenario, stages, stage)) return std::move(*folded);
  StagesRun out{
      .step = weave_stages(scenario, stages.chunks, stages.schedule, stage), .allocation = {}, .stands_for = {}};
  if (with_allocator)
    out.allocation = simulate_with_allocator(scenario, out.step);
  else
    out.allocation.timeline = simulate(out.step, scenario.device);
  if (steady)
    out.allocation.notes.emplace_back(
        copies ? "steady: copies to the host need not repeat; all of it is simulated"
               : "steady: this schedule does not come to repeat itself; all of it is simulated");
  return out;
}

void in_parallel(std::size_t count, const std::function<void(std::size_t)>& f) {
  std::vector<std::exception_ptr> failures(count);
  tbb::parallel_for(std::size_t{0}, count, [&](std::size_t i) {
    try {
      f(i);
    } catch (...) {
      failures[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace tidemark
