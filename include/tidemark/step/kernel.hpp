/// What does one op, as implemented, do to memory: outputs, temporaries, what it saves, what its backward allocates?
///
/// A rule is a small typed function from an op to a Kernel; each stands beside its source. A profile is a table of
/// rules in which single ones are overridden.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/base/vocabulary.hpp"
#include "tidemark/program/program.hpp"

namespace tidemark {

/// A thing a script allocates or frees.
struct Slot {
  enum class Of : std::uint8_t { output, temp, grad } of = Of::output;
  std::int32_t index = 0;  // output number, temp number, or number of the input whose gradient it is
  friend bool operator==(const Slot&, const Slot&) = default;
};

/// What ranks exchange within an op, in an op of its own.
struct Exchange {
  std::string_view how;  // "all_reduce"; the op's name goes on with it
  Bytes linked;          // over this rank's link, each way
  friend bool operator==(const Exchange&, const Exchange&) = default;
};

/// One line of a script. `run` is the kernel itself: what comes before is at its start, what comes after at its end.
/// `exchange` is one too, on the link: ranks that share the op meet there.
struct Move {
  enum class What : std::uint8_t { alloc, free, run, exchange } what = What::run;
  Slot slot;  // exchange: `index` into Kernel::exchanges
  bool works() const { return what == What::run || what == What::exchange; }
  friend bool operator==(const Move&, const Move&) = default;
};

/// One tensor the autograd node holds until it has run.
struct Saved {
  enum class Of : std::uint8_t { input, output, temp } of = Of::input;
  std::int32_t index = 0;
  friend bool operator==(const Saved&, const Saved&) = default;
};

/// Buffers besides outputs: a statistic that is saved, a workspace that dies inside. Shared by both scripts, so a
/// temp allocated in forward and listed in `saved` is there in backward.
struct Temp {
  std::string name;  // "logsumexp"
  Bytes bytes;
  Category category = Category::temporary;
  /// A Python number as a tensor (E11): saved-tensor hooks of PyTorch 2 never see it.
  bool wrapped_number = false;
  friend bool operator==(const Temp&, const Temp&) = default;
};

/// The gradient of one input.
struct GradientRule {
  /// How the strides of what is handed on come about; they decide later copies (E10).
  enum class Layout : std::uint8_t {
    contiguous,     // fresh, row-major
    like_input,     // fresh, in the input's order of dimensions (relu, products with a transposed operand)
    like_gradient,  // fresh, in the incoming gradient's order (pointwise formulas that begin with it)
    reshape,        // passes through: a view when the dimensions merge, else one copy
    transpose,      // passes through: a view with two dimensions exchanged (Attributes::dims)
    token_major,    // fresh, [batch, heads, rows, d] stored as [batch, rows, heads, d]
    expand,         // passes through: stride 0 in the dimensions that were summed
    part,           // passes through: the input's part of it (cat, stack)
  };
  std::int32_t input = 0;
  /// true: the incoming gradient itself, or a view of it, is handed on, and nothing is allocated (add, view).
  bool passes_through = false;
  std::int32_t from_output = 0;  // whose gradient passes through
  Bytes bytes = {};              // of a fresh one
  Layout layout = Layout::contiguous;
  /// Written over a saved tensor, which becomes the gradient (index into Kernel::saved); -1: not. Nothing is allocated.
  std::int32_t over_saved = -1;
  friend bool operator==(const GradientRule&, const GradientRule&) = default;
};

/// A copy of an incoming gradient that the kernel cannot read as it lies (E10).
enum class GradientCopy : std::uint8_t {
  none,
  per_product,  // one that BLAS cannot address (stride 0): once each product's result is allocated, and for it only
  whole,        // one that is not row-major: once all results are allocated, until the node returns
};

struct Cost {
  std::int64_t matmul_flops = 0;  // 2 m n k
  std::int64_t other_flops = 0;
  Bytes moved;  // read and written
  friend bool operator==(const Cost&, const Cost&) = default;
};

struct Kernel {
  std::vector<Temp> temps;
  std::vector<Exchange> exchanges;
  std::vector<Bytes> output_bytes;  // of the outputs' storages where they are not the tensors' own sizes; else empty
  std::vector<Move> forward;
  std::vector<Saved> saved;             // in the order the node releases them
  std::vector<GradientRule> gradients;  // in the order they are handed on; only inputs that need one
  std::vector<Move> backward;           // allocs of gradients and temps, run, frees of temps
  GradientCopy gradient_copy = GradientCopy::none;
  /// By output: what backward allocates in place of a gradient that never comes, until the node returns; else empty.
  std::vector<Bytes> zeros;
  Cost forward_cost, backward_cost;
  friend bool operator==(const Kernel&, const Kernel&) = default;
};

/// What a rule may look at.
struct OpView {
  const Program& program;
  const ProgramOp& op;
  const Tensor& input(std::size_t i) const;
  const Tensor& output(std::size_t i) const;
  std::size_t inputs() const { return op.inputs.size(); }
  bool needs_gradient(std::size_t i) const { return i < inputs() && input(i).requires_grad; }
};

using KernelRule = Kernel (*)(const OpView&);

/// The rules of a profile's `kernels` axis, by op kind; on CUDA those of that PyTorch. Throws InputError for an unknown
/// name.
class KernelSet {
 public:
  explicit KernelSet(const std::string& kernels, const std::string& pytorch = "2.6");
  Kernel kernel(const Program& program, const ProgramOp& op) const;

 private:
  std::vector<KernelRule> rules_;  // by OpKind
};

/// What policies see of a Program; saved bytes come from the kernel rules.
struct Outline;
Outline outline(const Program& program, const KernelSet& kernels);

}  // namespace tidemark
