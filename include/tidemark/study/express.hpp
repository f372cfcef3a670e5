/// Which plans can a framework say, and in which words?
#pragma once

#include <string>
#include <vector>

#include "tidemark/plan/policy.hpp"
#include "tidemark/program/outline.hpp"

namespace tidemark {

/// A rule of ours, and the same in the framework's words.
struct Expression {
  PolicyKind kind;
  std::string words;  // ours, for a reader
  std::string text;   // theirs: flags, TOML, arguments, code
  friend bool operator==(const Expression&, const Expression&) = default;
};

const std::vector<std::string>& frameworks();

/// All that can be said of this model, cheapest words first:
///   megatron    --recompute-granularity selective with its modules, full uniform, full block
///   torchtitan  [activation_checkpoint] of a TOML: none, selective (every n-th layer, or op), full
///   hf          TrainingArguments(gradient_checkpointing=...)
///   sac         a policy function for torch.utils.checkpoint.create_selective_checkpoint_contexts, and the blocks to
///   wrap
/// Throws InputError for an unknown framework.
std::vector<Expression> expressions(const std::string& framework, const Outline& outline);

}  // namespace tidemark
