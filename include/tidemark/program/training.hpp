/// How is the training loop around the model set: profile, optimizer, data types, who holds what?
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/base/vocabulary.hpp"
#include "tidemark/program/shards.hpp"

namespace tidemark {

/// Whose behaviour, on four axes. A preset fills all four; a scenario may override each.
struct Profile {
  std::string preset = "ideal";
  std::string runtime = "ideal";  // ideal, reference, pytorch-1.13, pytorch-2.6
  std::string kernels = "ideal";  // ideal, reference, cpu-1.13, cpu-2.6, cuda-sm80, cuda-sm90, transformer-engine
  std::string model_code = "reference";  // reference, huggingface, megatron, torchtitan, llm.c
  std::string loop = "plain";            // plain, huggingface, megatron, torchtitan, deepspeed
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
  std::optional<DType> moments;         // not given: of the tensor that is updated, as torch.zeros_like makes them
  std::optional<DType> logits;          // the loss's copy of the logits
  bool autocast = false;
  std::optional<DType> norms = {};  // weights of norms, used as they are; the parameters' when not given
  friend bool operator==(const DTypes&, const DTypes&) = default;
};

enum class OptimizerKind : std::uint8_t { none, sgd, momentum, adam, adamw };
inline constexpr std::array<std::string_view, 5> optimizer_names = {"none", "sgd", "momentum", "adam", "adamw"};

struct Optimizer {
  OptimizerKind kind = OptimizerKind::none;
  bool multi_tensor = true;       // temporaries per (device, dtype) group; false: per parameter
  bool fused = false;             // no temporaries
  bool zero_grad_to_none = true;  // false: gradients persist and are zeroed
  bool in_backward = false;       // each parameter is updated, and its gradient freed, as soon as that is whole
  bool clips = false;             // the norm of all gradients is limited before the update
  std::int64_t block_8bit = 0;    // states of one byte, an fp32 scale for so many of them (bitsandbytes); 0: plain
  friend bool operator==(const Optimizer&, const Optimizer&) = default;
};

struct Batch {
  std::int64_t size = 1;
  std::int64_t sequence = 1;
  int accumulate = 1;       // micro-batches a step
  std::int64_t target = 0;  // tokens of the decoder's sequence behind an encoder; 0: `sequence`
  friend bool operator==(const Batch&, const Batch&) = default;
};

struct Loss {
  int chunks = 1;
  bool fused = false;  // no logits in memory: head and loss as one kernel
  friend bool operator==(const Loss&, const Loss&) = default;
};

/// Low-rank adapters (Hu et al. 2021) as PEFT writes them: the base is frozen, y = W x + B A x.
struct Lora {
  std::int64_t rank = 0;             // 0: none, all weights are trained
  std::vector<std::string> targets;  // products that get one, by a component of their name: q_proj
  double dropout = 0;
  DType dtype = DType::float32;      // of A and B
  bool input_requires_grad = true;   // what the first block reads is a leaf (enable_input_require_grads)
  std::vector<std::string> trained;  // weights of the base that are trained all the same, by a component of their name
  friend bool operator==(const Lora&, const Lora&) = default;
};

/// Frozen 4-bit weights of the blocks' products, made 16-bit where they are used.
enum class Quantization : std::uint8_t { none, nf4, nf4_double, gptq, gptq_column };
inline constexpr std::array<std::string_view, 5> quantization_names = {"none", "nf4", "nf4_double", "gptq",
                                                                       "gptq_column"};

/// norm: one kernel, its gradient over the incoming one. rotary: in place both ways. loss: the gradient over the
/// logits. lora: an adapter and its product as one function.
inline constexpr std::array<std::string_view, 4> fused_parts = {"norm", "rotary", "loss", "lora"};

struct Loop {
  bool logits_held = false;  // the program's variable keeps the logits through backward
  bool cache_held = false;   // and each layer's keys and values beside: Hugging Face's outputs under use_cache
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
  /// Which transformers model code huggingface follows: up to 4.29, to 4.45, to 4.48, 4.49 and later.
  std::string transformers = "4.45";
  /// Which PyTorch the kernels of CUDA and its optimizers are of: up to 1.10, to 2.0, later.
  std::string pytorch = "2.6";
  /// Parts of the model that are a library's kernel (Unsloth, Liger) in place of its operators; of fused_parts.
  std::vector<std::string> fused;
  Lora lora;
  Quantization quantization = Quantization::none;
  Shards shards;
  Loop loop;
  friend bool operator==(const Training&, const Training&) = default;
};

/// Replicas under DistributedDataParallel, which wraps the modules of model code huggingface and torchtitan.
inline bool replicates_by_hooks(const Training& training) {
  const Shards& shards = training.shards;
  const Profile& profile = training.profile;
  return shards.data > 1 && shards.sharding == Sharding::none && !shards.distributed_optimizer &&
         (profile.model_code == "huggingface" || profile.model_code == "torchtitan") && profile.loop != "megatron" &&
         profile.loop != "deepspeed";
}

}  // namespace tidemark
