#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>

#include "commands.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/report/output_file.hpp"
#include "tidemark/report/sweep_page.hpp"
#include "tidemark/study/sweep.hpp"

namespace tidemark::cli {
namespace {

std::atomic<bool> interrupted = false;

void on_interrupt(int) { interrupted.store(true); }

/// Rate and remaining time on one line that is written over; only on a terminal.
class Progress {
 public:
  /// What an earlier sweep did says nothing of the rate.
  void show(std::int64_t done, std::int64_t all, std::int64_t before) {
    if (!on_terminal_) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    if (done < all && seconds < shown_ + 0.1) return;
    shown_ = seconds;
    const double rate = seconds > 0 ? static_cast<double>(done - before) / seconds : 0;
    const double left = rate > 0 ? static_cast<double>(all - done) / rate : 0;
    std::fprintf(stderr, "\r%lld of %lld points, %.0f/s, %.0f s left ", static_cast<long long>(done),
                 static_cast<long long>(all), rate, left);
    if (done == all) std::fputc('\n', stderr);
  }

 private:
  using Clock = std::chrono::steady_clock;
  const bool on_terminal_ = isatty(STDERR_FILENO) != 0;
  Clock::time_point start_ = Clock::now();
  double shown_ = -1;  // seconds after the start
};

std::int64_t whole_number(const std::string& option, const std::string& text, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw InputError(option + " must be a whole number from " + std::to_string(least) + " to " + std::to_string(most) +
                     ", not '" + text + "'");
  return value;
}

void write_page(const Study& study, std::int64_t rows, const std::string& csv, OutputFile& file) {
  if (rows > most_sweep_page_rows)
    throw InputError("--report shows at most " + std::to_string(most_sweep_page_rows) + " points, not " +
                     std::to_string(rows) + "; the CSV is written");
  SweepPage page{study.file, {}, csv};
  for (const Axis& axis : study.axes) page.axes.push_back(axis.key);
  write_sweep_page(page, [&](std::string_view text) { file.write(text); });
  file.commit();
}

}  // namespace

int sweep_command(const SweepCommandOptions& options) {
  SweepOptions settings;
  settings.jobs = static_cast<int>(whole_number("--jobs", options.jobs, 0, 1024));
  settings.verify = whole_number("--verify", options.verify, 0, max_points);
  if (!options.limit.empty()) settings.limit = whole_number("--limit", options.limit, 1, max_points);
  if (options.resume && options.out == "-") throw InputError("--resume needs --out, the CSV to go on from");
  if (options.resume) settings.resume = options.out;
  settings.stop = &interrupted;
  Progress progress;
  settings.progress = [&](std::int64_t done, std::int64_t all, std::int64_t before) {
    progress.show(done, all, before);
  };
  const Study study = read_study(options.study, options.vary);
  if (!options.report.empty() && options.report == options.out)
    throw InputError("--out and --report both name '" + options.out + "'");
  OutputFile file(options.out);
  std::optional<OutputFile> page;
  if (!options.report.empty()) page.emplace(options.report);
  std::string csv;  // for the page
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
  const SweepOutcome outcome = sweep(study, settings, [&](std::string_view text) {
    file.write(text);
    if (page) csv += text;
  });
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  file.commit();
  if (page) write_page(study, outcome.rows, csv, *page);
  if (!outcome.whole)
    std::fprintf(stderr, "stopped: %lld rows are written%s\n", static_cast<long long>(outcome.rows),
                 options.out == "-" ? "" : "; --resume goes on from them");
  return outcome.failed == 0 && outcome.whole ? exit_yes : exit_no;
}

}  // namespace tidemark::cli
