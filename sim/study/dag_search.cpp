#include "tidemark/study/dag_search.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <tuple>
#include <utility>

#include "tidemark/study/dag_decoder.hpp"

namespace tidemark {
namespace {

class Search {
 public:
  Search(const Dag& dag, std::int64_t limit, const DagSearchOptions& options)
      : dag_(dag), options_(options), decoder_(dag, limit) {
    std::map<std::tuple<std::int64_t, std::int64_t, std::size_t, std::size_t>, std::vector<std::int32_t>> alike;
    for (std::int32_t row = 0; row < dag.rows(); ++row) {
      const auto i = static_cast<std::size_t>(row);
      if (dag.readers[i].empty()) continue;
      rows_.push_back(row);
      alike[{dag.cost[i], dag.bytes[i], dag.inputs[i].size(), dag.readers[i].size()}].push_back(row);
    }
    for (auto& [key, rows] : alike)
      if (rows.size() > 1) classes_.push_back(std::move(rows));
  }

  DagSearchAnswer run() {
    const std::size_t rows = dag_.cost.size();
    for (const Rebuild rebuild : {Rebuild::first_to_last, Rebuild::last_to_first, Rebuild::letting_go})
      for (const bool first : {false, true})
        for (const bool again : {false, true})
          consider(
              {std::vector<bool>(rows, first), std::vector<bool>(rows, again), std::vector<Rebuild>(rows, rebuild)});
    for (std::size_t step = 2; step < rows && !done(); step *= 2) consider(every(step, rows_));
    for (const auto& alike : classes_)
      for (std::size_t step = 1; step < alike.size() && step <= 16 && !done(); ++step) consider(every(step, alike));
    if (!rows_.empty()) {
      if (!classes_.empty())
        for (bool better = true; better && !done();) better = sweep_classes();
      climb();
    }
    DagSearchAnswer out;
    out.decodings = decodings_;
    if (best_cost_ == never) return out;
    out.schedule = measure(dag_, best_runs_);
    return out;
  }

 private:
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

  bool done() {
    if (best_cost_ <= options_.bound || decodings_ >= options_.decodings) return true;
    return options_.stop && decodings_ % 16 == 0 && options_.stop();
  }

  /// Every so many of these rows, and nothing else.
  KeepWish every(std::size_t step, const std::vector<std::int32_t>& rows) const {
    KeepWish wish = at_;
    wish.first.assign(wish.first.size(), false);
    for (std::size_t k = 0; k < rows.size(); k += step) wish.first[static_cast<std::size_t>(rows[k])] = true;
    return wish;
  }

  /// Takes the wish over when its schedule is no worse.
  bool consider(const KeepWish& wish) {
    ++decodings_;
    const DagDecoder::Outcome outcome = decoder_.decode(wish, best_cost_ == never ? never : best_cost_ + 1);
    if (!outcome.fits) {
      if (best_cost_ == never && outcome.stuck >= stuck_) {
        stuck_ = outcome.stuck;
        at_ = wish;
      }
      return false;
    }
    const bool better = std::tuple(outcome.cost, outcome.runs) < std::tuple(best_cost_, best_count_);
    if (better) {
      best_cost_ = outcome.cost;
      best_count_ = outcome.runs;
      best_runs_ = decoder_.runs();
    }
    if (std::tuple(outcome.cost, outcome.runs) <= std::tuple(best_cost_, best_count_)) at_ = wish;
    return better;
  }

  /// Of each class, kept from some row on, or up to some row, or every so many; made again, kept or not.
  bool sweep_classes() {
    bool better = false;
    const auto try_class = [&](const std::vector<std::int32_t>& rows, bool again, const auto& keeps) {
      if (done()) return;
      KeepWish wish = at_;
      std::vector<bool>& kept = again ? wish.again : wish.first;
      for (std::size_t k = 0; k < rows.size(); ++k) kept[static_cast<std::size_t>(rows[k])] = keeps(k);
      better = consider(wish) || better;
    };
    for (const auto& rows : classes_) {
      for (const bool keep : {true, false}) try_class(rows, true, [&](std::size_t) { return keep; });
      for (std::size_t part = 0; part <= 10; ++part) {
        const std::size_t cut = rows.size() * part / 10;
        try_class(rows, false, [&](std::size_t k) { return k >= cut; });
        try_class(rows, false, [&](std::size_t k) { return k < cut; });
      }
      for (std::size_t step = 2; step <= 4 && step < rows.size(); ++step)
        try_class(rows, false, [&](std::size_t k) { return k % step == 0; });
    }
    return better;
  }

  void climb() {
    const auto pick = [&](std::size_t count) { return static_cast<std::size_t>(random_() % count); };
    while (!done()) {
      KeepWish wish = at_;
      const auto flip = [&](std::size_t i, bool again) {
        std::vector<bool>& kept = again ? wish.again : wish.first;
        kept[i] = !kept[i];
      };
      const auto any_row = [&] { return static_cast<std::size_t>(rows_[pick(rows_.size())]); };
      const std::size_t kind = pick(9);
      if (kind < 3) {
        flip(any_row(), false);
      } else if (kind == 3) {
        flip(any_row(), true);
      } else if (kind < 6) {  // keep the neighbour instead
        const std::size_t k = pick(rows_.size()), other = std::min(rows_.size() - 1, k + 1 + pick(3));
        const auto a = static_cast<std::size_t>(rows_[k]), b = static_cast<std::size_t>(rows_[other]);
        const bool again = kind == 5;
        std::vector<bool>& kept = again ? wish.again : wish.first;
        const bool of_a = kept[a];
        kept[a] = kept[b];
        kept[b] = of_a;
      } else if (kind == 8) {
        wish.rebuild[pick(wish.rebuild.size())] = static_cast<Rebuild>(pick(3));
      } else if (kind == 6 || classes_.empty()) {
        for (int n = 0; n < 3; ++n) flip(any_row(), n == 2);
      } else {  // a stretch of a class
        const auto& rows = classes_[pick(classes_.size())];
        const std::size_t first = pick(rows.size()), end = std::min(rows.size(), first + 1 + pick(rows.size() / 4 + 2));
        const bool keep = pick(2) == 0;
        std::vector<bool>& kept = pick(3) == 0 ? wish.again : wish.first;
        for (std::size_t k = first; k < end; ++k) kept[static_cast<std::size_t>(rows[k])] = keep;
      }
      consider(wish);
    }
  }

  const Dag& dag_;
  const DagSearchOptions& options_;
  DagDecoder decoder_;
  std::vector<std::int32_t> rows_;                  // those whose values somebody reads
  std::vector<std::vector<std::int32_t>> classes_;  // alike, in order
  std::mt19937_64 random_{20260729};
  KeepWish at_;
  std::int64_t decodings_ = 0, best_cost_ = never, best_count_ = never;
  std::vector<std::int32_t> best_runs_;
  std::int32_t stuck_ = 0;  // before anything fits: the furthest row that a wish came to
};

}  // namespace

DagSearchAnswer search_dag(const Dag& dag, std::int64_t limit, const DagSearchOptions& options) {
  return Search(dag, limit, options).run();
}

}  // namespace tidemark
