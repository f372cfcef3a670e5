/// Which device profile explains measured op times?
///
/// Each kind and direction apart: time = launch + FLOPs / rate(FLOPs a byte), or launch + bytes / rate(bytes) without
/// matrix products (base/device.hpp). Times of one unit at the points, and the launch, are what is fitted: a linear
/// model in them, none below 0, by the relative error of each time; far outliers, too high and too low alike, count by
/// the logarithm of how far.
#pragma once

#include <string>
#include <vector>

#include "tidemark/input/calibration_file.hpp"

namespace tidemark {

/// `ops` must come from one device and data type. Held-out ops are not fitted to; where an op does not say, of a kind
/// and direction with at least four shapes, ordered by work, every fourth is held out, never the first or the last.
/// A pure function; InputError when there are no ops, or a time is above 10^15 ns.
DeviceProfile fit_profile(std::vector<MeasuredOp> ops, std::string name, std::string source);

/// The errors by kind and direction, training points and held-out shapes apart, the latter beside the errors of the
/// single-constant model: one FLOP/s for matrix products, one B/s for the rest.
std::string error_table(const DeviceProfile& profile);

/// By kind: the median over shapes of backward's time over forward's. Empty where no shape has both.
struct BackwardRatio {
  std::string kind;
  int shapes = 0;
  double least = 0, median = 0, most = 0;
};
std::vector<BackwardRatio> backward_ratios(const DeviceProfile& profile);

}  // namespace tidemark
