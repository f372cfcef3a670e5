/// What does a chain cost, as the published chain planners count it?
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tidemark/program/layer_graph.hpp"

namespace tidemark {

/// Stages 0..L-1 and the loss, stage L (Beaumont et al. 2019). Sizes in bytes or slots, times in any unit.
struct ChainCosts {
  std::vector<std::int64_t> forward_time;        // u_f, L entries
  std::vector<std::int64_t> backward_time;       // u_b, L + 1: the loss last
  std::vector<std::int64_t> boundary;            // a, L + 1: x_i and its gradient y_i
  std::vector<std::int64_t> saved;               // abar, L + 1: what stage i - 1 saves, a copy of x_i included; [0] = 0
  std::vector<std::int64_t> forward_workspace;   // o_f, L
  std::vector<std::int64_t> backward_workspace;  // o_b, L + 1

  std::size_t stages() const { return forward_time.size(); }
};

/// The chain under rotor's convention: times in ns where any layer gives one, else FLOPs. Throws InputError when the
/// graph is not a chain, or its FLOPs pass 2^62 in total.
ChainCosts chain_costs(const LayerGraph& graph);
std::int64_t total_time(const ChainCosts& costs);  // of each forward and backward once

/// Sizes rounded up to `slots` equal parts of `limit`, and the limit in those parts: what is feasible in slots is
/// feasible in bytes. Unchanged where the limit has no more than `slots` units.
struct SlottedChain {
  ChainCosts costs;
  std::int64_t limit = 0;
  std::int64_t slot = 1;  // units a slot
};
SlottedChain in_slots(const ChainCosts& costs, std::int64_t limit, std::int64_t slots);

/// A schedule and what it takes.
struct ChainSchedule {
  std::int64_t time = 0;
  std::string sequence;  // "Fc0 Fn1 Fe2 L B2 ..."
  friend bool operator==(const ChainSchedule&, const ChainSchedule&) = default;
};

}  // namespace tidemark
