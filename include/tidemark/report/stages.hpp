/// Which stage of a pipeline is the worst, when, and how much of its time does it wait?
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tidemark/engine/timeline.hpp"
#include "tidemark/report/moment.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// One stage; times are of the last step's forwards and backwards.
struct StageFigures {
  Moment peak;
  int in_flight = 0;                    // chunks' micro-batches it holds for backward at most
  Nanos span, busy;                     // from its first pass to the end of its last; computing in between
  Nanos exposed;                        // of its waiting, as much as the transfers take that it waits for
  std::optional<Bytes> without_copies;  // its peak, where some stage copies to the host: with no stage copying
};

struct PipelineFigures {
  std::vector<StageFigures> stages;  // by rank
  std::size_t worst = 0;             // the first stage that reaches the highest peak
  /// The part of the longest span that its stage waits: Qi et al. 2024, table 5.
  std::optional<double> bubble_rate;
  /// By op: for how many of the whole run it stands, where repeating periods were left out; else empty.
  std::vector<std::int32_t> stands_for;
};

/// Of an op; 1 where nothing was left out.
inline std::int64_t times(const std::vector<std::int32_t>& stands_for, std::size_t op) {
  return stands_for.empty() ? 1 : stands_for[op];
}

/// By rank: the first highest moment.
std::vector<Moment> peaks_by_rank(const Step& step, const Timeline& timeline);

/// Linear in ops. `step` must be a pipeline's, `spans` those of all its ops; `peaks` by rank.
PipelineFigures pipeline_figures(const Step& step, const std::vector<OpSpan>& spans, std::vector<Moment> peaks,
                                 std::vector<std::int32_t> stands_for);

/// Only what the rank did: the other ranks' ops are as if they had never run.
void hide_other_ranks(const Step& step, int rank, std::vector<OpSpan>& spans);

}  // namespace tidemark
