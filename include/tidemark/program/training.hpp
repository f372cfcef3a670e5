/// How is the training loop around the model set: profile, optimizer, data types, who holds what?
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/base/vocabulary.hpp"

namespace tidemark {

/// Whose behaviour, on four axes. A preset fills all four; a scenario may override each.
struct Profile {
  std::string preset = "ideal";
  std::string runtime = "ideal";  // ideal, reference, pytorch-1.13, pytorch-2.6
  std::string kernels = "ideal";  // ideal, reference, cpu-1.13, cpu-2.6, cuda-sm80, cuda-sm90, transformer-engine
  std::string model_code = "reference";  // reference, huggingface, megatron, torchtitan, llm.c
  std::string loop = "plain";            // plain, huggingface, megatron, torchtitan
  friend bool operator==(const Profile&, const Profile&) = default;
};
/// The preset of that name; nothing when there is none.
std::optional<Profile> find_profile(std::string_view preset);

struct DTypes {
  DType parameters = DType::float32;
  DType compute = DType::float32;       // activations
  std::optional<DType> gradients;       // the parameters' when not given
  std::optional<DType> main_gradients;  // fp32 buffers that exist before step 0
  std::optional<DType> master;          // a copy of the parameters in the optimizer
  DType moments = DType::float32;
  std::optional<DType> logits;  // the loss's copy of the logits
  bool autocast = false;
  friend bool operator==(const DTypes&, const DTypes&) = default;
};

enum class OptimizerKind : std::uint8_t { none, sgd, momentum, adam, adamw };
inline constexpr std::array<std::string_view, 5> optimizer_names = {"none", "sgd", "momentum", "adam", "adamw"};

struct Optimizer {
  OptimizerKind kind = OptimizerKind::none;
  bool multi_tensor = true;       // temporaries per (device, dtype) group; false: per parameter
  bool fused = false;             // no temporaries
  bool zero_grad_to_none = true;  // false: gradients persist and are zeroed
  friend bool operator==(const Optimizer&, const Optimizer&) = default;
};

struct Batch {
  std::int64_t size = 1;
  std::int64_t sequence = 1;
  int accumulate = 1;  // micro-batches a step
  friend bool operator==(const Batch&, const Batch&) = default;
};

struct Loss {
  int chunks = 1;
  bool fused = false;  // no logits in memory: head and loss as one kernel
  friend bool operator==(const Loss&, const Loss&) = default;
};

struct Loop {
  bool logits_held = false;  // the program's variable keeps the logits through backward
  int steps = 1;
  friend bool operator==(const Loop&, const Loop&) = default;
};

/// Everything `lower` needs besides the Program and the Plan.
struct Training {
  Profile profile;
  DTypes dtypes;
  Optimizer optimizer;
  Batch batch;
  Loss loss;
  Loop loop;
  friend bool operator==(const Training&, const Training&) = default;
};

}  // namespace tidemark
