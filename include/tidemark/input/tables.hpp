/// What does a layer table (CSV) hold, row by row?
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/input/quantities.hpp"
#include "tidemark/program/layer_graph.hpp"

namespace tidemark {

/// One row; what its table has no column for is as in a fresh LayerRow.
struct LayerRow {
  int line = 0;
  std::string id = {};
  std::string inputs = {};  // ids, apart by ';' or spaces
  Bytes boundary = {};      // chains: the layer's input
  Decimal attention_fraction = {};
  LayerCost cost = {};
};

struct LayerTable {
  std::string file;
  std::vector<std::string> columns;  // those it has
  std::vector<LayerRow> rows;        // at least one
  bool has(std::string_view column) const;
  SourceLoc where(const LayerRow& row) const { return {file, row.line, 0}; }
};

/// Columns are id, inputs, name, type, and the keys of a chain with their unit: layer_activation_bytes,
/// forward_flops, forward_time_ns, ... Numbers are whole and have no unit. Throws InputError, naming line and column,
/// for a missing, unknown or repeated column, a cell that is no number, a blank line, a row too long or too short, no
/// rows.
LayerTable read_layer_table(const std::string& path, const std::vector<std::string>& required,
                            const std::vector<std::string>& optional);

}  // namespace tidemark
