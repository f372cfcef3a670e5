#include "tidemark/program/training.hpp"

#include <algorithm>

namespace tidemark {
namespace {

struct Preset {
  Profile profile;
  bool available = false;  // every axis has its rules
};

const std::array<Preset, 8> presets = {{
    {{"ideal", "ideal", "ideal", "reference", "plain"}, true},
    {{"reference", "reference", "reference", "reference", "plain"}, true},
    {{"pytorch-1.13-cpu", "pytorch-1.13", "cpu-1.13", "huggingface", "huggingface"}, true},
    {{"pytorch-2.6-cpu", "pytorch-2.6", "cpu-2.6", "huggingface", "huggingface"}, true},
    {{"pytorch-cuda", "pytorch-2.6", "cuda-sm80", "huggingface", "huggingface"}, true},
    {{"megatron", "pytorch-2.6", "transformer-engine", "megatron", "megatron"}, true},
    {{"torchtitan", "pytorch-2.6", "cuda-sm90", "torchtitan", "torchtitan"}, false},
    {{"llm.c", "reference", "reference", "llm.c", "plain"}, false},
}};

}  // namespace

std::optional<Profile> find_profile(std::string_view preset) {
  const auto found =
      std::ranges::find_if(presets, [&](const Preset& p) { return p.available && p.profile.preset == preset; });
  return found == presets.end() ? std::nullopt : std::optional(found->profile);
}

std::vector<std::string> profile_names(bool available) {
  std::vector<std::string> out;
  for (const Preset& preset : presets)
    if (preset.available == available) out.push_back(preset.profile.preset);
  return out;
}

}  // namespace tidemark
