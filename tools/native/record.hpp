/// What happened in the measured step: every op, every allocation and free, with its instant?
///
/// Kept in memory that was reserved before; written as CSV afterwards, with the columns of `tidemark run --timeline`
/// and `--ops` (docs/output.md).
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace tidemark::native {

enum class Phase : std::uint8_t { initial, forward, loss, recompute, backward, optimizer };
inline constexpr std::array<std::string_view, 6> phase_names = {"initial",   "forward",  "loss",
                                                                "recompute", "backward", "optimizer"};
enum class Category : std::uint8_t { parameter, gradient, optimizer_state, input, activation, temporary };
inline constexpr std::array<std::string_view, 6> category_names = {"parameter", "gradient",   "optimizer_state",
                                                                   "input",     "activation", "temporary"};

/// "layers.3" "attention.scores" ".grad": put together when it is written, so that naming allocates nothing. Views of
/// texts that live as long as the program's model.
struct Name {
  std::string_view scope, part, suffix = {};
  Name with(std::string_view new_suffix) const { return {scope, part, new_suffix}; }
  std::string text() const;
};

using StorageNumber = std::uint32_t;
using OpNumber = std::uint32_t;
inline constexpr OpNumber no_op = 0xffffffff;

struct StorageRecord {
  Name name;
  std::int64_t bytes = 0;
  Category category = Category::temporary;
};

struct OpRecord {
  Name name;
  std::string_view layer;
  Phase phase = Phase::forward;
  int step = 0;
  std::int64_t start_ns = 0, end_ns = 0;
  std::int64_t flops = 0;  // matrix products, 2 m n k
  std::int64_t moved_bytes = 0;
  std::int64_t live_before = 0;
};

struct EventRecord {
  std::int64_t time_ns = 0;
  std::int64_t live_bytes = 0;  // after it, as the arena counts
  StorageNumber storage = 0;
  OpNumber op = no_op;
  bool is_alloc = false;
};

class Record {
 public:
  /// What was recorded is forgotten, the memory for it kept. Until the first op, allocations are of phase initial.
  void clear();
  /// Time 0 is now.
  void start_clock() { start_ = std::chrono::steady_clock::now(); }
  /// Ops and events that follow belong to this step.
  void begin_step(int number) { step_ = number; }
  void begin_op(Name name, std::string_view layer, Phase phase, std::int64_t live_bytes);
  /// The open op has done something: its end is now.
  void touch_op();
  void count_flops(std::int64_t flops) { ops_.back().flops += flops; }
  void count_moved(std::int64_t bytes) { ops_.back().moved_bytes += bytes; }

  StorageNumber allocated(Name name, std::int64_t bytes, Category category, std::int64_t live_bytes);
  void freed(StorageNumber storage, std::int64_t live_bytes);
  StorageRecord& storage(StorageNumber number) { return storages_[number]; }

  const std::vector<StorageRecord>& storages() const { return storages_; }
  const std::vector<OpRecord>& ops() const { return ops_; }
  const std::vector<EventRecord>& events() const { return events_; }
  std::int64_t flops() const;
  /// By step: from its first op's start to its last op's end.
  std::vector<std::int64_t> step_times_ns() const;

  void write_timeline(std::ostream& out) const;
  void write_ops(std::ostream& out) const;

 private:
  void add_event(StorageNumber storage, bool is_alloc, std::int64_t live_bytes);
  std::int64_t now_ns() const;

  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  int step_ = 0;
  std::vector<StorageRecord> storages_;
  std::vector<OpRecord> ops_;
  std::vector<EventRecord> events_;
};

}  // namespace tidemark::native
