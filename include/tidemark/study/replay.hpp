/// What would a recorded run have reserved under other allocator settings?
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tidemark/engine/lifetime.hpp"
#include "tidemark/report/replay_table.hpp"

namespace tidemark {

struct ReplayRequest {
  std::string recording;           // path
  std::string device;              // "cpu", "cuda:N"; "": the only one
  std::vector<std::string> confs;  // PYTORCH_CUDA_ALLOC_CONF, each; none is PyTorch's defaults
  bool all_settings = false;       // those worth a look and static addresses, side by side
  std::optional<Bytes> capacity;   // of the device; without one nothing fails
  bool arena = false;              // static addresses too
};

/// Reads the recording twice, event by event, so that it need not fit in memory: once for its levels, once through all
/// allocators together. `all_settings` reads it once more, for garbage collection: that needs a limit, which without a
/// capacity is what the default reserved. Static addresses need every lifetime at once: 64 bytes a block; with
/// `all_settings` alone a recording of more than a million blocks goes without them, and a warning says so.
ReplayTable replay(const ReplayRequest& request);

/// From when to when each block of a recording lives, by its times where they tell which of two events comes first,
/// else by the number of the event; what was alive before it is one block from the start.
std::vector<Lifetime> recorded_lifetimes(const std::string& recording, const std::string& device = "");

}  // namespace tidemark
