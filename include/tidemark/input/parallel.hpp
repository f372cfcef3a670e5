/// How are the devices that train the model set: stages, schedule, transfers, and which one is looked at?
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/plan/pipeline_schedule.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/step/weave.hpp"

namespace tidemark {

class YamlMap;

struct PipelineSettings {
  int stages = 1;
  int chunks_per_stage = 1;
  std::vector<std::int32_t> layers_per_chunk;  // by chunk; their sum is the model's layers
  std::string schedule;                        // one of `schedule_names`; "" where `custom` holds
  std::optional<PipelineSchedule> custom;
  int micro_batches = 1;
  Transfers transfers;
  std::vector<Policy> policies;  // by stage; empty: the scenario's for all
  std::optional<int> stage;      // that results show; all without one
  bool steady = false;           // what only repeats of the schedule is not simulated

  int chunks() const { return stages * chunks_per_stage; }
  /// Does a stage run the backwards of activations and of weights apart?
  bool splits_backward() const { return custom ? custom->splits_backward() : schedule.starts_with("zb"); }
};

/// What `parallel` needs to know of the scenario around it.
struct PipelinedModel {
  std::int64_t layers = 0;     // that chunks are cut from
  int micro_batches = 1;       // `batch.accumulate`
  bool frees_outputs = false;  // Megatron-LM's loop does
  bool has_ends = false;       // an embedding and a head, which may be chunks of their own
};

/// `parallel`; nothing when it asks for one device. Throws InputError, with the place,
/// where numbers do not fit each other or the schedule's rule.
std::optional<PipelineSettings> read_parallel(const YamlMap& map, const PipelinedModel& model);

}  // namespace tidemark
