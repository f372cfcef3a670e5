/// Which schedule of a whole step follows from a wish which values to keep, under a memory limit?
///
/// Rows run for the first time in their own order. Before a row runs, what it reads and is gone runs again, as far back
/// as it must; where memory does not suffice, values go: those nobody will read, then those that nobody wishes to keep,
/// then the others, and of each kind the one whose next reader is furthest away. What stays to the end never goes.
#pragma once

#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "tidemark/study/dag.hpp"

namespace tidemark {

/// By row: keep its value when the row ran for the first time; when it ran again; which of the values it reads are
/// made again first when several are gone, and whether those that are there may go meanwhile.
enum class Rebuild : std::uint8_t { first_to_last, last_to_first, letting_go };
struct KeepWish {
  std::vector<bool> first, again;
  std::vector<Rebuild> rebuild;
  friend bool operator==(const KeepWish&, const KeepWish&) = default;
};

class DagDecoder {
 public:
  DagDecoder(const Dag& dag, std::int64_t limit);

  struct Outcome {
    bool fits = false;
    std::int64_t cost = 0;   // of all runs
    std::int64_t runs = 0;   // their number
    std::int32_t stuck = 0;  // where nothing fits: the row that could not run
  };
  /// Gives up when the runs cost `most` or more.
  Outcome decode(const KeepWish& wish, std::int64_t most);
  /// The runs of the last decode, in order.
  const std::vector<std::int32_t>& runs() const { return runs_; }

 private:
  using Entry = std::tuple<int, std::int32_t, std::int32_t>;  // wish to keep, minus next reader, row
  bool materialize(std::int32_t row);
  bool make_room(std::int64_t bytes);
  void lock(std::int32_t row);
  void unlock(std::int32_t row);
  Entry entry(std::int32_t row) const;
  std::int32_t next_reader(std::int32_t row) const;

  const Dag& dag_;
  std::int64_t limit_;
  const KeepWish* wish_ = nullptr;
  std::int64_t most_ = 0;
  std::int64_t used_ = 0, cost_ = 0;
  std::vector<std::int32_t> locks_, times_;
  std::vector<bool> live_;
  std::vector<std::size_t> reader_;  // by row: readers that have run for the first time
  std::set<Entry> evictable_;
  std::vector<std::int32_t> runs_;
};

}  // namespace tidemark
