#include "tidemark/input/device_file.hpp"

#include <fmt/core.h>

#include <filesystem>

#include "tidemark/input/builtin_devices.hpp"
#include "tidemark/input/calibration_file.hpp"
#include "tidemark/input/quantities.hpp"

namespace tidemark {
namespace {

Device device_of(const DocPtr& root, const std::string& name) {
  const YamlMap map(root, block("device"));
  Device device;
  device.name = map.get("name", text, name);
  if (const auto field = map.optional("capacity")) device.capacity = size(*field);
  if (const auto field = map.optional("usable")) {
    device.usable = size(*field);
    if (device.capacity && *device.usable > *device.capacity) field->fail("'usable' is above 'capacity'");
  }
  if (const auto field = map.optional("non_torch")) {
    device.non_torch = size(*field);
    const auto usable = device.usable ? device.usable : device.capacity;
    if (usable && device.non_torch >= *usable) field->fail("'non_torch' leaves nothing of what is usable");
  }
  if (const auto field = map.optional("flops"))
    for (const Field& rate : YamlMap(field->value, block("device_flops")).fields())
      device.flops[static_cast<std::size_t>(*parse_dtype(rate.key->name))] = flop_rate(rate);
  device.memory_bandwidth = map.get("memory_bandwidth", byte_rate, 0.0);
  if (const auto field = map.optional("copy_bandwidth")) {
    const YamlMap copies(field->value, block("copy_bandwidth"));
    device.copy_to_host = copies.get("to_host", byte_rate, 0.0);
    device.copy_to_device = copies.get("to_device", byte_rate, 0.0);
  }
  device.link_bandwidth = map.get("link_bandwidth", byte_rate, 0.0);
  device.launch_time = map.get("launch_time", time, Nanos{});
  if (const auto field = map.optional("workspaces"))
    for (const Field& workspace : YamlMap(field->value, block("workspaces")).fields())
      device.workspaces[std::string(workspace.key->name)] = size(workspace);
  if (const auto field = map.optional("calibration")) device.calibration = read_calibration(*field);
  return device;
}

bool is_path(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".yaml") || name.ends_with(".yml");
}

}  // namespace

Device read_device(const Field& field) {
  if (field.value->kind == DocNode::Kind::map) return device_of(field.value, "");
  const std::string name = text(field);
  if (const std::string_view builtin = builtin_device(name); !builtin.empty())
    return device_of(parse_yaml(std::string(builtin), {name, ""}), name);
  if (!is_path(name))
    field.fail(fmt::format("unknown device {}; expected one of: {}, or the path of a YAML file", shown(*field.value),
                           joined(device_names())));
  const std::string file = path(field);
  return device_of(read_yaml(file, "a device (YAML)"), std::filesystem::path(file).stem().string());
}

}  // namespace tidemark
