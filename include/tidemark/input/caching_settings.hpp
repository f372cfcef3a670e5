/// With which settings does the caching allocator run: PyTorch's own words, from a scenario or PYTORCH_CUDA_ALLOC_CONF?
#pragma once

#include <string>
#include <vector>

#include "tidemark/base/device.hpp"
#include "tidemark/engine/caching_allocator.hpp"
#include "tidemark/input/yaml_map.hpp"

namespace tidemark {

/// An `allocator` block of kind cuda_caching; what the device has is the capacity, what it leaves to the framework is
/// available. Throws InputError at the key that PyTorch would refuse.
CachingSettings read_caching(const YamlMap& map, const Device& device);

/// "max_split_size_mb:128,roundup_power2_divisions:[256:1,>:4]", as PyTorch 2.6 reads it. Throws InputError.
CachingSettings parse_alloc_conf(const std::string& conf);

/// Settings that work against each other, in sentences.
std::vector<std::string> contradictions(const CachingSettings& settings);

}  // namespace tidemark
