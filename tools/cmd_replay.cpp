#include <optional>

#include "commands.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/report/lifetimes_csv.hpp"
#include "tidemark/report/output_file.hpp"
#include "tidemark/study/replay.hpp"

namespace tidemark::cli {

int replay_command(const ReplayOptions& options) {
  ReplayRequest request{.recording = options.recording,
                        .device = options.recorded_device,
                        .confs = options.confs,
                        .all_settings = options.all_settings,
                        .capacity = std::nullopt,
                        .arena = options.arena};
  if (!options.capacity.empty()) {
    request.capacity = parse_bytes(options.capacity);
    if (!request.capacity)
      throw InputError("--capacity must be a size with a unit, such as 80GiB, not '" + options.capacity + "'");
  }
  const ReplayTable table = replay(request);
  std::optional<OutputFile> file;
  if (!options.lifetimes.empty()) {
    file.emplace(options.lifetimes);
    write_lifetimes_csv(recorded_lifetimes(options.recording, options.recorded_device), nullptr,
                        [&](std::string_view text) { file->write(text); });
  }
  if (options.lifetimes != "-") print(options.json ? replay_json(table) : replay_text(table));
  if (file) file->commit();
  for (const ReplayRow& row : table.rows)
    if (row.out_of_memory_row || row.above_capacity) return exit_no;
  return exit_yes;
}

}  // namespace tidemark::cli
