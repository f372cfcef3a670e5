#include <optional>
#include <vector>

#include "commands.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/input/timeline_file.hpp"
#include "tidemark/report/terminal.hpp"
#include "tidemark/study/pipeline.hpp"

namespace tidemark::cli {
namespace {

int valid(std::size_t rows) {
  print("valid: " + std::to_string(rows) + (rows == 1 ? " row\n" : " rows\n"));
  return exit_yes;
}

int faulty(const SourceLoc& where, const Violation& violation) {
  print(printable(to_string(where) + ": " + std::string(to_string(violation.fault)) + ": " + violation.message) + "\n");
  return exit_no;
}

/// Rows alone are judged one at a time, so that the file need not fit in memory.
int check_rows(const std::string& path) {
  TimelineReader reader(path);
  RowReferee referee;
  std::size_t rows = 0;
  for (; const std::optional<TimelineRow> row = reader.next(); ++rows)
    if (const std::optional<Violation> violation = referee.next(*row)) return faulty(reader.where(), *violation);
  return valid(rows);
}

/// Against the step that the scenario stands for: besides, reads, leaks and missing ops.
int check_step(const std::string& path, const std::string& scenario) {
  const Step step = run(read_scenario(scenario)).step;
  TimelineReader reader(path);
  std::vector<TimelineRow> rows;
  std::vector<SourceLoc> where = {reader.where()};
  while (std::optional<TimelineRow> row = reader.next()) {
    rows.push_back(*std::move(row));
    where.push_back(reader.where());
  }
  const std::optional<Violation> violation = referee(step, rows);
  if (!violation) return valid(rows.size());
  // What is wrong with no row in particular, such as a leak, shows at the end.
  return faulty(violation->event < rows.size() ? where[violation->event + 1] : where.back(), *violation);
}

}  // namespace

int check_command(const CheckOptions& options) {
  return options.scenario.empty() ? check_rows(options.timeline) : check_step(options.timeline, options.scenario);
}

}  // namespace tidemark::cli
