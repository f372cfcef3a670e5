/// How many ranks share the model's tensors, and do these numbers divide them?
#pragma once

#include "tidemark/program/training.hpp"
#include "tidemark/program/transformer.hpp"

namespace tidemark {

class YamlMap;

/// The degrees and the sharding of `parallel`. `transformer` is null for other families, which have no shards.
/// Throws InputError, with the place, where a degree does not divide what it should (heads by tensor), where one needs
/// another (sequence needs tensor), and for what is not simulated.
Shards read_shards(const YamlMap& map, const TransformerSpec* transformer, const Training& training);

}  // namespace tidemark
