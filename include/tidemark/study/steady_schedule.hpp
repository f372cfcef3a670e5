/// A pipeline whose repeating periods were left out: do the last ones it kept repeat, and what is the whole run then?
///
/// A pass starts when its rank has done the pass before it and what it waits for has come: nothing but the latest of
/// these. So once all passes of `depth` periods come as much later as those of some periods before, whatever follows
/// does, for as many periods as there are; and what each rank holds repeats with them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tidemark/engine/timeline.hpp"
#include "tidemark/plan/schedule_fold.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// So many periods come again as a whole, so much later (by step).
struct PeriodCycle {
  int periods = 1;
  std::vector<Nanos> later;
};
/// The shortest cycle that the periods right before the cut run in: in times, and in the levels of memory. Nothing
/// where they do not come to repeat. `begins` is what weaving gave.
std::optional<PeriodCycle> find_cycle(const Step& step, const Timeline& timeline, const ScheduleFold& fold,
                                      const std::vector<OpId>& begins);

/// Does what a micro-batch holds at the peak live on one side of the cut alone? Else its birth or death would be told
/// wrongly.
enum class PeakLives : std::uint8_t { whole, die_behind, born_before };
PeakLives lives_at_peak(const Step& step, const Timeline& timeline, const ScheduleFold& fold,
                        const std::vector<OpId>& begins);

/// The run of the whole schedule, but that ops and events of the periods left out are not there: what comes behind
/// them has its true time and micro-batch, the end and the model's FLOPs are of all. What is left out must be whole
/// cycles.
void unfold(const ScheduleFold& fold, const std::vector<OpId>& begins, const PeriodCycle& cycle, Step& step,
            Timeline& timeline);

/// By op: for how many of the whole run it stands.
std::vector<std::int32_t> stands_for(const Step& step, const ScheduleFold& fold, const std::vector<OpId>& begins,
                                     const PeriodCycle& cycle);

}  // namespace tidemark
