#include "commands.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/study/replay.hpp"

namespace tidemark::cli {

int replay_command(const ReplayOptions& options) {
  ReplayRequest request{options.recording, options.confs, options.all_settings, std::nullopt};
  if (!options.capacity.empty()) {
    request.capacity = parse_bytes(options.capacity);
    if (!request.capacity)
      throw InputError("--capacity must be a size with a unit, such as 80GiB, not '" + options.capacity + "'");
  }
  const ReplayTable table = replay(request);
  print(options.json ? replay_json(table) : replay_text(table));
  for (const ReplayRow& row : table.rows)
    if (row.out_of_memory_row) return exit_no;
  return exit_yes;
}

}  // namespace tidemark::cli
