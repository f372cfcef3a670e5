/// Which devices need no file?
///
/// The makers' datasheets: dense rates, and memory as sold. The same texts stand in scenarios/devices/ to be copied and
/// changed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tidemark {

std::vector<std::string> device_names();
/// The YAML text of a built-in device; "" for another name.
std::string_view builtin_device(std::string_view name);

}  // namespace tidemark
