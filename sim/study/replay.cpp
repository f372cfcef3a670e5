#include "tidemark/study/replay.hpp"

#include <algorithm>
#include <unordered_map>

#include "tidemark/engine/caching_allocator.hpp"
#include "tidemark/input/caching_settings.hpp"
#include "tidemark/input/recording.hpp"

namespace tidemark {
namespace {

constexpr std::size_t autograd_detail = 6;  // of recorded_categories

using What = RecordedEvent::What;

Bytes change_of(const RecordedEvent& event) {
  if (event.what == What::alloc) return event.bytes;
  return event.what == What::free ? Bytes{} - event.bytes : Bytes{};
}

/// The level of the recording, and its categories'.
class Levels {
 public:
  void take(const RecordedEvent& event) {
    if (first_ && event.total) level_ = before_ = *event.total - change_of(event);
    first_ = false;
    level_ += change_of(event);
    if (!event.category) return;
    any_category_ = true;
    Bytes& now = categories_[static_cast<std::size_t>(*event.category)];
    if (event.what == What::category) {
      categories_[static_cast<std::size_t>(*event.category_before)] -= event.bytes;
      now += event.bytes;
    } else {
      now += change_of(event);
    }
    Bytes& peak = category_peaks_[static_cast<std::size_t>(*event.category)];
    peak = std::max(peak, now);
  }
  Bytes before() const { return before_; }
  Bytes level() const { return level_; }
  Bytes category(std::size_t i) const { return categories_[i]; }
  bool any_category() const { return any_category_; }
  const auto& category_peaks() const { return category_peaks_; }

 private:
  bool first_ = true;
  bool any_category_ = false;
  Bytes before_, level_;
  std::array<Bytes, recorded_categories.size()> categories_{}, category_peaks_{};
};

/// Cuts the level into tides.
class TideScan {
 public:
  TideScan(Bytes floor, Bytes peak)
      : low_(floor + Bytes{(peak - floor).count / 4}), high_(peak - Bytes{(peak - floor).count / 4}) {}

  void take(const Levels& levels, bool autograd_freed) {
    const Bytes level = levels.level();
    if (!is_high_) {
      floor_ = floor_ ? std::min(*floor_, level) : level;
      if (autograd_freed && !tides_.empty() && levels.category(autograd_detail) == Bytes{})
        tides_.back().backward_end = level;
      if (level < high_) return;
      is_high_ = true;
      tides_.push_back({*floor_, level, std::nullopt});
    }
    tides_.back().peak = std::max(tides_.back().peak, level);
    if (level > low_) return;
    is_high_ = false;
    floor_ = level;
  }
  void start(Bytes level) { floor_ = level; }
  std::vector<Tide> tides() && { return std::move(tides_); }

 private:
  Bytes low_, high_;
  bool is_high_ = false;
  std::optional<Bytes> floor_;
  std::vector<Tide> tides_;
};

/// One allocator and the blocks it holds.
class Candidate {
 public:
  Candidate(std::string name, const CachingSettings& settings)
      : row_{std::move(name), {}, {}, 0, {}}, allocator_(settings) {}

  void start(Bytes before) {
    if (before.count > 0 && !allocator_.allocate(before)) row_.out_of_memory_row = 0;
  }
  void take(const RecordedEvent& event) {
    if (row_.out_of_memory_row) return;
    if (event.what == What::alloc) {
      if (const auto block = allocator_.allocate(event.bytes)) {
        blocks_[event.block] = *block;
      } else {
        row_.out_of_memory_row = event.row;
      }
    } else if (event.what == What::free) {
      const auto found = blocks_.find(event.block);
      allocator_.free(found->second);
      blocks_.erase(found);
    }
  }
  ReplayRow row() const {
    ReplayRow out = row_;
    out.allocated_peak = allocator_.counters().allocated_bytes.all.peak;
    out.reserved_peak = allocator_.counters().reserved_bytes.all.peak;
    out.retries = allocator_.counters().retries;
    return out;
  }

 private:
  ReplayRow row_;
  CachingAllocator allocator_;
  std::unordered_map<std::uint64_t, BlockId> blocks_;
};

const std::vector<std::string> settings_worth_a_look = {"",
                                                        "expandable_segments:True",
                                                        "max_split_size_mb:64",
                                                        "max_split_size_mb:128",
                                                        "max_split_size_mb:512",
                                                        "roundup_power2_divisions:4",
                                                        "roundup_power2_divisions:8",
                                                        "roundup_power2_divisions:16"};

}  // namespace

ReplayTable replay(const ReplayRequest& request) {
  std::vector<std::string> confs = request.confs;
  if (request.all_settings) confs.insert(confs.begin(), settings_worth_a_look.begin(), settings_worth_a_look.end());
  if (confs.empty()) confs.emplace_back();
  ReplayTable out;
  out.recording = request.recording;
  std::vector<Candidate> candidates;
  for (const std::string& conf : confs) {
    CachingSettings settings = parse_alloc_conf(conf);
    settings.capacity = request.capacity;
    for (const std::string& warning : contradictions(settings)) out.warnings.push_back(conf + ": " + warning);
    candidates.emplace_back(conf.empty() ? "default" : conf, settings);
  }

  Levels first;
  Bytes lowest_since;  // the highest level so far
  read_recording(request.recording, [&](const RecordedEvent& event) {
    first.take(event);
    ++out.events;
    if (first.level() > out.peak || out.events == 1) {
      out.peak = first.level();
      lowest_since = out.peak;
    }
    lowest_since = std::min(lowest_since, first.level());
    if (event.reserved) out.recorded_reserved = std::max(out.recorded_reserved.value_or(Bytes{}), *event.reserved);
  });
  out.before = first.before();
  out.end = first.level();
  out.floor = lowest_since;
  if (first.any_category()) out.category_peaks = first.category_peaks();

  Levels levels;
  TideScan tides(out.floor, out.peak);
  if (out.before.count > 0) tides.start(out.before);
  for (Candidate& candidate : candidates) candidate.start(out.before);
  read_recording(request.recording, [&](const RecordedEvent& event) {
    levels.take(event);
    const bool autograd_freed = event.what == What::free && event.category == static_cast<int>(autograd_detail);
    tides.take(levels, autograd_freed);
    for (Candidate& candidate : candidates) candidate.take(event);
  });
  out.tides = std::move(tides).tides();
  for (const Candidate& candidate : candidates) out.rows.push_back(candidate.row());
  return out;
}

}  // namespace tidemark
