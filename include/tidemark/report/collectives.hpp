/// What did a rank exchange with the others, and did it hide behind the computation?
#pragma once

#include "tidemark/base/units.hpp"
#include "tidemark/engine/timeline.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// Of the last step of a rank that is looked at alone (a pipeline's transfers are in its own table).
struct CollectiveFigures {
  std::size_t count = 0;
  Bytes received;
  Nanos busy;     // the comm stream
  Nanos exposed;  // of that, while the compute stream does nothing
  friend bool operator==(const CollectiveFigures&, const CollectiveFigures&) = default;
};

/// All 0 where nothing was exchanged.
CollectiveFigures collective_figures(const Step& step, const Timeline& timeline);

}  // namespace tidemark
