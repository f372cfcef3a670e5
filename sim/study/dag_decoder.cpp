#include "tidemark/study/dag_decoder.hpp"

#include <algorithm>
#include <limits>

namespace tidemark {
namespace {

std::size_t at(std::int32_t row) { return static_cast<std::size_t>(row); }
constexpr std::int32_t nobody = std::numeric_limits<std::int32_t>::max();

}  // namespace

DagDecoder::DagDecoder(const Dag& dag, std::int64_t limit) : dag_(dag), limit_(limit) {}

DagDecoder::Outcome DagDecoder::decode(const KeepWish& wish, std::int64_t most) {
  const std::size_t rows = dag_.cost.size();
  wish_ = &wish;
  most_ = most;
  used_ = cost_ = 0;
  locks_.assign(rows, 0);
  times_.assign(rows, 0);
  live_.assign(rows, false);
  reader_.assign(rows, 0);
  evictable_.clear();
  runs_.clear();
  Outcome out;
  for (std::int32_t row = 0; row < dag_.rows(); ++row) {  // for the first time
    if (!materialize(row)) {
      out.stuck = row;
      return out;
    }
    // What this row reads has one reader less to come.
    for (const std::int32_t input : dag_.inputs[at(row)]) {
      const bool in_set = live_[at(input)] && locks_[at(input)] == 0 && !dag_.stays[at(input)];
      if (in_set) evictable_.erase(entry(input));
      ++reader_[at(input)];
      if (in_set) evictable_.insert(entry(input));
    }
  }
  out.fits = true;
  out.cost = cost_;
  out.runs = static_cast<std::int64_t>(runs_.size());
  return out;
}

std::int32_t DagDecoder::next_reader(std::int32_t row) const {
  const auto& readers = dag_.readers[at(row)];
  return reader_[at(row)] < readers.size() ? readers[reader_[at(row)]] : nobody;
}

DagDecoder::Entry DagDecoder::entry(std::int32_t row) const {
  const std::int32_t next = next_reader(row);
  const bool keep = times_[at(row)] > 1 ? wish_->again[at(row)] : wish_->first[at(row)];
  return {next == nobody ? 0 : keep ? 2 : 1, -next, row};
}

void DagDecoder::lock(std::int32_t row) {
  if (locks_[at(row)]++ == 0 && live_[at(row)]) evictable_.erase(entry(row));
}

void DagDecoder::unlock(std::int32_t row) {
  if (--locks_[at(row)] == 0 && !dag_.stays[at(row)]) evictable_.insert(entry(row));
}

bool DagDecoder::make_room(std::int64_t bytes) {
  while (used_ + bytes > limit_) {
    if (evictable_.empty()) return false;
    const std::int32_t row = std::get<2>(*evictable_.begin());
    evictable_.erase(evictable_.begin());
    live_[at(row)] = false;
    used_ -= dag_.bytes[at(row)];
  }
  return true;
}

bool DagDecoder::materialize(std::int32_t row) {
  const auto& inputs = dag_.inputs[at(row)];
  const Rebuild rebuild = wish_->rebuild[at(row)];
  if (rebuild == Rebuild::letting_go)
    for (const std::int32_t input : inputs)
      if (!live_[at(input)] && !materialize(input)) return false;
  std::vector<std::int32_t> missing;
  for (const std::int32_t input : inputs) live_[at(input)] ? lock(input) : missing.push_back(input);
  if (rebuild == Rebuild::last_to_first) std::ranges::reverse(missing);
  for (const std::int32_t input : missing) {
    if (!live_[at(input)] && !materialize(input)) return false;
    lock(input);
  }
  cost_ += dag_.cost[at(row)];
  if (cost_ >= most_ || !make_room(dag_.bytes[at(row)])) return false;
  used_ += dag_.bytes[at(row)];
  live_[at(row)] = true;
  ++times_[at(row)];
  runs_.push_back(row);
  for (const std::int32_t input : inputs) unlock(input);
  if (!dag_.stays[at(row)]) evictable_.insert(entry(row));
  return true;
}

}  // namespace tidemark
