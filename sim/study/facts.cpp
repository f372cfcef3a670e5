#include "tidemark/study/facts.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <variant>

#include "tidemark/engine/simulate.hpp"
#include "tidemark/formula/formula.hpp"
#include "tidemark/plan/describe.hpp"
#include "tidemark/study/fragmentation.hpp"
#include "tidemark/study/steady_state.hpp"

namespace tidemark {
namespace {

bool recomputes(const Plan& plan) {
  return std::ranges::any_of(plan.steps, [](const PlanStep& step) { return step.action == Action::recompute; });
}

bool moves(const Plan& plan) {
  return std::ranges::any_of(plan.steps, [](const PlanStep& step) { return step.action == Action::copy_out; });
}

/// The same plan with its copies left out, hooks' too.
WithoutCopies without_copies(const Scenario& scenario, Plan plan) {
  std::erase_if(plan.steps, [](const PlanStep& step) {
    return step.action == Action::copy_out || step.action == Action::copy_in || step.action == Action::copy_wait;
  });
  if (plan.checkpointing.kind == Checkpointing::Kind::offload) plan.checkpointing = {};
  const Step step = lower(scenario, plan);
  const Summary summary = summarize(step, simulate(step, scenario.device), {});
  return {summary.peak().peak.bytes, summary.last().forward_end};
}

/// The same of one stage: the one that is shown, or the worst.
WithoutCopies without_copies(Scenario scenario, std::size_t stage) {
  scenario.policy.offload.reset();
  for (Policy& policy : scenario.pipeline->policies) policy.offload.reset();
  scenario.pipeline->stage = static_cast<int>(stage);
  const Step step = lower(scenario, {});
  const Summary summary = summarize(step, simulate(step, scenario.device), {});
  return {summary.peak().peak.bytes, summary.last().forward_end};
}

/// What the device, or the allocator's own capacity, leaves to the framework.
std::optional<Bytes> usable_bytes(const Scenario& scenario) {
  if (scenario.caching && scenario.caching->available) return scenario.caching->available;
  const Device& device = scenario.device;
  const std::optional<Bytes> usable = device.usable ? device.usable : device.capacity;
  return usable ? std::optional(*usable - device.non_torch) : std::nullopt;
}

/// Layers a segment, where the policy makes segments of equal length.
std::optional<std::int64_t> segment_length(const Policy& policy, std::int64_t layers) {
  if (!policy.nested.empty()) return std::nullopt;
  if (std::holds_alternative<policy::Full>(policy.kind)) return 1;
  if (std::holds_alternative<policy::Sqrt>(policy.kind)) return optimal_segment(layers);
  if (std::holds_alternative<policy::Whole>(policy.kind)) return layers;
  if (const auto* interval = std::get_if<policy::Interval>(&policy.kind)) return interval->interval;
  return std::nullopt;
}

/// Bytes of what a block hands on: the output of its last op that makes one.
Bytes output_of(const OutlineLayer& block) {
  for (std::size_t i = block.ops.size(); i-- > 0;)
    if (block.ops[i].output_bytes.count > 0) return block.ops[i].output_bytes;
  return {};
}

/// The formula's L, K, layer and boundary, where the blocks are all alike.
std::optional<Textbook> textbook_of(const Policy& policy, const Outline& outline) {
  std::vector<const OutlineLayer*> blocks;
  for (const OutlineLayer& layer : outline.layers)
    if (layer.is_block) blocks.push_back(&layer);
  if (blocks.empty()) return std::nullopt;
  const auto layers = static_cast<std::int64_t>(blocks.size());
  const std::optional<std::int64_t> interval = segment_length(policy, layers);
  const Bytes saved = blocks.back()->saved_bytes;
  const Bytes boundary = output_of(*blocks[0]);
  // The first block may save less, its input being the batch's; the last one's output may belong to the loss.
  const bool alike = std::ranges::all_of(blocks, [&](const OutlineLayer* block) {
    return (block->saved_bytes == saved || (block == blocks[0] && block->saved_bytes < saved)) &&
           (output_of(*block) == boundary || block == blocks.back());
  });
  if (!interval || !alike) return std::nullopt;
  const auto rebuilt = checked_product(*interval, saved.count), kept = checked_product(layers, boundary.count);
  if (!rebuilt || !kept || !checked_sum(*rebuilt, *kept)) return std::nullopt;
  return Textbook{layers, *interval, saved, boundary};
}

/// Megatron-LM's _vocab_size_with_padding: whole 128s (--make-vocab-size-divisible-by) for each tensor rank.
void warn_of_padding(const Scenario& scenario, std::vector<std::string>& warnings) {
  const auto* spec = std::get_if<TransformerSpec>(&scenario.model);
  if (spec == nullptr || spec->head != "lm" || scenario.training.profile.model_code != "megatron") return;
  const std::int64_t multiple = std::int64_t{128} * scenario.training.shards.tensor;
  const std::int64_t padded = (spec->vocab + multiple - 1) / multiple * multiple;
  if (padded != spec->vocab)
    warnings.push_back(
        fmt::format("Megatron-LM pads a vocabulary of {} to {}, whole 128s a tensor rank, unless "
                    "--make-vocab-size-divisible-by says otherwise; {} is simulated as it stands",
                    spec->vocab, padded, spec->vocab));
}

Bytes peak_without_checkpointing(Scenario scenario, const Outline& outline) {
  scenario.policy = {};
  if (scenario.pipeline) {
    scenario.pipeline->policies.clear();
    return run(scenario).timeline.peak;
  }
  return live_peak(lower(scenario, plan_of(scenario, outline))).bytes;
}

}  // namespace

ScenarioFacts plain_facts(const Scenario& scenario) {
  ScenarioFacts facts;
  facts.name = scenario.name;
  facts.profile = scenario.training.profile;
  facts.device = scenario.device.name;
  facts.usable = usable_bytes(scenario);
  if (facts.usable && facts.device.empty()) facts.device = "the device";
  if (scenario.allocator != "live") facts.allocator.kind = scenario.allocator;
  facts.non_torch = scenario.device.non_torch;
  facts.flops_per_second = scenario.device.flops[static_cast<std::size_t>(scenario.training.dtypes.compute)];
  if (scenario.budget) facts.budget = *scenario.budget - scenario.device.non_torch;
  return facts;
}

ScenarioFacts scenario_facts(const Scenario& scenario, const Run& run) {
  ScenarioFacts facts = plain_facts(scenario);
  facts.allocator = run.findings;
  facts.allocator.fragmentation = find_fragmentation(scenario, run.step, run.timeline);
  facts.allocator.steady = find_steady_state(scenario, run.plan);
  facts.warnings = run.plan.warnings;
  facts.warnings.insert(facts.warnings.end(), run.notes.begin(), run.notes.end());
  warn_of_padding(scenario, facts.warnings);
  facts.pipeline = run.pipeline;
  const bool reads_copies = std::ranges::any_of(
      run.plan.steps, [](const PlanStep& s) { return s.action == Action::copy_in && s.keep == Keep::input; });
  if (!run.step.host.empty() && !scenario.pipeline && !reads_copies)
    facts.without_copies = without_copies(scenario, run.plan);
  if (!run.step.host.empty() && scenario.pipeline)
    facts.without_copies = without_copies(
        scenario, scenario.pipeline->stage ? static_cast<std::size_t>(*scenario.pipeline->stage) : run.pipeline->worst);
  if (!recomputes(run.plan) && !moves(run.plan)) return facts;
  if (recomputes(run.plan)) facts.policy = describe(run.plan, run.outline);
  facts.no_checkpoint_peak = peak_without_checkpointing(scenario, run.outline);
  if (scenario.pipeline) return facts;  // the formula knows one device and one micro-batch
  facts.textbook = textbook_of(scenario.policy, run.outline);
  return facts;
}

}  // namespace tidemark
