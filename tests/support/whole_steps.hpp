/// Which whole steps stand in tests/oracle/data/planners/dags.csv?
#pragma once

#include <cstddef>
#include <string>

#include "support/csv.hpp"
#include "tidemark/program/layer_graph.hpp"

namespace tidemark::test {

/// Cost and bytes of each row, and the rows it reads.
inline LayerGraph whole_step(const Row& row) {
  LayerGraph graph;
  graph.is_whole_step = true;
  const auto costs = split(row.at("cost"), ' '), bytes = split(row.at("bytes"), ' ');
  const auto reads = split(row.at("reads"), ';');
  for (std::size_t i = 0; i < costs.size(); ++i) {
    LayerCost layer;
    layer.name = std::to_string(i);
    layer.forward_time = Nanos{std::stoll(costs[i])};
    layer.output = Bytes{std::stoll(bytes[i])};
    if (i < reads.size())
      for (const std::string& read : split(reads[i], ' '))
        if (!read.empty()) layer.inputs.push_back(std::stoi(read));
    graph.layers.push_back(layer);
  }
  return graph;
}

}  // namespace tidemark::test
