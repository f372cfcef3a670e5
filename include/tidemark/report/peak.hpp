/// What is the peak made of, and how far would it fall without each tensor?
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/engine/timeline.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// One storage alive at the peak. Ops are in host issue order, so "next" means the lowest id after the peak's op.
struct PeakStorage {
  StorageId storage = no_id;
  std::size_t birth_event = 0;
  std::optional<std::size_t> death_event{};  // none: never freed
  OpId next_reader = no_id;                  // the first op after the peak's that reads or writes it
  OpId last_reader = no_id;                  // the last one
  bool rebuilt = false;                      // made by a recompute
  bool read_at_peak = false;                 // by the op that runs at the peak
  bool read_by_recompute = false;            // by any recompute, before or after: a recomputed region starts from it
  friend bool operator==(const PeakStorage&, const PeakStorage&) = default;
};

/// What runs at the peak, none at the start; the rank that reaches it, 0 where nothing happens.
OpId peak_op(const Timeline& timeline);
std::int16_t peak_rank(const Step& step, const Timeline& timeline);

/// All storages alive at the peak, the largest first, then in order of birth. Linear in events and reads.
std::vector<PeakStorage> peak_storages(const Step& step, const Timeline& timeline);

/// By how many bytes the peak of the whole timeline falls when a storage is not there: exact, from the highest level
/// outside its lifetime. One answer for each of `storages`, in two scans of the events.
std::vector<Bytes> peak_drops(const Timeline& timeline, const Step& step, const std::vector<PeakStorage>& storages);

/// Which of these are first versions that only forward reads, and of which a recompute makes another: the policy gives
/// them up before backward.
std::vector<bool> given_up_later(const Step& step, const std::vector<PeakStorage>& storages);

/// What the policy did to the tensors at the peak.
struct RecomputeAtPeak {
  bool any = false;                   // the step recomputes something
  Bytes rebuilt;                      // made by a recompute
  Bytes to_be_dropped;                // a first version that is dropped before backward, and rebuilt later
  Bytes kept;                         // read next by a recompute: what regions start from
  std::size_t layers_rebuilt = 0;     // layers with rebuilt tensors at the peak
  std::size_t layers_recomputed = 0;  // layers that are recomputed at all
  friend bool operator==(const RecomputeAtPeak&, const RecomputeAtPeak&) = default;
};
RecomputeAtPeak recompute_at_peak(const Step& step, const std::vector<PeakStorage>& storages);

}  // namespace tidemark
