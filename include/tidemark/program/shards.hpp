/// Which part of the model's tensors does one rank hold, besides its pipeline stage?
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tidemark {

/// What the data-parallel ranks divide among them: nothing; optimizer states (zero1), gradients too (zero2), parameters
/// too (zero3; Rajbhandari et al. 2020); or units of parameters that are gathered where they run (fsdp1, fsdp2).
enum class Sharding : std::uint8_t { none, zero1, zero2, zero3, fsdp1, fsdp2 };
inline constexpr std::array<std::string_view, 6> sharding_names = {"none", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"};

/// Degrees: how many ranks share each thing. 1 everywhere: one device.
struct Shards {
  int tensor = 1;         // columns and rows of products (Shoeybi et al. 2019)
  bool sequence = false;  // what lies between those products is divided too, by tokens (Korthikanti et al. 2022)
  int context = 1;        // tokens of every activation
  int expert = 1;         // routed experts
  int data = 1;           // replicas of the model
  Sharding sharding = Sharding::none;
  bool distributed_optimizer = false;  // Megatron-LM's: states and master weights by data-parallel rank
  friend bool operator==(const Shards&, const Shards&) = default;
};

}  // namespace tidemark
