/// Which data types does a scenario ask for, and which does its framework keep unasked?
///
/// Internal to the scenario's reader.
#pragma once

#include "tidemark/input/yaml_map.hpp"
#include "tidemark/program/training.hpp"

namespace tidemark {

/// The block `dtype` as it stands. Throws InputError for settings that contradict each other.
DTypes read_dtype_block(const YamlMap& map);

/// What a framework's optimizer keeps where the scenario does not say otherwise; `map` is its block `dtype`, or null.
void keep_framework_states(const YamlMap* map, Training& training);

}  // namespace tidemark
