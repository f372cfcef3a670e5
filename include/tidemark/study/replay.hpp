/// What would a recorded run have reserved under other allocator settings?
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tidemark/report/replay_table.hpp"

namespace tidemark {

struct ReplayRequest {
  std::string recording;           // path
  std::vector<std::string> confs;  // PYTORCH_CUDA_ALLOC_CONF, each; none is PyTorch's defaults
  bool all_settings = false;       // those worth a look, side by side
  std::optional<Bytes> capacity;   // of the device; without one nothing fails
};

/// Reads the recording twice, event by event, so that it need not fit in memory: once for its levels, once through all
/// allocators together.
ReplayTable replay(const ReplayRequest& request);

}  // namespace tidemark
