#include "commands.hpp"
#include "tidemark/input/timeline_file.hpp"

namespace tidemark::cli {
namespace {

/// Rows alone are judged one at a time, so that the file need not fit in memory.
int check_rows(const std::string& path) {
  TimelineReader reader(path);
  RowReferee referee;
  std::size_t rows = 0;
  for (; const std::optional<TimelineRow> row = reader.next(); ++rows)
    if (const std::optional<Violation> violation = referee.next(*row)) {
      print(to_string(reader.where()) + ": " + std::string(to_string(violation->fault)) + ": " + violation->message +
            "\n");
      return exit_no;
    }
  print("valid: " + std::to_string(rows) + " rows\n");
  return exit_yes;
}

}  // namespace

int check_command(const CheckOptions& options) { return check_rows(options.timeline); }

}  // namespace tidemark::cli
