/// Which modules drop their output once it has been used, and when do they make it again?
///
/// Megatron-LM's CheckpointWithoutOutput (megatron/core/tensor_parallel/random.py), which its --recompute-modules
/// layernorm, moe_act and mla_up_proj mean: the storage is emptied although the next module has saved it, and filled
/// again when the gradient of a chosen later tensor arrives.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tidemark/program/outline.hpp"

namespace tidemark {

inline constexpr std::array<std::string_view, 3> discarding_modules = {"layernorm", "moe_act", "mla_up_proj"};

/// In one layer.
struct Discard {
  std::vector<std::int32_t> ops;  // that run again, in forward order
  std::int32_t before = -1;       // so right before this op's backward
  friend bool operator==(const Discard&, const Discard&) = default;
};

/// Those of a module in a layer; none where the layer has no such module. Throws InputError for an unknown name.
std::vector<Discard> discards(std::string_view module, const OutlineLayer& layer);

}  // namespace tidemark
