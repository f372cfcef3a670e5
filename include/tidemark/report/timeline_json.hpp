/// How do tools that read PyTorch's export_memory_timeline see the step?
#pragma once

#include "tidemark/engine/timeline.hpp"
#include "tidemark/report/csv.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// The raw form (`.raw.json`) of torch.profiler: a list of [time in ns, action, bytes, category], of the rank that
/// reaches the peak. Actions: 1 preexisting (at time -1), 2 create, 4 destroy (bytes negative). Categories: 0
/// parameter, 1 optimizer_state, 2 input, 3 temporary, 4 activation, 5 gradient, 6 autograd_detail, 7 unknown
/// (workspaces).
void write_timeline_json(const Step& step, const Timeline& timeline, const TextSink& sink);

}  // namespace tidemark
