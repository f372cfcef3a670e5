/// What is kept, recomputed and moved, and exactly when?
///
/// A Plan is one ordered list for one micro-batch. Its order *is* the schedule: a recompute happens where it stands.
/// Regions, selective sets, rotor sequences and planners' matrices all compile to it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tidemark/base/units.hpp"

namespace tidemark {

/// forward and recompute run ops; `loss` runs what follows the last block (chains: the loss); drop lets saved tensors
/// go; discard_input lets the layer's input go (rotor's Dx3, on layer 3; the loss's input has the number of layers),
/// discard_saved what the layer saved (rotor's Dxbar4, on layer 3). copy_out moves to the host what the layer, or its
/// ops, hold for backward, and copy_in moves it back; with Keep::input they copy a chain's layer's input, which stays
/// on the host to the end of the step. copy_wait makes computation wait until a copy out has ended.
enum class Action : std::uint8_t {
  forward,
  recompute,
  loss,
  backward,
  drop,
  discard_input,
  discard_saved,
  copy_out,
  copy_in,
  copy_wait
};

/// What a forward or recompute leaves for backward: nothing (its input may go too: Fn), its input (Fc), or all it
/// saves (Fe).
enum class Keep : std::uint8_t { none, input, all };

struct PlanStep {
  Action action = Action::forward;
  std::int32_t layer = -1;        // index into Outline::layers; -1 for loss
  std::vector<std::int32_t> ops;  // indices within the layer, ascending; empty means the whole layer
  Keep keep = Keep::all;
  std::int32_t region =
      -1;                // recompute steps of one region share a number; forward steps name the region they belong to
  bool refills = false;  // recompute: the results are copied into the storages that forward gave up (Megatron-LM)
  friend bool operator==(const PlanStep&, const PlanStep&) = default;
};

/// How a framework carries a region out (torch.utils.checkpoint's arguments). `direct`: exactly as the plan stands.
/// `offload`: nothing is recomputed; saved-tensor hooks put copies in the place of what a region's nodes save.
struct Checkpointing {
  enum class Kind : std::uint8_t { direct, reentrant, nonreentrant, offload } kind = Kind::direct;
  bool early_stop = true;           // nonreentrant of PyTorch 2: recomputation ends at the last tensor that is needed
  bool preserve_rng = true;         // a copy of the generator's state a region, and one while it is recomputed
  bool offload_parameters = false;  // offload: parameters that nodes save are copied too
  friend bool operator==(const Checkpointing&, const Checkpointing&) = default;
};

/// How the plan's copies are carried out.
struct Copies {
  Bytes min_size;  // smaller storages stay on the device
  bool free_at_wait =
      false;  // the device's storage goes at the copy's copy_wait, or never; else when the copy has ended
  friend bool operator==(const Copies&, const Copies&) = default;
};

struct Plan {
  std::vector<PlanStep> steps;
  Checkpointing checkpointing;
  Copies copies;
  bool hold_boundaries = false;       // a used boundary counts to the end of the step, as the textbook formula has it
  std::vector<std::string> warnings;  // "interval 50 is above the 36 layers: one segment"
  friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace tidemark
