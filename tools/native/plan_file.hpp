/// What did the simulator decide to keep and to run again?
///
/// Reads a plan as `tidemark run --plan-out` writes it, one step a line, and nothing else.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace tidemark::native {

/// The user's mistake: what was wrong, and where.
struct Mistake : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct PlanStep {
  std::string op;                // forward, recompute, loss, backward, drop
  std::string layer;             // a block's number, or another layer's name
  std::vector<std::string> ops;  // by name within the layer; empty: all of them
  std::string keep = "all";      // none, input, all
};

using Plan = std::vector<PlanStep>;

/// Throws Mistake, naming file and line.
Plan read_plan(const std::string& path);
Plan parse_plan(const std::string& text, const std::string& name);

/// Layers a segment, 0 when nothing is run again. Throws Mistake where the plan is not one of equal segments from the
/// first layer on, each run again right before its backward.
std::int64_t segment_length(const Plan& plan, std::int64_t layers);

}  // namespace tidemark::native
