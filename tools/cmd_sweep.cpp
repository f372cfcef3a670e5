#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>

#include "commands.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/report/output_file.hpp"
#include "tidemark/study/sweep.hpp"

namespace tidemark::cli {
namespace {

std::atomic<bool> interrupted = false;

void on_interrupt(int) { interrupted.store(true); }

/// Rate and remaining time on one line that is written over; only on a terminal.
class Progress {
 public:
  void show(std::int64_t done, std::int64_t all) {
    if (isatty(STDERR_FILENO) == 0) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
    const double left = rate > 0 ? static_cast<double>(all - done) / rate : 0;
    std::fprintf(stderr, "\r%lld of %lld points, %.0f/s, %.0f s left ", static_cast<long long>(done),
                 static_cast<long long>(all), rate, left);
    if (done == all) std::fputc('\n', stderr);
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

int number_of_jobs(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > 1024)
    throw InputError("--jobs must be a whole number of threads, not '" + text + "'");
  return value;
}

}  // namespace

int sweep_command(const SweepCommandOptions& options) {
  const int jobs = number_of_jobs(options.jobs);
  const Study study = read_study(options.study, options.vary);
  OutputFile file(options.out);
  Progress progress;
  std::signal(SIGINT, on_interrupt);
  const SweepOutcome outcome =
      sweep(study,
            {.jobs = jobs,
             .stop = &interrupted,
             .progress = [&](std::int64_t done, std::int64_t all) { progress.show(done, all); }},
            [&](std::string_view text) { file.write(text); });
  std::signal(SIGINT, SIG_DFL);
  file.commit();
  if (outcome.done < outcome.points)
    std::fprintf(stderr, "stopped: %lld of %lld points are written\n", static_cast<long long>(outcome.done),
                 static_cast<long long>(outcome.points));
  return outcome.failed == 0 && outcome.done == outcome.points ? exit_yes : exit_no;
}

}  // namespace tidemark::cli
