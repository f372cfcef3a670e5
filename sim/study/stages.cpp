#include "tidemark/study/stages.hpp"

#include <string>
#include <variant>

#include "tidemark/step/kernel.hpp"
#include "tidemark/step/lower_pipeline.hpp"
#include "tidemark/step/op_times.hpp"

namespace tidemark {
namespace {

/// The stages' order, as far as it needs no times: a searched schedule puts chunk c on rank c too.
PipelineSchedule schedule_without_costs(const PipelineSettings& pipeline) {
  if (pipeline.custom) return *pipeline.custom;
  const std::string name = is_searched(pipeline.schedule) ? "zb_h1" : pipeline.schedule;
  return make_schedule(name, pipeline.stages, pipeline.chunks_per_stage, pipeline.micro_batches);
}

/// What a searched schedule asks of a chunk: times and saved bytes of its first micro-batch.
PassCosts costs_of(const ChunkStep& chunk, const LayerGraph& part, const Device& device) {
  PassCosts costs;
  const OpTimes times(device);
  for (OpId id = 0; id < chunk.step.ops.size(); ++id) {
    const StepOp& op = chunk.step.ops[id];
    if (op.step > 0) break;
    const bool weights = !chunk.weights_begin.empty() && id >= chunk.weights_begin.front();
    Nanos& pass = op.phase == Phase::forward ? costs.forward : weights ? costs.backward_weight : costs.backward_input;
    pass += times.of(op);
  }
  for (const LayerCost& layer : part.layers) {
    costs.saved += layer.layer_activation;
    costs.freed_by_input += layer.layer_activation - layer.weight_activation;
  }
  return costs;
}

/// Lowers one chunk, of `count` layers from `first` on.
class ChunkLowering {
 public:
  explicit ChunkLowering(const Scenario& scenario) : scenario_(scenario), kernels_(scenario.training.profile.kernels) {}

  ChunkStep lower(std::int32_t first, std::int32_t count, const Policy& policy) {
    if (const auto* chain = std::get_if<LayerGraph>(&scenario_.model)) {
      const LayerGraph part = part_of_chain(*chain, first, count);
      const Plan plan = make_plan(policy, outline(part));
      ChunkStep out = lower_chunk(part, plan, scenario_.training.loop.steps, scenario_.pipeline->splits_backward());
      costs.push_back(costs_of(out, part, scenario_.device));
      return out;
    }
    const auto& spec = std::get<TransformerSpec>(scenario_.model);
    Training training = scenario_.training;
    training.batch.accumulate = scenario_.pipeline->micro_batches;
    const TransformerChunk chunk = make_transformer_chunk(spec, training, {first, count});
    return lower_chunk(chunk, make_plan(policy, outline(chunk.program, kernels_)), training);
  }

  std::vector<PassCosts> costs;  // of a chain's chunks

 private:
  const Scenario& scenario_;
  KernelSet kernels_;
};

}  // namespace

Step lower_stages(const Scenario& scenario) {
  const PipelineSettings& pipeline = *scenario.pipeline;
  PipelineSchedule schedule = schedule_without_costs(pipeline);
  std::vector<ChunkStep> chunks;
  ChunkLowering lowering(scenario);
  std::int32_t first = 0;
  for (std::size_t c = 0; c < pipeline.layers_per_chunk.size(); ++c) {
    const auto stage = static_cast<std::size_t>(schedule.rank_of_chunk[c]);
    const Policy& policy = pipeline.policies.empty() ? scenario.policy : pipeline.policies[stage];
    chunks.push_back(lowering.lower(first, pipeline.layers_per_chunk[c], policy));
    first += pipeline.layers_per_chunk[c];
  }
  if (is_searched(pipeline.schedule))
    schedule = make_schedule(
        pipeline.schedule, pipeline.stages, 1, pipeline.micro_batches, lowering.costs,
        pipeline.transfers.time + copy_duration(pipeline.transfers.bandwidth, chunks.front().output_bytes));
  return weave(chunks, schedule, pipeline.transfers);
}

}  // namespace tidemark
