#include "tidemark/study/sweep.hpp"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/study/sweep_composed.hpp"

namespace tidemark {
namespace {

void check_size(const Study& study, const SweepOptions& options) {
  const std::optional<std::int64_t> places = grid_size(study);
  if (places && (*places <= max_points || options.limit)) return;
  const std::string count = places ? std::to_string(*places) : "more than 2^63";
  throw InputError({study.file}, "the study has " + count + " points, above the " + std::to_string(max_points) +
                                     " that are run; --limit N runs the first N" + (places ? "" : " of fewer"));
}

/// Runs points a batch at a time, so that a few rows wait in memory and not the study's.
class Sweep {
 public:
  Sweep(const Study& study, const SweepOptions& options)
      : study_(study),
        options_(options),
        places_(*grid_size(study)),
        limit_(options.limit.value_or(places_)),
        composed_(study) {
    if (options.jobs > 0) jobs_ = options.jobs;
  }

  SweepOutcome run(const TextSink& sink) {
    const tbb::global_control threads(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(jobs_));
    if (!options_.resume.empty()) place_ = take_over(options_.resume, study_, rows_);
    const std::int64_t before = place_;
    while (has_more() && !stopped()) batch(before);
    verify_drawn();
    const bool whole = !has_more();
    if (whole && rows_.count() == 0)
      throw InputError({study_.file}, "no point satisfies all conditions of 'where'; expected one at least");
    sink(sweep_header(study_));
    rows_.write(whole, sink);
    return {rows_.count(), rows_.failed(), whole, verified_};
  }

 private:
  bool has_more() const { return place_ < places_ && rows_.count() < limit_; }
  bool stopped() const { return options_.stop != nullptr && options_.stop->load(); }

  /// The next points that are wanted; looks at a bounded number of places.
  std::vector<std::int64_t> next_points() {
    constexpr std::int64_t most = 512;
    const std::int64_t wanted = std::min(most * jobs_, limit_ - rows_.count());
    const std::int64_t end = std::min(places_, place_ + 64 * most * jobs_);
    std::vector<std::int64_t> points;
    for (; place_ < end && static_cast<std::int64_t>(points.size()) < wanted; ++place_)
      if (is_wanted(study_, place_)) points.push_back(place_);
    return points;
  }

  /// A stop leaves out the points that have not begun, and those after them.
  void batch(std::int64_t before) {
    const std::int64_t begin = place_;
    const std::vector<std::int64_t> points = next_points();
    const std::int64_t places = place_ - begin, count = static_cast<std::int64_t>(points.size());
    std::vector<std::optional<SweepRow>> rows(points.size());
    std::vector<char> composed(points.size());
    std::atomic<std::int64_t> done = 0;
    std::mutex reporting;
    tbb::parallel_for(std::size_t{0}, points.size(), [&](std::size_t i) {
      if (stopped()) return;
      rows[i] = row(points[i], composed[i]);
      const std::int64_t now = ++done;
      if (!options_.progress || !reporting.try_lock()) return;
      const std::lock_guard<std::mutex> lock(reporting, std::adopt_lock);
      options_.progress(begin + places * now / count, places_, before);
    });
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!rows[i]) {
        place_ = points[i];
        return;
      }
      rows_.add(*rows[i]);
      if (composed[i] != 0) draw(points[i], *rows[i]);
    }
  }

  SweepRow row(std::int64_t point, char& composed) {
    if (options_.compose)
      if (auto from_pieces = composed_.row(point)) {
        composed = 1;
        return std::move(*from_pieces);
      }
    return simulated_row(study_, point);
  }

  /// Keeps `verify` of all composed rows so far, each as likely as any other (Vitter's algorithm R).
  void draw(std::int64_t point, const SweepRow& row) {
    const auto wanted = static_cast<std::uint64_t>(options_.verify);
    const std::uint64_t seen = drawn_from_++;
    if (seen < wanted) {
      drawn_.emplace_back(point, row);
    } else if (const std::uint64_t place = random_() % (seen + 1); place < wanted) {
      drawn_[place] = {point, row};
    }
  }

  void verify_drawn() {
    tbb::parallel_for(std::size_t{0}, drawn_.size(), [&](std::size_t i) {
      check_composed(study_, drawn_[i].first, drawn_[i].second);
      ++verified_;
    });
  }

  const Study& study_;
  const SweepOptions& options_;
  const std::int64_t places_;
  const std::int64_t limit_;
  int jobs_ = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  SweepRows rows_;
  ComposedPoints composed_;
  std::vector<std::pair<std::int64_t, SweepRow>> drawn_;  // points and their composed rows, to be simulated too
  std::uint64_t drawn_from_ = 0;
  std::atomic<std::int64_t> verified_ = 0;
  std::mt19937_64 random_;  // the same rows each time
  std::int64_t place_ = 0;  // of the grid: the next to look at
};

}  // namespace

SweepOutcome sweep(const Study& study, const SweepOptions& options, const TextSink& sink) {
  check_size(study, options);
  return Sweep(study, options).run(sink);
}

}  // namespace tidemark
