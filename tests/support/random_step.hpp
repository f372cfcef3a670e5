/// How does a property test get any Step there is: valid, on any streams and ranks, and small again when it fails?
#pragma once

#include <rapidcheck.h>

#include <ostream>
#include <string>
#include <vector>

#include "tidemark/step/step.hpp"

namespace tidemark::test {

/// What one op does; ids are taken modulo what there is, so any list of moves makes a valid Step.
struct Move {
  int stream = 0, rank = 0;
  int time = 0;             // ns; 0 is common
  std::vector<int> allocs;  // bytes
  std::vector<unsigned> reads;
  std::vector<unsigned> frees;  // counted from the youngest
  std::vector<unsigned> meets;  // kernels of any rank that it waits for
  bool kernel = true;
};

inline std::ostream& operator<<(std::ostream& os, const Move& m) {
  os << "{stream " << m.stream << " rank " << m.rank << " time " << m.time << " allocs";
  for (const int a : m.allocs) os << ' ' << a;
  os << " reads";
  for (const unsigned r : m.reads) os << ' ' << r;
  os << " frees";
  for (const unsigned f : m.frees) os << ' ' << f;
  os << " meets";
  for (const unsigned k : m.meets) os << ' ' << k;
  return os << (m.kernel ? "}" : " no kernel}");
}

/// Moves on `streams` streams of `ranks` ranks.
inline rc::Gen<std::vector<Move>> moves(int streams, int ranks) {
  using rc::gen::container;
  using rc::gen::inRange;
  const auto few = container<std::vector<unsigned>>(inRange(0U, 64U));
  return container<std::vector<Move>>(rc::gen::build<Move>(
      rc::gen::set(&Move::stream, inRange(0, streams)), rc::gen::set(&Move::rank, inRange(0, ranks)),
      rc::gen::set(&Move::time, rc::gen::map(inRange(0, 30), [](int t) { return t > 15 ? 0 : t; })),
      rc::gen::set(&Move::allocs, rc::gen::resize(4, container<std::vector<int>>(inRange(1, 100)))),
      rc::gen::set(&Move::reads, rc::gen::resize(4, few)), rc::gen::set(&Move::frees, rc::gen::resize(4, few)),
      rc::gen::set(&Move::meets, rc::gen::resize(2, few)),
      rc::gen::set(&Move::kernel, rc::gen::map(inRange(0, 8), [](int k) { return k > 0; }))));
}

/// Turns moves into a Step the referee must accept: an op waits for whoever made what it reads, and a free waits for
/// whoever still reads. Everything left is freed at the end, but what outlives the step.
class StepMaker {
 public:
  explicit StepMaker(int ranks) : live_(static_cast<std::size_t>(ranks)) {
    step_.ranks = ranks;
    for (int r = 0; r < ranks; ++r)
      for (int i = 0; i < 2; ++i) {
        step_.initial.push_back(new_storage(10 + i, r));
        step_.storages.back().outlives_step = true;
      }
  }

  void add(const Move& move) {
    begin(move.stream, move.rank, move.time);
    std::vector<StorageId>& live = live_[static_cast<std::size_t>(move.rank)];
    for (const unsigned k : move.meets)
      if (step_.events > 0) emit(Do::wait, k % step_.events);
    for (const int bytes : move.allocs) {
      live.push_back(new_storage(bytes, move.rank));
      emit(Do::alloc, live.back());
    }
    if (move.kernel) kernel(move, live);
    for (const unsigned f : move.frees)
      if (!live.empty()) free(live, live.size() - 1 - f % live.size());
  }

  Step finish() {
    for (std::size_t r = 0; r < live_.size(); ++r) {
      begin(0, static_cast<int>(r), 0);
      while (!live_[r].empty()) free(live_[r], live_[r].size() - 1);
    }
    return step_;
  }

 private:
  void begin(int stream, int rank, int time) {
    StepOp op;
    op.name = step_.names.id("op" + std::to_string(step_.ops.size()));
    op.stream = static_cast<Stream>(stream);
    op.rank = static_cast<std::int16_t>(rank);
    op.has_time = true;
    op.time = Nanos{time};
    op.read_begin = op.read_end = static_cast<std::uint32_t>(step_.reads.size());
    step_.ops.push_back(op);
  }

  void kernel(const Move& move, const std::vector<StorageId>& live) {
    const auto id = static_cast<OpId>(step_.ops.size() - 1);
    std::vector<StorageId> touched(live.end() - static_cast<std::ptrdiff_t>(move.allocs.size()), live.end());
    for (const unsigned r : move.reads)
      if (!live.empty()) touched.push_back(live[r % live.size()]);
    touched.push_back(step_.initial[static_cast<std::size_t>(2 * move.rank)]);
    for (const StorageId s : touched) wait_for(users_[s].empty() ? no_id : users_[s].front());
    step_.reads.insert(step_.reads.end(), touched.begin(), touched.end());
    step_.ops.back().read_end = static_cast<std::uint32_t>(step_.reads.size());
    emit(move.stream == 0 ? Do::compute : Do::copy, id);
    emit(Do::record, step_.events);
    events_.resize(step_.ops.size(), no_id);
    events_[id] = step_.events++;
    for (const StorageId s : touched) users_[s].push_back(id);
  }

  void free(std::vector<StorageId>& live, std::size_t i) {
    const StorageId s = live[i];
    for (const OpId user : users_[s]) wait_for(user);
    emit(Do::free, s);
    live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
  }

  void wait_for(OpId op) {
    if (op != no_id && step_.ops[op].stream != step_.ops.back().stream) emit(Do::wait, events_[op]);
  }

  void emit(Do what, std::uint32_t index) {
    step_.instructions.push_back({what, step_.ops.back().stream, static_cast<OpId>(step_.ops.size() - 1), index});
  }

  StorageId new_storage(int bytes, int rank) {
    const auto id = static_cast<StorageId>(step_.storages.size());
    step_.storages.push_back({.bytes = Bytes{bytes},
                              .name = step_.names.id("s" + std::to_string(id)),
                              .rank = static_cast<std::int16_t>(rank)});
    users_.emplace_back();
    return id;
  }

  Step step_;
  std::vector<std::vector<StorageId>> live_;  // by rank, but what outlives the step
  std::vector<std::vector<OpId>> users_;      // by storage: kernels that touch it, its maker first
  std::vector<std::uint32_t> events_;         // by op: recorded after its kernel
};

inline Step make_step(const std::vector<Move>& moves, int ranks = 1) {
  StepMaker maker(ranks);
  for (const Move& move : moves) maker.add(move);
  return maker.finish();
}

}  // namespace tidemark::test
