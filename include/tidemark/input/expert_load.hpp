/// How many tokens did each expert of each layer get?
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tidemark/program/transformer.hpp"

namespace tidemark {

/// By layer and expert, from a CSV with the columns layer, expert, tokens, all from 0; what has no row got none, and a
/// layer without rows shares its tokens evenly. Only shares count, so any number of steps may be added up. Throws
/// InputError, naming the line, for a layer without experts, an expert that is not there or named twice, a layer whose
/// tokens are all 0, and more than one token in `per_token` at one expert.
std::vector<std::vector<std::int64_t>> read_expert_load(const std::string& path, const TransformerSpec& spec);

}  // namespace tidemark
