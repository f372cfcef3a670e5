#include "tidemark/study/replay.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "tidemark/engine/arena.hpp"
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
      : row_{.setting = std::move(name),
             .allocated_peak = {},
             .reserved_peak = {},
             .retries = 0,
             .out_of_memory_row = {}},
        allocator_(settings) {}

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

/// From when to when the blocks of a recording live: by its own times where these tell (a block lives for a while, and
/// what ends at a time comes before what begins then), else by the number of the event.
class Lives {
 public:
  explicit Lives(std::size_t most) : most_(most) {}

  void start(Bytes before) {
    if (before.count > 0) add(before);
  }
  void take(const RecordedEvent& event) {
    time_ = event.time;
    if (number_++ == 0)
      for (Lifetime& before : by_time_) before.lower = time_;
    if (is_full() || event.what == What::category) return;
    if (event.what == What::alloc) {
      last_alloc_ = time_;
      open_[event.block] = by_number_.size();
      add(event.bytes);
      return;
    }
    const auto found = open_.find(event.block);
    by_number_[found->second].upper = number_;
    by_time_[found->second].upper = time_;
    if (last_alloc_ == time_) times_tell_ = false;
    open_.erase(found);
  }
  bool is_full() const { return by_number_.size() > most_; }
  /// What is never freed lives to the end.
  std::vector<Lifetime> lifetimes() && {
    for (std::size_t i = 0; i < by_number_.size(); ++i)
      if (by_number_[i].upper == 0) {
        by_number_[i].upper = number_ + 1;
        by_time_[i].upper = time_ + 1;
      }
    return std::move(times_tell_ ? by_time_ : by_number_);
  }

 private:
  void add(Bytes bytes) {
    by_number_.push_back({number_, 0, bytes});
    by_time_.push_back({time_, 0, bytes});
  }
  std::size_t most_;
  std::int64_t number_ = 0, time_ = 0;
  std::optional<std::int64_t> last_alloc_;  // its time
  bool times_tell_ = true;
  std::vector<Lifetime> by_number_, by_time_;
  std::unordered_map<std::uint64_t, std::size_t> open_;  // by block
};

ReplayRow arena_row(const std::vector<Lifetime>& lives, const std::optional<Bytes>& capacity) {
  std::optional<Arena> arena;
  if (capacity) arena = fit_arena(lives, *capacity);
  if (!arena) arena = make_arena(lives);
  return {.setting = "arena (static addresses)",
          .allocated_peak = most_alive(lives),
          .reserved_peak = arena->height,
          .retries = 0,
          .out_of_memory_row = {},
          .lower_bound = arena->lower_bound,
          .above_capacity = capacity && arena->height > *capacity};
}

constexpr std::size_t most_arena_blocks = 1'000'000;
constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();

const std::vector<std::string> settings_worth_a_look = {"",
                                                        "expandable_segments:True",
                                                        "expandable_segments:True,roundup_power2_divisions:4",
                                                        "max_split_size_mb:64",
                                                        "max_split_size_mb:128",
                                                        "max_split_size_mb:512",
                                                        "roundup_power2_divisions:4",
                                                        "roundup_power2_divisions:8",
                                                        "roundup_power2_divisions:16"};
/// PyTorch collects only under a memory fraction.
const std::vector<std::string> collecting_settings = {"garbage_collection_threshold:0.6,memory_fraction:1",
                                                      "garbage_collection_threshold:0.8,memory_fraction:1"};

/// Allocators that one reading of the recording serves.
class Candidates {
 public:
  Candidates(const std::vector<std::string>& confs, const std::optional<Bytes>& capacity, ReplayTable& table) {
    for (const std::string& conf : confs) {
      CachingSettings settings = parse_alloc_conf(conf);
      settings.capacity = capacity;
      for (const std::string& warning : contradictions(settings)) table.warnings.push_back(conf + ": " + warning);
      all_.emplace_back(conf.empty() ? "default" : conf, settings);
      all_.back().start(table.before);
    }
  }
  void take(const RecordedEvent& event) {
    for (Candidate& candidate : all_) candidate.take(event);
  }
  void add_rows(ReplayTable& table) const {
    for (const Candidate& candidate : all_) table.rows.push_back(candidate.row());
  }

 private:
  std::vector<Candidate> all_;
};

/// The first reading: how high and how low.
void read_levels(const ReplayRequest& request, ReplayTable& out) {
  Levels levels;
  Bytes lowest_since;  // the highest level so far
  read_recording(request.recording, request.device, [&](const RecordedEvent& event) {
    levels.take(event);
    ++out.events;
    if (levels.level() > out.peak || out.events == 1) {
      out.peak = levels.level();
      lowest_since = out.peak;
    }
    lowest_since = std::min(lowest_since, levels.level());
    if (event.reserved) out.recorded_reserved = std::max(out.recorded_reserved.value_or(Bytes{}), *event.reserved);
  });
  out.before = levels.before();
  out.end = levels.level();
  out.floor = lowest_since;
  if (levels.any_category()) out.category_peaks = levels.category_peaks();
}

}  // namespace

ReplayTable replay(const ReplayRequest& request) {
  std::vector<std::string> confs = request.confs;
  if (request.all_settings) confs.insert(confs.begin(), settings_worth_a_look.begin(), settings_worth_a_look.end());
  if (confs.empty()) confs.emplace_back();
  for (const std::string& conf : confs) (void)parse_alloc_conf(conf);  // a mistake is said before anything is read
  ReplayTable out;
  out.recording = request.recording;
  read_levels(request, out);

  Candidates candidates(confs, request.capacity, out);
  Lives lives(request.arena ? no_limit : most_arena_blocks);
  const bool with_arena = request.arena || request.all_settings;
  Levels levels;
  TideScan tides(out.floor, out.peak);
  if (out.before.count > 0) tides.start(out.before);
  if (with_arena) lives.start(out.before);
  read_recording(request.recording, request.device, [&](const RecordedEvent& event) {
    levels.take(event);
    const bool autograd_freed = event.what == What::free && event.category == static_cast<int>(autograd_detail);
    tides.take(levels, autograd_freed);
    candidates.take(event);
    if (with_arena) lives.take(event);
  });
  out.tides = std::move(tides).tides();
  candidates.add_rows(out);
  if (request.all_settings) {
    const Bytes limit = request.capacity.value_or(out.rows.front().reserved_peak);
    Candidates collecting(collecting_settings, limit, out);
    read_recording(request.recording, request.device, [&](const RecordedEvent& event) { collecting.take(event); });
    collecting.add_rows(out);
    if (!request.capacity)
      out.warnings.push_back("garbage collection needs a limit: without --capacity it has what the default reserved, " +
                             to_string(limit) + " B");
  }
  if (with_arena && lives.is_full())
    out.warnings.emplace_back("more than a million blocks: no arena without --arena");
  else if (with_arena)
    out.rows.push_back(arena_row(std::move(lives).lifetimes(), request.capacity));
  return out;
}

std::vector<Lifetime> recorded_lifetimes(const std::string& recording, const std::string& device) {
  Levels levels;
  Lives lives(no_limit);
  bool first = true;
  read_recording(recording, device, [&](const RecordedEvent& event) {
    levels.take(event);
    if (first) lives.start(levels.before());
    first = false;
    lives.take(event);
  });
  return std::move(lives).lifetimes();
}

}  // namespace tidemark
