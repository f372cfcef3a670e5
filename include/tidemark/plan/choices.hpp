/// What does a policy give up, and what runs again, before a schedule says when?
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tidemark/plan/block_regions.hpp"
#include "tidemark/plan/discards.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/program/outline.hpp"

namespace tidemark {

/// In rising order: of two ops that must share one choice the later prevails.
enum class OpChoice : std::uint8_t {
  hold,    // its node holds what it saved from forward to backward
  rerun,   // its node holds nothing; the op runs again and saves then
  cached,  // its node holds nothing but the op's results stay, so that it need not run again: only what it saved of its
           // inputs comes from the ops that do (selective checkpointing's "must save")
};

struct Choices {
  std::vector<std::vector<OpChoice>> ops;          // by layer, by op
  std::vector<std::vector<std::int32_t>> regions;  // layers recomputed together, in forward order
  std::vector<std::vector<Discard>> discards;      // by layer, or none; their ops `rerun`, their readers are `cached`
  std::vector<std::string> warnings;

  /// Every op of the layer runs again: the layer runs as Fc or Fn.
  bool is_whole(std::int32_t layer) const;
  bool has(std::int32_t layer, OpChoice choice) const;
  /// Some ops run again and all others hold: parts of a block that are checkpointed functions of their own.
  bool has_functions(std::int32_t layer) const;
};

/// Indices of the layers that policies count, in order.
std::vector<std::int32_t> block_layers(const Outline& outline);

/// For every kind but Sequence and Given, which are ordered already. `views_along`: a view of what runs again runs
/// again too. Throws InputError where settings are out of range or do not fit the model.
Choices choose(const PolicyKind& kind, const Outline& outline, bool views_along = true);
/// The same with the regions given in place of those the kind would make.
Choices choose(const PolicyKind& kind, const std::vector<BlockRegion>& regions, const Outline& outline,
               bool views_along = true);

/// A framework's functions end where they are written: a view of their result is not theirs.
bool views_run_along(const Policy& policy);
/// Choices in place of those that the policy's kind would make; the policy says the rest, as for its own.
Plan make_plan(Choices choices, const Policy& policy, const Outline& outline);

}  // namespace tidemark
