// Is a device the same built in, as a file, and written out in a scenario?
#include "tidemark/input/device_file.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "tidemark/input/builtin_devices.hpp"
#include "tidemark/input/document.hpp"
#include "tidemark/input/scenario.hpp"

using namespace tidemark;

namespace {

Device device_of(const std::string& device) {
  return parse_scenario("model: {family: chain, layers: 1}\ndevice: " + device, "s.yaml").device;
}

double rate(const Device& device, DType dtype) { return device.flops[static_cast<std::size_t>(dtype)]; }

}  // namespace

TEST_CASE("device: the built-in ones stand in scenarios/devices, word for word") {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("scenarios/devices")) files += entry.is_regular_file();
  CHECK(files == device_names().size());
  for (const std::string& name : device_names()) {
    CAPTURE(name);
    const std::string path = "scenarios/devices/" + name + ".yaml";
    CHECK(read_text(path, max_document_bytes, "a device") == builtin_device(name));
    const Device builtin = device_of(name);
    CHECK(builtin.name == name);
    CHECK(device_of(path).capacity == builtin.capacity);
    CHECK(builtin.capacity.value_or(Bytes{}) > Bytes{20'000'000'000});
    CHECK(rate(builtin, DType::float16) > rate(builtin, DType::float32));
    CHECK(builtin.memory_bandwidth > 0);
    CHECK(builtin.copy_to_host > 0);
  }
}

TEST_CASE("device: every key has its place") {
  const Device device = device_of(
      "{name: d, capacity: 80 GiB, usable: 79 GiB, non_torch: 500 MB, flops: {float32: 19.5 TFLOP/s, bfloat16: 312 "
      "TFLOP/s}, memory_bandwidth: 2 TB/s, copy_bandwidth: {to_host: 25 GB/s, to_device: 20 GB/s}, launch_time: 5 us, "
      "workspaces: {cublas: 8 MiB}}");
  CHECK(device.name == "d");
  CHECK(device.capacity == Bytes{80LL << 30});
  CHECK(device.usable == Bytes{79LL << 30});
  CHECK(device.non_torch == Bytes{500'000'000});
  CHECK(rate(device, DType::float32) == 19.5e12);
  CHECK(rate(device, DType::bfloat16) == 312e12);
  CHECK(rate(device, DType::float16) == 0);
  CHECK(device.memory_bandwidth == 2e12);
  CHECK(device.copy_to_host == 25e9);
  CHECK(device.copy_to_device == 20e9);
  CHECK(device.launch_time == Nanos{5'000});
  CHECK(device.workspaces.at("cublas") == Bytes{8 << 20});
}

TEST_CASE("device: without one there are no rates and no capacity") {
  const Device device = parse_scenario("model: {family: chain, layers: 1}", "s.yaml").device;
  CHECK_FALSE(device.capacity.has_value());
  CHECK(device.name.empty());
  CHECK(duration(device, DType::float32, Flops{1'000'000}, Bytes{1'000'000}) == Nanos{0});
}
