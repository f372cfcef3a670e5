#include "tidemark/step/op_times.hpp"

#include <string>

namespace tidemark {

OpTimes::OpTimes(const Device& device) : device_(device) {
  const auto cost_of = [&](const std::string& name) {
    const auto found = device.calibration.costs.find(name);
    return found == device.calibration.costs.end() ? nullptr : &found->second;
  };
  for (std::size_t kind = 0; kind < op_kind_names.size(); ++kind) {
    const std::string name(op_kind_names[kind]);
    costs_[kind] = {cost_of(name), cost_of(name + ".backward")};
  }
  costs_[static_cast<std::size_t>(OpKind::custom)] = {};  // one custom op's cost says nothing of another's
  optimizer_ = cost_of("optimizer");
}

Nanos OpTimes::of(const StepOp& op) const {
  if (op.has_time) return op.time;
  if (op.kind == OpKind::collective) return copy_duration(device_.link_bandwidth, op.moved);
  const KindCost* cost = costs_[static_cast<std::size_t>(op.kind)][op.is_backward ? 1 : 0];
  if (op.phase == Phase::optimizer) cost = optimizer_;
  // What computes and moves nothing, such as dropping gradients, has no kernel that was measured.
  if (cost != nullptr && op.dtype == device_.calibration.dtype && (op.flops > 0 || op.moved.count > 0))
    return duration(*cost, Flops{op.flops}, op.moved);
  return duration(device_, op.dtype, Flops{op.flops}, op.moved);
}

}  // namespace tidemark
