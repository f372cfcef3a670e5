/// How is a schedule of one's own written?
#pragma once

#include <string>

#include "tidemark/plan/pipeline_schedule.hpp"

namespace tidemark {

/// A schedule as torch.distributed.pipelining writes it: a row a rank; cells such as 0F0, 1I3, 1W3, 2B1, of chunk, pass
/// and micro-batch; an empty cell is a turn left out. Throws InputError naming line and column for other cells, a chunk
/// on two ranks, and schedules that `check_schedule` refuses.
PipelineSchedule read_schedule(const std::string& path);
/// The same of a text; `name` stands for the file in messages.
PipelineSchedule parse_schedule(const std::string& text, const std::string& name);

}  // namespace tidemark
