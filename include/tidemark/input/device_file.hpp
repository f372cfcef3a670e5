/// Which device does a scenario name?
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tidemark/base/device.hpp"
#include "tidemark/input/yaml_map.hpp"

namespace tidemark {

/// The built-in devices: the makers' datasheets, dense rates, memory as the device reports it. The same texts stand in
/// scenarios/devices/ to be copied and changed.
std::vector<std::string> device_names();
/// The YAML text of a built-in device; "" for another name.
std::string_view builtin_device(std::string_view name);

/// A built-in name, the path of a YAML file, or a map of the keys themselves. Throws InputError for a name that is
/// neither built in nor a file, and for a value that does not fit.
Device read_device(const Field& field);

}  // namespace tidemark
