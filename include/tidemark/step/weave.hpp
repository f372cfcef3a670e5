/// How do the chunks of a pipeline, each lowered alone, become one Step of all ranks?
///
/// A chunk's Step is cut into the forward and the backward of a micro-batch. Weaving copies those pieces in the order
/// of a schedule: what a micro-batch makes and frees is its own, what outlives it (gradients of parameters, optimizer
/// state) is shared. Between chunks stand sends, on the comm stream, and receives, whose buffers are there from when
/// the host posts them.
#pragma once

#include <vector>

#include "tidemark/base/device.hpp"
#include "tidemark/base/units.hpp"
#include "tidemark/plan/pipeline_schedule.hpp"
#include "tidemark/step/chunk.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

struct Transfers {
  Nanos time;                 // of each
  double bandwidth = 0;       // B/s; 0 is not given
  bool free_outputs = false;  // Megatron's deallocate_pipeline_outputs
  bool blocking = false;      // a rank computes nothing while it sends: Megatron waits for each exchange
  int per_node = 0;           // so many neighbouring ranks share a node; 0: all do
  Nanos node_time;            // of each transfer between nodes, in place of the two above
  double node_bandwidth = 0;
  /// Of micro-batches that turn from the last rank to the first one's next chunk, and back, the first of each group
  /// alone waits for its data. So the authors of zero-bubble schedules count interleaved 1F1B.
  bool first_of_group_waits = false;
  friend bool operator==(const Transfers&, const Transfers&) = default;
};

/// How long `bytes` take from one rank to another one.
Nanos transfer_duration(const Transfers& transfers, int from, int to, Bytes bytes);
/// The mean from each rank to the next, as programs that search for schedules measure it.
Nanos mean_transfer(const Transfers& transfers, int ranks, Bytes bytes);

/// `schedule` must be checked. `begins` gets, by step and rank, the first op of each pass of the rank's list and of
/// what ends its step. Throws InputError where micro-batches run backward in another order than forward and the first
/// differs from the others.
Step weave(const std::vector<ChunkStep>& chunks, const PipelineSchedule& schedule, const Transfers& transfers,
           std::vector<OpId>* begins = nullptr);
/// The same for one rank's sake: a pass of any other rank is one op, without memory, that takes as long on the device.
/// What the rank does, and when, is the same.
Step weave_rank(const std::vector<ChunkStep>& chunks, const PipelineSchedule& schedule, const Transfers& transfers,
                int rank, const Device& device, std::vector<OpId>* begins = nullptr);

}  // namespace tidemark
