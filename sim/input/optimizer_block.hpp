/// What does the optimizer block of a scenario say?
///
/// Internal to the scenario's reader.
#pragma once

#include "tidemark/input/yaml_map.hpp"
#include "tidemark/program/training.hpp"

namespace tidemark {

/// `training`: what has been read so far, its batch and data types. `parallel`: the scenario has such a block. Throws
/// InputError for settings that contradict each other.
Optimizer read_optimizer_block(const YamlMap& map, const Training& training, bool parallel);

}  // namespace tidemark
