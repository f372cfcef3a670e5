/// What does one point of a study look like as a CSV row?
///
///   index, a column an axis, the scalars of the summary, method, pareto, error
///
/// `pareto` is known only when all rows are (sweep_rows.hpp), so a row is made of what stands before and after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/input/study_file.hpp"
#include "tidemark/report/summary.hpp"

namespace tidemark {

struct SweepRow {
  std::string head;   // up to the comma before `pareto`
  std::string error;  // "" where it succeeded
  Bytes peak;
  Int128 cost = 0;  // nanoseconds of the last step, or its FLOPs where they are 0
  friend bool operator==(const SweepRow&, const SweepRow&) = default;
};

/// The line of column names.
std::string sweep_header(const Study& study);

/// How a row's figures were found.
enum class SweepMethod : std::uint8_t {
  simulated,  // the whole step, instruction by instruction
  composed,   // from stretches that equal blocks share; the allocator's figures are absent
};

/// Index and axis values, each with a comma behind.
std::string row_start(const Study& study, std::int64_t index);
SweepRow make_row(std::string start, const Summary& summary, SweepMethod method);
SweepRow failed_row(std::string start, const std::string& error);

/// A point by the whole pipeline. The user's mistake is a row with its error.
SweepRow simulated_row(const Study& study, std::int64_t index);

/// Which field of a row's head the column is.
std::size_t place_of_column(const Study& study, std::string_view name);
/// What the two heads differ in first, `method` apart: "peak_bytes 5, expected 7"; "" when they are equal.
std::string difference(const Study& study, const std::string& head, const std::string& expected);
/// Throws InternalError where a point's composed row is not the simulated one.
void check_composed(const Study& study, std::int64_t index, const SweepRow& row);

/// The fields of one CSV line, quotes taken off.
std::vector<std::string> csv_fields(std::string_view line);

}  // namespace tidemark
