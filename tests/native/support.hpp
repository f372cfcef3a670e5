/// What the native suites share: the simulated side of a case, and both sides' rows without their times.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "plan_file.hpp"
#include "record.hpp"
#include "tidemark/input/plan_file.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/report/csv.hpp"
#include "tidemark/study/pipeline.hpp"

namespace tidemark::test {

/// A CSV's lines, each without the cells of these columns.
inline std::vector<std::string> lines_without(const std::string& csv, std::size_t first, std::size_t count) {
  std::vector<std::string> lines;
  std::istringstream text(csv);
  for (std::string line; std::getline(text, line);) {
    std::string kept;
    std::size_t column = 0;
    for (const char c : line) {
      if (c == ',') ++column;
      if (column < first || column >= first + count) kept += c;
    }
    lines.push_back(kept);
  }
  return lines;
}

/// Every row of a timeline CSV and of an ops CSV, times left out.
struct Rows {
  std::vector<std::string> events, ops;
};

inline Rows rows_of(const Run& run) {
  std::string events, ops;
  write_timeline_csv(run.step, run.timeline, [&](std::string_view text) { events += text; });
  write_ops_csv(run.step, run.timeline, [&](std::string_view text) { ops += text; });
  return {lines_without(events, 1, 1), lines_without(ops, 1, 2)};
}

inline Rows rows_of(const native::Record& record) {
  std::ostringstream events, ops;
  record.write_timeline(events);
  record.write_ops(ops);
  return {lines_without(events.str(), 1, 1), lines_without(ops.str(), 1, 2)};
}

/// "" when equal, else the first line that differs, of both sides.
inline std::string first_difference(const std::vector<std::string>& simulated, const std::vector<std::string>& native) {
  for (std::size_t i = 0; i < simulated.size() || i < native.size(); ++i) {
    const std::string a = i < simulated.size() ? simulated[i] : "(no line)";
    const std::string b = i < native.size() ? native[i] : "(no line)";
    if (a != b) return "line " + std::to_string(i + 1) + "\n  simulated " + a + "\n  native    " + b;
  }
  return "";
}

/// What the native program is told of the simulator's decisions.
inline native::Plan plan_for_native(const Run& run) {
  return native::parse_plan(write_plan(run.plan, run.outline), "plan");
}

}  // namespace tidemark::test
