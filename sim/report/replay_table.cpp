#include "tidemark/report/replay_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tidemark/report/json_writer.hpp"
#include "tidemark/report/terminal.hpp"
#include "tidemark/report/text.hpp"

namespace tidemark {
std::string replay_text(const ReplayTable& table) {
  std::string out =
      printable(table.recording) + "\n" + counted(static_cast<std::size_t>(table.events), "event", "events") + "\n";
  if (table.before.count > 0)
    out += fmt::format("{:>18} B  alive before the recording, taken as one block\n", grouped(table.before.count));
  out += fmt::format("{:>18} B  peak\n{:>18} B  floor, from the first peak on\n", grouped(table.peak.count),
                     grouped(table.floor.count));
  if (table.recorded_reserved)
    out += fmt::format("{:>18} B  reserved at most, as recorded\n", grouped(table.recorded_reserved->count));
  if (!table.tides.empty()) {
    out += fmt::format("\n{} {:>16} {:>18} {:>18}\n", counted(table.tides.size(), "tide", "tides"), "floor B", "peak B",
                       "backward end B");
    constexpr std::size_t most = 40;  // the JSON has all
    for (std::size_t i = 0; i < std::min(most, table.tides.size()); ++i) {
      const Tide& tide = table.tides[i];
      out += fmt::format("  {:<4} {:>18} {:>18} {:>18}\n", i, grouped(tide.floor.count), grouped(tide.peak.count),
                         tide.backward_end ? grouped(tide.backward_end->count) : "");
    }
    if (table.tides.size() > most) out += fmt::format("  and {} more\n", table.tides.size() - most);
  }
  if (table.category_peaks) {
    out += "\nHighest by category\n";
    for (std::size_t i = 0; i < recorded_categories.size(); ++i)
      out += fmt::format("  {:<16} {:>18} B\n", recorded_categories[i], grouped((*table.category_peaks)[i].count));
  }
  out +=
      fmt::format("\n{:<54} {:>16} {:>16} {:>7} {:>7}\n", "setting", "allocated B", "reserved B", "ratio", "retries");
  for (const ReplayRow& row : table.rows) {
    const double ratio = static_cast<double>(row.reserved_peak.count) /
                         static_cast<double>(std::max<std::int64_t>(row.allocated_peak.count, 1));
    out += fmt::format("{:<54} {:>16} {:>16} {:>7.3f} {:>7}", printable(row.setting), grouped(row.allocated_peak.count),
                       grouped(row.reserved_peak.count), ratio, row.retries);
    if (row.out_of_memory_row) out += fmt::format("  out of memory at row {}", *row.out_of_memory_row);
    if (row.lower_bound && *row.lower_bound == row.reserved_peak) out += "  none is lower";
    if (row.lower_bound && *row.lower_bound < row.reserved_peak)
      out += fmt::format("  none is below {}", grouped(row.lower_bound->count));
    if (row.above_capacity) out += "  above the capacity";
    out += "\n";
  }
  for (const std::string& warning : table.warnings) out += "warning: " + printable(warning) + "\n";
  return out;
}

std::string replay_json(const ReplayTable& table) {
  JsonWriter out;
  out.begin_object();
  out.member("recording", table.recording);
  out.member("events", table.events);
  out.member("before_bytes", table.before);
  out.member("peak_bytes", table.peak);
  out.member("floor_bytes", table.floor);
  out.member("end_bytes", table.end);
  out.member("recorded_reserved_peak_bytes", table.recorded_reserved);
  out.begin_array("tides");
  for (const Tide& tide : table.tides) {
    out.begin_object();
    out.member("floor_bytes", tide.floor);
    out.member("peak_bytes", tide.peak);
    out.member("backward_end_bytes", tide.backward_end);
    out.end_object();
  }
  out.end_array();
  if (table.category_peaks) {
    out.begin_object("category_peak_bytes");
    for (std::size_t i = 0; i < recorded_categories.size(); ++i)
      out.member(recorded_categories[i], (*table.category_peaks)[i]);
    out.end_object();
  } else {
    out.null("category_peak_bytes");
  }
  out.begin_array("settings");
  for (const ReplayRow& row : table.rows) {
    out.begin_object();
    out.member("setting", row.setting);
    out.member("allocated_peak_bytes", row.allocated_peak);
    out.member("reserved_peak_bytes", row.reserved_peak);
    out.member("retries", row.retries);
    out.member("out_of_memory_row", row.out_of_memory_row);
    out.member("lower_bound_bytes", row.lower_bound);
    out.member("above_capacity", row.above_capacity);
    out.end_object();
  }
  out.end_array();
  out.begin_array("warnings");
  for (const std::string& warning : table.warnings) out.element(warning);
  out.end_array();
  out.end_object();
  return out.take();
}

}  // namespace tidemark
