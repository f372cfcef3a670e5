#include "tidemark/report/moment.hpp"

namespace tidemark {

Moment moment_of(const Step& step, const MemoryEvent& event) {
  const OpId id = event.op();
  if (id == no_id) return {event.live, 0, event.time, "", "", Phase::initial};
  const StepOp& op = step.ops[id];
  return {event.live,
          op.step,
          event.time,
          step.names[op.name],
          op.layer < 0 ? "" : step.layers[static_cast<std::size_t>(op.layer)],
          op.phase};
}

}  // namespace tidemark
