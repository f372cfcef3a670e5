#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>

#include "calibrate_measure.hpp"
#include "commands.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/input/measured_ops.hpp"
#include "tidemark/report/output_file.hpp"
#include "tidemark/study/calibrate.hpp"

namespace tidemark::cli {
namespace {

bool exists(const std::string& path) {
  struct stat info {};
  return path != "-" && ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

void refuse_overwriting(const std::string& path, bool force) {
  if (!force && exists(path)) throw InputError({path}, "this file exists; --force writes over it");
}

void write_file(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  OutputFile file(path);
  file.write(text);
  file.commit();
}

std::vector<MeasuredOp> measured_here(bool quick) {
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  constexpr int quick_rounds = 4;
  MeasureOptions options;
  if (quick) options.rounds = quick_rounds;
  if (terminal)
    options.progress = [](int done, int all) { std::fprintf(stderr, "\rmeasuring: round %d of %d ", done, all); };
  std::vector<MeasuredOp> ops = measure_ops(options);
  if (terminal) std::fprintf(stderr, "\n");
  return ops;
}

/// How far the median of an op's runs stands above what was taken: the machine's unrest.
std::string spread(const std::vector<MeasuredOp>& ops) {
  std::vector<double> parts;
  for (const MeasuredOp& op : ops)
    if (op.median) parts.push_back(static_cast<double>(op.median->count) / static_cast<double>(op.time.count) - 1);
  if (parts.empty()) return "";
  std::ranges::sort(parts);
  const auto at = [&](double part) {
    return percent(parts[static_cast<std::size_t>(part * static_cast<double>(parts.size() - 1))]);
  };
  return fmt::format(
      "\nspread: an op's median run is {} above its low one (median over ops; one op in ten {} or more)\n", at(0.5),
      at(0.9));
}

std::string ratios(const DeviceProfile& profile) {
  std::string out;
  for (const BackwardRatio& r : backward_ratios(profile))
    out += fmt::format("{:<20} {:>3} shapes {:>8.2f} {:>8.2f} {:>8.2f}\n", r.kind, r.shapes, r.least, r.median, r.most);
  return out.empty()
             ? out
             : fmt::format("\n{:<31} {:>8} {:>8} {:>8}\n", "backward over forward", "least", "median", "most") + out;
}

}  // namespace

int calibrate_command(const CalibrateOptions& options) {
  if (!options.where.empty() && options.from.empty()) throw InputError("--where chooses rows of a table; give --from");
  refuse_overwriting(options.out, options.force);
  refuse_overwriting(options.ops, options.force);
  MeasuredTable table;
  if (options.from.empty())
    table.ops = measured_here(options.quick);
  else
    table = read_measured_ops(options.from, options.where);
  const std::string source = options.from.empty() ? "native kernels on OpenBLAS, one thread"
                                                  : std::filesystem::path(options.from).filename().string();
  const std::string& device = table.ops.front().device;
  const DeviceProfile profile = fit_profile(table.ops, device.empty() ? "calibrated" : device, source);
  std::string text = error_table(profile) + ratios(profile) + spread(table.ops);
  if (!table.left_out.empty())
    text +=
        fmt::format("\nleft out (rows), as the columns do not give their work: {}\n", fmt::join(table.left_out, ", "));
  write_file(options.ops, write_measured_ops(table.ops));
  write_file(options.out, write_profile(profile));
  if (options.out != "-" && options.ops != "-") print(text);
  return exit_yes;
}

}  // namespace tidemark::cli
