#include "tidemark/program/training.hpp"

#include <algorithm>

namespace tidemark {
namespace {

const std::array<Profile, 9> presets = {{
    {"ideal", "ideal", "ideal", "reference", "plain"},
    {"reference", "reference", "reference", "reference", "plain"},
    {"pytorch-1.13-cpu", "pytorch-1.13", "cpu-1.13", "huggingface", "huggingface"},
    {"pytorch-2.6-cpu", "pytorch-2.6", "cpu-2.6", "huggingface", "huggingface"},
    {"pytorch-cuda", "pytorch-2.6", "cuda-sm80", "huggingface", "huggingface"},
    {"megatron", "pytorch-2.6", "transformer-engine", "megatron", "megatron"},
    {"megatron-deepspeed", "pytorch-2.6", "transformer-engine", "megatron", "deepspeed"},
    {"torchtitan", "pytorch-2.6", "cuda-sm90", "torchtitan", "torchtitan"},
    {"llm.c", "reference", "reference", "llm.c", "plain"},
}};

}  // namespace

std::optional<Profile> find_profile(std::string_view preset) {
  const auto found = std::ranges::find(presets, preset, &Profile::preset);
  return found == presets.end() ? std::nullopt : std::optional(*found);
}

}  // namespace tidemark
