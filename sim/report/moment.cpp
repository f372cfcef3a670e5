#include "tidemark/report/moment.hpp"

namespace tidemark {

std::string_view layer_name(const Step& step, std::int32_t layer) {
  return layer < 0 ? std::string_view() : step.layers[static_cast<std::size_t>(layer)];
}

Moment moment_of(const Step& step, const MemoryEvent& event) {
  const OpId id = event.op();
  if (id == no_id) return {event.live, 0, event.time, "", "", Phase::initial};
  const StepOp& op = step.ops[id];
  return {event.live, op.step, event.time, step.names[op.name], std::string(layer_name(step, op.layer)), op.phase};
}

}  // namespace tidemark
