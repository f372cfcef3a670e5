/// Which part of the optimizer's states does one data-parallel rank keep?
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tidemark/program/shards.hpp"

namespace tidemark {

/// All parameters of one data type side by side; each rank keeps an equal part, and the first rank's is looked at.
struct FlatParameters {
  std::int64_t elements = 0;        // with padding
  std::int64_t padding = 0;         // of them
  std::vector<std::int64_t> owned;  // by parameter: elements inside the rank's part
  friend bool operator==(const FlatParameters&, const FlatParameters&) = default;
};

/// Ranks that divide states: context-parallel ones have the same parameters too.
std::int64_t state_ranks(const Shards& shards);
/// Is the parameter of that name one of routed experts that ranks have shared out? Then other ranks divide its states:
/// Megatron-LM's expert_parallel_buffers (core/distributed/distributed_data_parallel.py).
bool is_shared_out(std::string_view name, const Shards& shards);

/// Megatron-LM lays parameters from the last to the first, each from a multiple of 64 on, and pads the end to what
/// 128 and the ranks divide (megatron/core/distributed/param_and_grad_buffer.py, one bucket). DeepSpeed lays them in
/// order and pads to twice the ranks (runtime/zero/stage_1_and_2.py, nccl_start_alignment_factor).
FlatParameters flat_parameters(const std::vector<std::int64_t>& sizes, const Shards& shards, std::int64_t ranks);

}  // namespace tidemark
