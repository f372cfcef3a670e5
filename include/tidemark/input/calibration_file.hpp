/// How does a calibrated device profile stand in a YAML file?
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tidemark/base/device.hpp"
#include "tidemark/input/yaml_map.hpp"

namespace tidemark {

/// One op, run alone many times.
struct MeasuredOp {
  std::string kind;  // OpKind's name where there is one
  bool is_backward = false;
  std::string shape;             // for a person
  std::string device, provider;  // "" where the table does not say
  DType dtype = DType::float32;
  Flops flops;  // matrix products
  Bytes moved;  // read and written
  Nanos time;   // a low quantile of the runs, above 0
  std::optional<Nanos> median;
  std::optional<bool> held_out;  // without one, the fit chooses
};

/// A cost fitted to the points of one kind and direction; errors are medians of |predicted / measured - 1|.
struct FittedCost {
  std::string kind;
  bool is_backward = false;
  KindCost cost;
  int training_points = 0, held_out_points = 0;
  double training_error = 0;
  std::optional<double> held_out_error;           // none without held-out points
  std::optional<double> constant_held_out_error;  // of the single-constant model, on the same points
};

struct PredictedOp {
  MeasuredOp op;  // `held_out` is set
  Nanos predicted;
};

/// What a calibration gives.
struct DeviceProfile {
  std::string name, source;
  DType dtype = DType::float32;
  double flop_rate = 0;  // the single-constant model: one FLOP/s for matrix products,
  double byte_rate = 0;  // one B/s for everything else
  std::vector<FittedCost> costs;
  std::vector<PredictedOp> points;
};

/// The layout that is written and read.
inline constexpr int calibration_layout = 1;

/// The value of a device's key `calibration`. Throws InputError for another layout, a kind and direction that stands
/// twice, points that do not ascend.
Calibration read_calibration(const Field& field);
/// As the simulator takes it.
Calibration calibration_of(const DeviceProfile& profile);
/// A device file with constants, points and residuals.
std::string write_profile(const DeviceProfile& profile);

/// As a file holds it: six significant digits, from 1 to 10^17.
double written_rate(double rate);
/// "12.3 %"
std::string percent(double part);

}  // namespace tidemark
