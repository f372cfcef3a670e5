/// What did a rank exchange with the others, and did it hide behind the computation?
#pragma once

#include <cstdint>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/engine/timeline.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// Of one rank's last step. A pipeline's transfers from stage to stage are in its own table.
struct CollectiveFigures {
  std::size_t count = 0;
  Bytes received;
  Nanos busy;     // they take
  Nanos exposed;  // of that, while the rank computes nothing
  friend bool operator==(const CollectiveFigures&, const CollectiveFigures&) = default;
};

/// All 0 where nothing was exchanged. `stands_for` as in `PipelineFigures`.
CollectiveFigures collective_figures(const Step& step, const Timeline& timeline, std::int16_t rank,
                                     const std::vector<std::int32_t>& stands_for);

}  // namespace tidemark
