/// Which device does a scenario name?
#pragma once

#include "tidemark/base/device.hpp"
#include "tidemark/input/yaml_map.hpp"

namespace tidemark {

/// A built-in name, the path of a YAML file, or a map of the keys themselves. Throws InputError for a name that is
/// neither built in nor a file, and for a value that does not fit.
Device read_device(const Field& field);

}  // namespace tidemark
