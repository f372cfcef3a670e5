#include "composer_model.hpp"

#include <algorithm>
#include <tuple>
#include <utility>
#include <variant>

#include "tidemark/base/errors.hpp"
#include "tidemark/step/kernel.hpp"
#include "tidemark/study/facts.hpp"
#include "tidemark/study/pipeline.hpp"

namespace tidemark {
namespace {

constexpr std::size_t small_blocks = 6;
constexpr std::string_view held_layout = "hhhhhh";

std::vector<BlockRegion> regions_of(std::string_view layout) {
  std::vector<BlockRegion> out;
  for (std::size_t i = 0; i < layout.size(); ++i) {
    if (layout[i] == 'a') out.push_back({i, 1});
    if (layout[i] == 'b') ++out.back().count;
  }
  return out;
}

/// The scenario's model with another number of blocks.
Program program_of(const Scenario& scenario, std::optional<std::int64_t> blocks) {
  const Profile& profile = scenario.training.profile;
  if (profile.runtime == "reference" || profile.model_code == "llm.c")
    throw NotComposable{"what a fixed program does is not cut into parts"};
  if (const auto* transformer = std::get_if<TransformerSpec>(&scenario.model)) {
    TransformerSpec spec = *transformer;
    if (blocks) spec.layers = *blocks;
    return make_transformer(spec, scenario.training);
  }
  const auto* mlp = std::get_if<MlpSpec>(&scenario.model);
  if (mlp == nullptr) throw NotComposable{"only models that can be made with fewer blocks are"};
  MlpSpec spec = *mlp;
  if (blocks) spec.layers = *blocks;
  return make_mlp(spec, scenario.training);
}

/// The blocks, which must be neighbours.
std::pair<std::size_t, std::size_t> blocks_of(const std::vector<Layer>& layers) {
  const auto first = std::ranges::find(layers, true, &Layer::is_block);
  const auto end = std::find_if(first, layers.end(), [](const Layer& layer) { return !layer.is_block; });
  if (std::any_of(end, layers.end(), [](const Layer& layer) { return layer.is_block; }))
    throw NotComposable{"other layers stand between blocks"};
  return {static_cast<std::size_t>(first - layers.begin()), static_cast<std::size_t>(end - first)};
}

Scenario with_few_kinds(Scenario scenario) {
  Training& training = scenario.training;
  training.loop.steps = std::min(training.loop.steps, most_kinds);
  training.batch.accumulate = std::min(training.batch.accumulate, most_kinds);
  return scenario;
}

}  // namespace

ComposerModel::ComposerModel(const Scenario& given)
    : scenario(with_few_kinds(given)),
      steps(given.training.loop.steps),
      micro_batches(given.training.batch.accumulate),
      step_kinds(scenario.training.loop.steps),
      batch_kinds(scenario.training.batch.accumulate),
      times(scenario.device),
      facts(plain_facts(given)),
      small(program_of(scenario, static_cast<std::int64_t>(small_blocks))),
      small_kernels(kernels_of(small, scenario.training)),
      small_outline(outline(small, KernelSet(scenario.training.profile.kernels, scenario.training.pytorch))),
      whole(empty()),
      held(empty()) {
  if (scenario.allocator != "live") throw NotComposable{"an allocator's figures need a full simulation"};
  const Program program = program_of(scenario, std::nullopt);
  small_first = blocks_of(small.layers).first;
  std::tie(first_block, blocks) = blocks_of(program.layers);
  if (blocks <= small_blocks) throw NotComposable{"few blocks are simulated as fast"};
  for (const Layer& layer : program.layers) layers.push_back(layer.name);
  const Outline all = outline(program, KernelSet(scenario.training.profile.kernels, scenario.training.pytorch));
  std::vector<StepPart> parts;
  const std::vector<BlockRegion> none;
  const Step step = lower(scenario, program, kernels_of(program, scenario.training), make_plan({}, all), parts);
  whole.add({step, parts, first_block, blocks, none, step_kinds, batch_kinds}, times);
  add(held, {}, held_layout);
  whole.check_alike(held);
  if (micro_batches > most_kinds) check_more_batches();
  for (const StorageId id : step.initial) {
    start += step.storages[id].bytes;
    at_start[static_cast<std::size_t>(step.storages[id].category)] += step.storages[id].bytes;
  }
  initial_events = step.initial.size();
  parameters = step.parameters;
  model_flops = Int128{micro_batches} * program.model_flops;
}

/// What stands between steps must not depend on how many micro-batches stood before it.
void ComposerModel::check_more_batches() const {
  Scenario more = scenario;
  const int batches = ++more.training.batch.accumulate;
  std::vector<StepPart> parts;
  const std::vector<BlockRegion> none;
  const Step step = lower(more, small, small_kernels, make_plan({}, small_outline), parts);
  BlockLibrary library(step_kinds, batches);
  library.add({step, parts, small_first, small_blocks, none, step_kinds, batches}, times);
  library.check_ends_alike(held);
}

void ComposerModel::add(BlockLibrary& library, const Policy& policy, std::string_view layout) const {
  const std::vector<BlockRegion> regions = regions_of(layout);
  std::vector<StepPart> parts;
  const Step step = lower(scenario, small, small_kernels, make_plan(policy, regions, small_outline), parts);
  library.add({step, parts, small_first, small_blocks, regions, step_kinds, batch_kinds}, times);
}

}  // namespace tidemark
