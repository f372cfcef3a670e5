/// What went to the host and back: how much lay there, and did the copies hide behind the computation?
#pragma once

#include "tidemark/base/units.hpp"
#include "tidemark/engine/timeline.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// Of one rank and its last step.
struct OffloadFigures {
  std::size_t copies = 0;
  Bytes moved_out, moved_in;
  Bytes host_peak;  // pinned host memory: from when a copy out starts until the copy in has ended
  Nanos copying;    // both copy streams' busy time
  friend bool operator==(const OffloadFigures&, const OffloadFigures&) = default;
};

/// All 0 where nothing was copied.
OffloadFigures offload_figures(const Step& step, const Timeline& timeline, int rank);

}  // namespace tidemark
