#include "tidemark/report/replay_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tidemark/report/terminal.hpp"
#include "tidemark/report/text.hpp"

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::optional<Bytes>& bytes) { return bytes ? Json(bytes->count) : Json(nullptr); }

}  // namespace

std::string replay_text(const ReplayTable& table) {
  std::string out = fmt::format("{}\n{} events\n", printable(table.recording), grouped(table.events));
  if (table.before.count > 0)
    out += fmt::format("{:>18} B  alive before the recording, taken as one block\n", grouped(table.before.count));
  out += fmt::format("{:>18} B  peak\n{:>18} B  floor, from the first peak on\n", grouped(table.peak.count),
                     grouped(table.floor.count));
  if (table.recorded_reserved)
    out += fmt::format("{:>18} B  reserved at most, as recorded\n", grouped(table.recorded_reserved->count));
  if (!table.tides.empty()) {
    out += fmt::format("\n{} tides {:>16} {:>18} {:>18}\n", table.tides.size(), "floor B", "peak B", "backward end B");
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
  Json out;
  out["recording"] = table.recording;
  out["events"] = table.events;
  out["before_bytes"] = table.before.count;
  out["peak_bytes"] = table.peak.count;
  out["floor_bytes"] = table.floor.count;
  out["end_bytes"] = table.end.count;
  out["recorded_reserved_peak_bytes"] = or_null(table.recorded_reserved);
  out["tides"] = Json::array();
  for (const Tide& tide : table.tides)
    out["tides"].push_back({{"floor_bytes", tide.floor.count},
                            {"peak_bytes", tide.peak.count},
                            {"backward_end_bytes", or_null(tide.backward_end)}});
  out["category_peak_bytes"] = nullptr;
  if (table.category_peaks) {
    out["category_peak_bytes"] = Json::object();
    for (std::size_t i = 0; i < recorded_categories.size(); ++i)
      out["category_peak_bytes"][recorded_categories[i]] = (*table.category_peaks)[i].count;
  }
  out["settings"] = Json::array();
  for (const ReplayRow& row : table.rows)
    out["settings"].push_back({{"setting", row.setting},
                               {"allocated_peak_bytes", row.allocated_peak.count},
                               {"reserved_peak_bytes", row.reserved_peak.count},
                               {"retries", row.retries},
                               {"out_of_memory_row", row.out_of_memory_row ? Json(*row.out_of_memory_row) : Json()},
                               {"lower_bound_bytes", or_null(row.lower_bound)},
                               {"above_capacity", row.above_capacity}});
  out["warnings"] = table.warnings;
  return out.dump(2) + "\n";
}

}  // namespace tidemark
