/// How does a rule write its Kernel: line by line, in the order things happen?
///
/// A draft opens on the forward script; `backward()` opens the backward one. Gradients that nobody needs are left out,
/// so a rule names all of them and reads like the row it comes from.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "tidemark/step/kernel.hpp"

namespace tidemark::kernels {

using Layout = GradientRule::Layout;

class Draft {
 public:
  explicit Draft(const OpView& op) : op_(op) {}

  /// Allocates every output that is not an alias of an input's storage.
  Draft& outputs();
  /// Allocates one output.
  Draft& output(std::size_t i);
  /// The storage of the one output has this size instead of the tensor's own.
  Draft& output_bytes(std::int64_t size);
  /// A buffer allocated here. Freed by `free_temp`, or saved; its number is the return value.
  std::int32_t temp(std::string name, std::int64_t bytes, Category category = Category::temporary);
  Draft& free_temp(std::int32_t number);
  /// The Python number of an arithmetic op as a tensor of eight bytes.
  std::int32_t wrapped_number();
  /// The kernel itself.
  Draft& run();
  /// Ranks exchange `size` bytes: by all_reduce, all_gather, reduce_scatter or all_to_all, as a ring does it.
  Draft& exchange(std::string_view how, std::int64_t size);
  /// To the next rank, while as many bytes come from the one before.
  Draft& send_receive(std::int64_t size);

  Draft& save_input(std::size_t i);
  /// Saves input i if input j needs a gradient: what a product keeps.
  Draft& save_input_for(std::size_t i, std::size_t j);
  Draft& save_output(std::size_t i = 0);
  Draft& save_temp(std::int32_t number);

  Draft& backward();
  /// A fresh gradient of input i in the input's shape and dtype.
  Draft& gradient(std::size_t i, Layout layout = Layout::contiguous);
  /// The same with bytes of its own: an fp32 gradient of a bf16 tensor, say.
  Draft& gradient_of_bytes(std::size_t i, std::int64_t bytes);
  /// The incoming gradient, or a view of it, goes on to input i.
  Draft& pass(std::size_t i, Layout layout = Layout::contiguous, std::size_t from_output = 0);
  /// The gradient of input i is written over the saved tensor of that number (in order of saving).
  Draft& over_saved(std::size_t i, std::size_t saved);

  Draft& matmul_flops(std::int64_t forward, std::int64_t backward);
  Draft& other_flops(std::int64_t forward, std::int64_t backward);

  /// The Kernel; without a gradient to make there is no node, so nothing is saved and backward is empty.
  Kernel finish();

 private:
  Draft& link(std::string_view how, std::int64_t linked);
  std::vector<Move>& script() { return in_backward_ ? kernel_.backward : kernel_.forward; }
  const OpView& op_;
  Kernel kernel_;
  bool in_backward_ = false;
};

/// a * b for bytes and FLOPs of an op; InputError naming the op past 2^63.
std::int64_t product(const OpView& op, std::int64_t a, std::int64_t b);
/// FLOPs given in 128 bits that must fit one op.
std::int64_t fits(const OpView& op, Flops flops);
/// 2 m n k.
std::int64_t matmul_flops(const OpView& op, std::int64_t m, std::int64_t n, std::int64_t k);

std::int64_t elements(const Tensor& tensor);
std::int64_t bytes(const Tensor& tensor);
std::int64_t last_extent(const Tensor& tensor);
/// Elements over the last extent: how many rows a norm or softmax has.
std::int64_t rows(const Tensor& tensor);

/// Products of attention that never keeps its scores, as the op's own backward executes them.
struct AttentionFlops {
  std::int64_t forward = 0, backward = 0;
};
AttentionFlops attention_flops(const OpView& op);

/// Fused attention on CUDA. PyTorch keeps the generator's seed and offset as two tensors, the flash-attn package and
/// Transformer Engine as one of two numbers.
Kernel fused_attention(const OpView& op, bool one_rng_tensor);
/// The same among ranks that have some tokens of each sequence (context.cpp).
Kernel ring_attention(const OpView& op);
/// Products and a table that ranks share, as `Attributes::implementation` says; and what ranks exchange (parallel.cpp).
Kernel split_linear(const OpView& op);
Kernel split_embedding(const OpView& op);
Kernel collective(const OpView& op);
/// What an elementwise op's node saves.
enum class Keeps : std::uint8_t { nothing, input, output };

/// A rule for every OpKind.
using RuleTable = std::array<KernelRule, op_kind_names.size()>;
inline KernelRule& rule(RuleTable& table, OpKind kind) { return table[static_cast<std::size_t>(kind)]; }

/// The least any implementation can do: outputs, what the mathematics of backward needs, gradients; no temporaries.
RuleTable ideal_rules();
/// Puts PyTorch's own formulas in place of what the ideal needs.
enum class Torch : std::uint8_t { cpu_1_13, cpu_2_6, cuda };
void set_torch_rules(RuleTable& rules, Torch torch);
/// PyTorch 1.13.1 and 2.6.0 on a CPU (measured).
RuleTable cpu_1_13_rules();
RuleTable cpu_2_6_rules();
/// PyTorch 2.6 on CUDA (sources, not measured).
RuleTable cuda_rules();
/// What CUDA's ops kept besides, up to PyTorch 1.10.
void set_torch_1_10_rules(RuleTable& rules);
/// Transformer Engine and Megatron-LM's fused kernels on top of CUDA's.
RuleTable transformer_engine_rules();

}  // namespace tidemark::kernels
