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
/// Groups: matmul = linear, matmul, addmm, bmm; norm = layer_norm, rms_norm; activation = relu, gelu, silu, tanh,
/// swiglu.
bool matches(std::string_view pattern, const OutlineOp& op);

/// By op of the layer: some pattern means it.
std::vector<bool> matching_ops(const std::vector<std::string>& patterns, const OutlineLayer& layer);

/// It owns no bytes: nothing of it can be cached, and it costs nothing to make again.
bool is_view(const OutlineOp& op);

/// Throws InputError for a pattern that means no op of any of these layers, and lists what there is.
void check_patterns(const std::vector<std::string>& patterns, const Outline& outline,
                    const std::vector<std::int32_t>& layers);

}  // namespace tidemark
