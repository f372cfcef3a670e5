/// Which rule decides what to keep? A policy maps an Outline to a Plan without simulating.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/plan/plan.hpp"
#include "tidemark/program/outline.hpp"

namespace tidemark {

/// When a region is recomputed (docs/architecture.md: order is the product).
enum class RecomputeSchedule : std::uint8_t { per_segment, just_in_time, up_front, on_grad_of };

namespace policy {

struct None {
  friend bool operator==(const None&, const None&) = default;
};
/// Every block a segment.
struct Full {
  friend bool operator==(const Full&, const Full&) = default;
};
/// Chen et al. 2016: segments of `interval` blocks. checkpoint_last false: the last segment runs in full at once.
struct Interval {
  int interval = 1;
  bool checkpoint_last = true;
  friend bool operator==(const Interval&, const Interval&) = default;
};
/// interval = round(sqrt(L)).
struct Sqrt {
  bool checkpoint_last = true;
  friend bool operator==(const Sqrt&, const Sqrt&) = default;
};
/// torch.utils.checkpoint_sequential: segments of n // segments, the last takes the rest and is not checkpointed.
struct Sequential {
  int segments = 1;
  friend bool operator==(const Sequential&, const Sequential&) = default;
};
/// Megatron `block`: the first `layers` blocks, each its own segment.
struct Block {
  int layers = 0;
  friend bool operator==(const Block&, const Block&) = default;
};
/// The whole model as one segment.
struct Whole {
  friend bool operator==(const Whole&, const Whole&) = default;
};
/// Op-level: recompute the ops that match, or everything but those that match `keep`. A pattern matches an op's kind,
/// or a component of its name ("attention", "mlp", "softmax"); "mm/2" means every second of them in each region.
/// `layers` ranges count blocks, inclusive; without patterns those blocks run again as a whole.
struct Selective {
  std::vector<std::string> recompute;
  std::vector<std::string> keep;
  std::vector<std::pair<int, int>> layers;  // empty: all
  int every = 1;                            // every n-th of those blocks
  int interval = 1;                         // so many of them share a region
  std::vector<std::string> discard = {};    // modules whose outputs are dropped after use (plan/discards.hpp)
  friend bool operator==(const Selective&, const Selective&) = default;
};
/// The seed's should_recompute by layer type and bytes.
struct Rule {
  Bytes attention_threshold{100'000'000};
  Bytes ffn_threshold{500'000'000};
  double ffn_max_ratio = 0.1;
  friend bool operator==(const Rule&, const Rule&) = default;
};
/// A rotor sequence: "Fc0 Fn1 Fe2 L B2 ..." with Dx3, Dxbar3.
struct Sequence {
  std::string sequence;
  friend bool operator==(const Sequence&, const Sequence&) = default;
};
/// A finished Plan, as read from a file.
struct Given {
  Plan plan;
  friend bool operator==(const Given&, const Given&) = default;
};

}  // namespace policy

using PolicyKind =
    std::variant<policy::None, policy::Full, policy::Interval, policy::Sqrt, policy::Sequential, policy::Block,
                 policy::Whole, policy::Selective, policy::Rule, policy::Sequence, policy::Given>;

/// What blocks hold for backward lies on the host in between: copied out when the block has run forward, asked for
/// again `prefetch` blocks before its backward or recomputation begins (0: right before it). What runs again holds
/// nothing but its region's input. Parameters and the batch are never freed, so they never move.
struct Offload {
  std::vector<std::string> modules;         // patterns as in Selective: what these ops saved; empty: all
  std::vector<std::pair<int, int>> layers;  // blocks, inclusive; empty: all
  Bytes min_size{1024};                     // smaller storages stay
  double fraction = 1;                      // of the bytes that could move: those made first
  int prefetch = 1;
  std::optional<int> wait_after;  // the device's storage goes when computation, so many blocks later, waits for the
                                  // copy (streams without record_stream); else when the copy has ended
  friend bool operator==(const Offload&, const Offload&) = default;
};

struct Policy {
  PolicyKind kind;
  RecomputeSchedule schedule = RecomputeSchedule::per_segment;
  std::string on_grad_of;  // with that schedule: an op's name within the layer
  bool hold_boundaries = false;
  Checkpointing checkpointing;  // how the framework carries it out; copied to the Plan
  std::optional<Offload> offload;
  std::vector<int> nested;  // intervals of regions inside each region, outermost first; empty: not nested
  friend bool operator==(const Policy&, const Policy&) = default;
};

/// Under torch's checkpointing (not `direct`) regions run again when their backward begins, so only per_segment fits,
/// and the ops of a block that a non-reentrant region does not run again are cached.
/// Throws InputError where the policy does not fit the model (an op pattern that matches nothing, layers out of
/// range, a sequence that reads what is not there).
Plan make_plan(const Policy& policy, const Outline& outline);

}  // namespace tidemark
