/// What went to the host and back: how much lay there, did it lower the peak, did the copies hide behind computation?
#pragma once

#include <optional>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/engine/timeline.hpp"
#include "tidemark/report/csv.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// Where at the peak is what the peak's step copies out? The five add up to all of it.
struct CopiedAtPeak {
  Bytes to_come;    // not made yet
  Bytes on_device;  // its copy has not ended, or somebody else holds it
  Bytes on_host;    // on the host alone
  Bytes back;       // on the device again, or room is made for it
  Bytes done;       // used and gone
  friend bool operator==(const CopiedAtPeak&, const CopiedAtPeak&) = default;
};

/// Of the same run with the copies left out.
struct WithoutCopies {
  Bytes peak;
  std::optional<Bytes> forward_end;  // of the last step
  friend bool operator==(const WithoutCopies&, const WithoutCopies&) = default;
};

/// Of one rank and its last step.
struct OffloadFigures {
  std::size_t copies = 0;
  Bytes moved_out, moved_in;
  Bytes host_peak;  // pinned host memory: from when a copy out starts until the copy in has ended
  Nanos copying;    // both copy streams' busy time
  Nanos copying_back;
  CopiedAtPeak at_peak;
  std::optional<WithoutCopies> without;
  Nanos waits = {};  // of computation, for copies alone: longer than for its last op and for other stages
  friend bool operator==(const OffloadFigures&, const OffloadFigures&) = default;
};

/// All 0 where nothing was copied.
OffloadFigures offload_figures(const Step& step, const Timeline& timeline, int rank);

/// A change of pinned host memory.
struct HostEvent {
  Nanos time;
  std::size_t block = 0;  // Step::host
  bool is_alloc = false;
  Bytes held;  // on the rank's host after it
  friend bool operator==(const HostEvent&, const HostEvent&) = default;
};

/// In time order, at one instant in the order in which the host issued the copies.
std::vector<HostEvent> host_events(const Step& step, const Timeline& timeline);
/// One row a change: seq,time_ns,step,rank,event,op,tensor,bytes,host_bytes,id.
void write_host_timeline_csv(const Step& step, const Timeline& timeline, const TextSink& sink);

}  // namespace tidemark
