/// How long does an op take on a device?
#pragma once

#include <array>

#include "tidemark/base/device.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// The time that is given; else what was measured for the op's kind; else the device's rates. Keeps a reference to the
/// device.
class OpTimes {
 public:
  explicit OpTimes(const Device& device);
  Nanos of(const StepOp& op) const;

 private:
  const Device& device_;
  std::array<std::array<const KindCost*, 2>, op_kind_names.size()> costs_{};  // by kind and is_backward; null: none
  const KindCost* optimizer_ = nullptr;
};

}  // namespace tidemark
