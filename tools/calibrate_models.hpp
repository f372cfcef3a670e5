/// Which training steps does calibrate run to see how long their ops take?
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tensor.hpp"

namespace tidemark::cli {

/// A small model as the native program trains it, nothing of it recomputed.
struct CalibrationModel {
  std::string name;      // its shape, for a person
  std::string scenario;  // the same model for the simulator, whose ops are the native ones, one for one
  bool held_out = false;
  /// All steps of a model made anew.
  std::function<void(native::Machine&)> train;
};

/// The last of the steps is the one whose times count: by then all that lasts is there.
inline constexpr int calibration_steps = 2;

/// MLPs and decoders from the smallest on, as deep as it takes for a step's memory to pass the nearest cache where one
/// layer's does not. Extents are multiples of a kernel's tile and are not. What is held out has shapes that no other
/// has.
std::vector<CalibrationModel> calibration_models();

}  // namespace tidemark::cli
