/// Which part of the model's tensors does one rank hold, besides its pipeline stage?
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/base/vocabulary.hpp"

namespace tidemark {

/// What the data-parallel ranks divide among them: nothing; optimizer states (zero1), gradients too (zero2), parameters
/// too (zero3; Rajbhandari et al. 2020); or units of parameters that are gathered where they run (fsdp1, fsdp2).
enum class Sharding : std::uint8_t { none, zero1, zero2, zero3, fsdp1, fsdp2 };
inline constexpr std::array<std::string_view, 6> sharding_names = {"none", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"};

/// How PyTorch's FSDP (FullyShardedDataParallel and fully_shard) is set, under its own names.
struct Fsdp {
  int forward_prefetch = 0;   // units gathered while another one runs forward
  int backward_prefetch = 1;  // the same in backward: 1 is BACKWARD_PRE
  /// false: the host runs ahead, so a pass issues all its gathers when it starts.
  bool limit_all_gathers = true;
  /// Ranks among which a unit is divided after forward: 1, it stays whole; 0, all.
  int reshard_after_forward = 0;
  bool reshard_last_block = true;            // torchtitan's does not: its backward comes at once
  std::optional<DType> parameter_dtype;      // gathered and computed in; the stored one when not given
  std::optional<DType> reduce_dtype;         // of the reduce-scatter; the gradients' when not given
  bool no_sync = false;                      // gradients are reduced in the last micro-batch of a step only
  std::vector<std::string> ignored_modules;  // every rank has these weights whole, by a component of their name
  friend bool operator==(const Fsdp&, const Fsdp&) = default;
};

/// How DeepSpeed's stages 2 and 3 are set, under the names of its section zero_optimization. Sizes are in elements.
struct ZeroOptimization {
  std::int64_t reduce_bucket_size = 500'000'000;  // gradients that are reduced together
  bool contiguous_gradients = true;               // they lie in a buffer of that size
  bool overlap_comm = false;                      // reduced (stage 3: gathered too) on a stream of their own
  std::optional<DType> grad_accum_dtype;          // of the gradients a rank keeps; the parameters' when not given
  std::int64_t stage3_prefetch_bucket_size = 50'000'000;
  std::int64_t stage3_param_persistence_threshold = 100'000;  // so small ones stay whole
  std::int64_t stage3_max_live_parameters = 1'000'000'000;
  std::int64_t stage3_max_reuse_distance = 1'000'000'000;
  std::int64_t sub_group_size = 1'000'000'000;  // of a rank's part, updated together
  friend bool operator==(const ZeroOptimization&, const ZeroOptimization&) = default;
};

/// How PyTorch's DistributedDataParallel is set, under its own names.
struct Ddp {
  std::int64_t bucket_cap_mb = 25;       // MiB
  bool bucket_cap_given = false;         // else the first bucket takes 1 MiB
  bool gradient_as_bucket_view = false;  // gradients lie in the buckets; else those are a second copy
  bool no_sync = true;                   // gradients are reduced in the last micro-batch of a step only
  friend bool operator==(const Ddp&, const Ddp&) = default;
};

/// Degrees: how many ranks share each thing. 1 everywhere: one device.
struct Shards {
  int tensor = 1;         // columns and rows of products (Shoeybi et al. 2019)
  bool sequence = false;  // what lies between those products is divided too, by tokens (Korthikanti et al. 2022)
  int context = 1;        // tokens of every activation
  int expert = 1;         // routed experts: each rank has some of them whole
  int expert_tensor = 1;  // columns and rows of each expert's products; Megatron-LM's default is `tensor`
  int data = 1;           // replicas of the model
  Sharding sharding = Sharding::none;
  bool distributed_optimizer = false;  // Megatron-LM's: states and master weights by data-parallel rank
  Fsdp fsdp;                           // where sharding is fsdp1 or fsdp2
  ZeroOptimization zero;               // where it is zero2 or zero3
  Ddp ddp;                             // where hooks reduce the gradients of whole replicas
  friend bool operator==(const Shards&, const Shards&) = default;
};
constexpr bool gathers_units(const Shards& shards) {
  return shards.sharding == Sharding::fsdp1 || shards.sharding == Sharding::fsdp2;
}

/// Megatron-LM's parallel_state.py: the ranks of a stage that have the same part of the experts.
constexpr std::int64_t expert_data_ranks(const Shards& shards) {
  return std::int64_t{shards.tensor} * shards.context * shards.data /
         (std::int64_t{shards.expert_tensor} * shards.expert);
}

constexpr bool is_deepspeed(const Shards& shards) {
  return shards.sharding == Sharding::zero2 || shards.sharding == Sharding::zero3;
}

/// The least multiple of `multiple` that is no less than `count`: what padding makes divide.
constexpr std::int64_t round_up(std::int64_t count, std::int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

}  // namespace tidemark
