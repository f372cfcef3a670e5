/// Which op times does a table hold that was measured elsewhere?
#pragma once

#include <string>
#include <vector>

#include "tidemark/input/calibration_file.hpp"

namespace tidemark {

struct MeasuredTable {
  std::vector<MeasuredOp> ops;        // at least one
  std::vector<std::string> left_out;  // kernels whose work the columns do not give, with their numbers of rows
};

/// Reads a CSV of op times; docs/calibration.md lists the three sets of columns: our own, llm.c's, Liger-Kernel's.
/// `where` keeps rows: "device=NAME", "provider=NAME", "dtype=NAME", "kind=NAME". Throws InputError, naming the line,
/// for missing columns, a cell that is not what its column holds, a row too long or too short, a file cut in mid-line;
/// and for what is left when it comes from several devices, providers or data types.
MeasuredTable read_measured_ops(const std::string& path, const std::vector<std::string>& where);

/// Our own columns.
std::string write_measured_ops(const std::vector<MeasuredOp>& ops);

}  // namespace tidemark
