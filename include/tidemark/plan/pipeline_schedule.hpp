/// In which order does each rank of a pipeline run the forwards and backwards of its chunks and micro-batches?
///
/// A model is cut into chunks, one after the other; a rank holds one or more of them. A schedule is one list of passes
/// a rank. It says nothing of time: a pass runs when its rank has done the pass before it in the list and what it reads
/// has arrived. F is a forward. B is a backward of activations, W of weights, BW both at once.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/base/units.hpp"

namespace tidemark {

enum class PassKind : std::uint8_t { forward, backward, backward_input, backward_weight };

/// One line of a rank's list. "3B7" is the backward of micro-batch 7 through chunk 3.
struct Pass {
  PassKind kind = PassKind::forward;
  std::int32_t chunk = 0;        // of the model, from its first layers on
  std::int32_t micro_batch = 0;  // of the step
  bool backs_activations() const { return kind == PassKind::backward || kind == PassKind::backward_input; }
  bool backs_weights() const { return kind == PassKind::backward || kind == PassKind::backward_weight; }
  friend bool operator==(const Pass&, const Pass&) = default;
};
/// As custom schedules write it: F, I (backward of the input), W (of the weights), B (both).
std::string to_string(const Pass& pass);

struct PipelineSchedule {
  std::vector<std::vector<Pass>> ranks;
  std::vector<std::int32_t> rank_of_chunk;
  int micro_batches = 0;
  int chunks() const { return static_cast<int>(rank_of_chunk.size()); }
  /// Are backwards of activations and of weights passes of their own?
  bool splits_backward() const;
  friend bool operator==(const PipelineSchedule&, const PipelineSchedule&) = default;
};

/// What zero-bubble schedules that are searched for need to know of each rank.
struct PassCosts {
  Nanos forward, backward_input, backward_weight;
  Bytes saved, freed_by_input;  // by one micro-batch's forward; the rest goes with the backward of the weights
  friend bool operator==(const PassCosts&, const PassCosts&) = default;
};

inline constexpr std::array<std::string_view, 8> schedule_names = {"gpipe", "1f1b",  "interleaved", "zb_h1",
                                                                   "zb_h2", "zb_1p", "zb_2p",       "zb_v"};

/// Does the named schedule need `PassCosts`? (zb_1p, zb_2p)
bool is_searched(std::string_view schedule);

/// The named schedule of `ranks` x `chunks_per_rank` chunks. `costs` holds one entry a rank, or nothing for those that
/// need none; `transfer` is the time from one rank to the next. Throws InputError where the numbers do not fit the
/// schedule, naming its rule.
PipelineSchedule make_schedule(std::string_view name, int ranks, int chunks_per_rank, int micro_batches,
                               const std::vector<PassCosts>& costs = {}, Nanos transfer = {});

/// GPipe (Huang et al. 2019): all forwards, then all backwards, in order.
PipelineSchedule gpipe(int ranks, int micro_batches);
/// PipeDream-Flush (Narayanan et al. 2021): rank r runs ranks - 1 - r forwards ahead.
PipelineSchedule one_forward_one_backward(int ranks, int micro_batches);
/// Megatron-LM, schedules.py: groups of `ranks` micro-batches go through one chunk after the other.
PipelineSchedule interleaved(int ranks, int chunks_per_rank, int micro_batches);
/// Qi et al. 2024, section 2: H1 holds as many micro-batches as 1F1B, H2 about twice as many.
PipelineSchedule zero_bubble_h1(int ranks, int micro_batches);
PipelineSchedule zero_bubble_h2(int ranks, int micro_batches);
/// Qi et al. 2024, section 3.1: the best of eight greedy schedules within `limit` bytes of saved activations a rank.
PipelineSchedule zero_bubble_searched(int micro_batches, const std::vector<PassCosts>& costs, Nanos transfer,
                                      Bytes limit);
/// ZB-V (Qi et al. 2024, "Controllable Memory"): two chunks a rank, the second in reverse order of ranks.
PipelineSchedule zero_bubble_v(int ranks, int micro_batches);

/// Throws InputError that names the pass at fault: one that is missing, stands twice, belongs to another rank or
/// micro-batch, or comes before what its own rank must do first; and two passes that wait for each other.
void check_schedule(const PipelineSchedule& schedule);

/// How many (chunk, micro-batch) pairs each rank holds at most: forward done, backward (of the input) not.
std::vector<int> most_in_flight(const PipelineSchedule& schedule);

}  // namespace tidemark
