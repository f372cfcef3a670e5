/// Which ops does a pattern in a policy mean?
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tidemark/program/outline.hpp"

namespace tidemark {

/// A pattern means the ops of a kind ("softmax"), of a group of kinds, or those whose dotted name has the pattern as
/// one component, or as several in a row: "attention" and "attention.core" both match "attention.core.softmax".
///
/// Groups: matmul = linear, matmul, addmm, bmm, grouped_linear; norm = layer_norm, rms_norm; activation = relu, gelu,
/// silu, tanh, swiglu. mm is PyTorch's name of the kind matmul alone.
bool matches(std::string_view pattern, const OutlineOp& op);

/// Patterns applied to ops one after the other. "mm/2" means the second, fourth, ... op that "mm" means since the
/// first op was asked about, "mm/2+1" the first, third, ...
class Selection {
 public:
  /// Throws InputError for a "/" that no counting number follows.
  explicit Selection(const std::vector<std::string>& patterns);
  /// Some pattern means this op.
  bool next(const OutlineOp& op);

 private:
  struct Counted {
    std::string pattern;
    int every = 1, from = 0;
    int seen = 0;
  };
  std::vector<Counted> patterns_;
};

/// By op of the layer: some pattern means it.
std::vector<bool> matching_ops(const std::vector<std::string>& patterns, const OutlineLayer& layer);

/// It owns no bytes: nothing of it can be cached, and it costs nothing to make again.
bool is_view(const OutlineOp& op);

/// Throws InputError for a pattern that means no op of any of these layers, and lists what there is.
void check_patterns(const std::vector<std::string>& patterns, const Outline& outline,
                    const std::vector<std::int32_t>& layers);

}  // namespace tidemark
