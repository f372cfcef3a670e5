/// What does a training step cost as one graph of computations, each of which may run more than once?
///
/// The model of Checkmate (Jain et al. 2020): a row makes one value, needs the values it reads to be there, and holds
/// what is live together with what it makes. A value goes after its last reader before it is made again.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tidemark/plan/plan.hpp"
#include "tidemark/program/layer_graph.hpp"

namespace tidemark {

struct Dag {
  std::vector<std::int64_t> cost;                  // ns, or FLOPs where no row has a time
  std::vector<std::int64_t> bytes;                 // of the row's value
  std::vector<std::vector<std::int32_t>> inputs;   // earlier rows, ascending
  std::vector<std::vector<std::int32_t>> readers;  // later rows, ascending
  std::vector<bool> stays;                         // convention dtr: constants and results, there to the end

  std::int32_t rows() const { return static_cast<std::int32_t>(cost.size()); }
  std::int64_t total() const;  // every row once
  std::int64_t unit() const;   // the largest that all bytes are multiples of; 1 without any
  friend bool operator==(const Dag&, const Dag&) = default;
};

/// Throws InputError where costs pass 2^62 in total, or the rows are not the whole step.
Dag make_dag(const LayerGraph& graph, bool ends_stay);

struct DagMove {
  std::int32_t row = 0;
  bool is_drop = false;  // the value goes; else the row runs
  friend bool operator==(const DagMove&, const DagMove&) = default;
};

struct DagSchedule {
  std::vector<DagMove> moves;
  std::int64_t cost = 0;
  std::int64_t peak = 0;
  friend bool operator==(const DagSchedule&, const DagSchedule&) = default;
};

/// Runs in this order, each value gone after its last reader. Rows must read what is there and make what is not:
/// nothing otherwise.
std::optional<DagSchedule> measure(const Dag& dag, std::vector<DagMove> moves);
std::optional<DagSchedule> measure(const Dag& dag, const std::vector<std::int32_t>& runs);

/// As a Plan that `lower` runs under the same convention.
Plan to_plan(const DagSchedule& schedule, const Dag& dag);

/// The most a row needs by itself: its value and what it reads. No schedule's peak is lower.
std::int64_t widest_row(const Dag& dag);

}  // namespace tidemark
