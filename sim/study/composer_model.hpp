/// What do all policies on one scenario's model share? Internal to the composer.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/engine/repeats.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/report/summary.hpp"
#include "tidemark/step/op_times.hpp"
#include "tidemark/study/block_library.hpp"

namespace tidemark {

/// What a scenario's policies share.
struct ComposerModel {
  /// Throws as Composer does.
  explicit ComposerModel(const Scenario& scenario);

  /// Lowers the small model under a policy whose regions stand as `layout` says, and adds it to the library: a starts a
  /// region, b goes on with it, h is held.
  void add(BlockLibrary& library, const Policy& policy, std::string_view layout) const;
  BlockLibrary empty() const { return {step_kinds, batch_kinds}; }

  void check_more_batches() const;

  Scenario scenario;  // with as many steps and micro-batches as there are kinds of them
  int steps = 1, micro_batches = 1;
  int step_kinds = 1, batch_kinds = 1;
  OpTimes times;
  ScenarioFacts facts;
  // the small model
  Program small;
  std::vector<Kernel> small_kernels;
  Outline small_outline;
  std::size_t small_first = 0;
  // the whole one
  std::vector<std::string> layers;
  std::size_t first_block = 0, blocks = 0;
  Bytes start;
  Piece::BytesByCategory at_start{};
  std::uint64_t initial_events = 0;
  std::int64_t parameters = 0;
  Flops model_flops;
  BlockLibrary whole, held;  // without recomputation: of the whole model, of the small one
};

/// Steps and micro-batches that are told apart: the first, those between, the last.
inline constexpr int most_kinds = 3;

}  // namespace tidemark
