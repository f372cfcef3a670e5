/// Which stage of a pipeline is the worst, when, and how much of its time does it wait?
#pragma once

#include <optional>
#include <vector>

#include "tidemark/engine/timeline.hpp"
#include "tidemark/report/moment.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// One stage; times are of the last step's forwards and backwards.
struct StageFigures {
  Moment peak;
  int in_flight = 0;  // chunks' micro-batches it holds for backward at most
  Nanos span, busy;   // from its first pass to the end of its last; computing in between
};

struct PipelineFigures {
  std::vector<StageFigures> stages;  // by rank
  std::size_t worst = 0;             // the first stage that reaches the highest peak
  /// The part of the longest span that its stage waits: Qi et al. 2024, table 5.
  std::optional<double> bubble_rate;
};

/// Linear in events and ops. `step` must be a pipeline's.
PipelineFigures pipeline_figures(const Step& step, const Timeline& timeline);

/// Only what the rank did: the other ranks' events and ops are as if they had never run.
Timeline view_of_rank(const Step& step, const Timeline& timeline, int rank);

}  // namespace tidemark
