/// How fast is the device, and how much memory does it have?
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/base/vocabulary.hpp"

namespace tidemark {

/// A rate measured for one class of shapes.
struct RatePoint {
  double at = 0;    // the class: FLOP per byte moved under `flops`, bytes moved under `bytes`
  double rate = 0;  // FLOP/s, B/s; above 0
  friend bool operator==(const RatePoint&, const RatePoint&) = default;
};

/// Where a class stands between points: the time of one unit is (1 - part) of the one below and part of the one above.
struct PointPlace {
  std::size_t below = 0, above = 0;  // the same outside the points
  double part = 0;
};
/// `points` must not be empty.
PointPlace place(const std::vector<RatePoint>& points, double at);

/// What one kind of op costs, as measured: launch + amount / rate. Between two points the time of one unit is linear in
/// 1 / at, outside them the nearest point's; so between two points of `flops` a time is a part for its FLOPs plus a
/// part for its bytes, and between two of `bytes` a constant plus a part for its bytes.
struct KindCost {
  Nanos launch;
  std::vector<RatePoint> flops;  // ascending in `at`; used by ops that have matrix products
  std::vector<RatePoint> bytes;  // ascending in `at`; used by the others
  friend bool operator==(const KindCost&, const KindCost&) = default;
};

/// Measured costs by kind of op, with ".backward" behind it for its backward: "matmul", "matmul.backward"; "optimizer".
struct Calibration {
  DType dtype = DType::float32;  // of what was measured; ops of other types are not covered
  std::map<std::string, KindCost> costs;
};

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
  double link_bandwidth = 0;                       // B/s to the ranks it shares tensors with, each way
  Nanos launch_time;
  std::map<std::string, Bytes> workspaces;  // "cublas": ...
  Calibration calibration;
};

/// launch + ceil(max(flops / F, bytes / B)), exact for whole rates; a rate that is not given costs nothing. What passes
/// 2^63 ns is 2^63 - 1 ns, which `simulate` refuses, naming the op.
Nanos duration(const Device& device, DType dtype, Flops flops, Bytes moved);
/// For an op whose kind was measured; to the nearest nanosecond, 2^63 - 1 at most.
Nanos duration(const KindCost& cost, Flops flops, Bytes moved);
/// bytes / bandwidth, rounded up; 0 without a bandwidth.
Nanos copy_duration(double bandwidth, Bytes bytes);

}  // namespace tidemark
