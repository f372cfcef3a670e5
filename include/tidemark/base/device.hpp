/// How fast is the device, and how much memory does it have?
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>

#include "tidemark/base/units.hpp"
#include "tidemark/base/vocabulary.hpp"

namespace tidemark {

/// Rates are per second, `double`, and meet quantities only in `duration`.
struct Device {
  std::string name;
  std::optional<Bytes> capacity;                   // all of its memory
  std::optional<Bytes> usable;                     // what a process can get; capacity when not given
  Bytes non_torch;                                 // context and communicators, outside the framework
  std::array<double, dtype_names.size()> flops{};  // FLOP/s by data type; 0 is not given
  double memory_bandwidth = 0;                     // B/s; 0 is not given
  double copy_to_host = 0;                         // B/s
  double copy_to_device = 0;                       // B/s
  Nanos launch_time;
  std::map<std::string, Bytes> workspaces;  // "cublas": ...
};

/// launch + ceil(max(flops / F, bytes / B)), exact for whole rates; a rate that is not given costs nothing. What passes
/// 2^63 ns is 2^63 - 1 ns, which `simulate` refuses, naming the op.
Nanos duration(const Device& device, DType dtype, Flops flops, Bytes moved);
/// bytes / bandwidth, rounded up; 0 without a bandwidth.
Nanos copy_duration(double bandwidth, Bytes bytes);

}  // namespace tidemark
