#include <fmt/core.h>

#include <vector>

#include "tidemark/engine/referee.hpp"

namespace tidemark {

std::optional<Violation> RowReferee::next(const TimelineRow& row) {
  Rank& rank = ranks_[row.rank];
  std::optional<Violation> found;
  if (row.time < time_)
    found = fault(Fault::time_goes_back,
                  fmt::format("'{}' at {} ns stands after a row at {} ns", row.tensor, row.time.count, time_.count));
  time_ = row.time;
  if (!found && row.bytes <= Bytes{})
    found = fault(Fault::wrong_size, fmt::format("'{}' has {} bytes", row.tensor, row.bytes.count));
  if (!found) found = row.is_alloc ? alloc(row, rank) : free(row, rank);
  if (!found) found = total(row, rank);
  ++rows_;
  return found;
}

std::optional<Violation> RowReferee::alloc(const TimelineRow& row, Rank& rank) {
  if (const auto held = rank.live.find(row.id); held != rank.live.end())
    return fault(Fault::double_alloc, fmt::format("'{}' is allocated under id {}, which '{}' still holds", row.tensor,
                                                  row.id, held->second.tensor));
  rank.live[row.id] = {row.tensor, row.bytes};
  rank.freed.erase(row.id);
  return std::nullopt;
}

std::optional<Violation> RowReferee::free(const TimelineRow& row, Rank& rank) {
  const auto held = rank.live.find(row.id);
  if (held == rank.live.end())
    return rank.freed.count(row.id) > 0
               ? fault(Fault::double_free, fmt::format("'{}' is freed again (id {})", row.tensor, row.id))
               : fault(Fault::free_of_nothing,
                       fmt::format("'{}' is freed, but nothing was allocated under id {}", row.tensor, row.id));
  if (held->second.bytes != row.bytes || held->second.tensor != row.tensor)
    return fault(Fault::wrong_size,
                 fmt::format("{} bytes of '{}' are freed under id {}, which holds {} bytes of '{}'", row.bytes.count,
                             row.tensor, row.id, held->second.bytes.count, held->second.tensor));
  rank.live.erase(held);
  rank.freed.insert(row.id);
  return std::nullopt;
}

std::optional<Violation> RowReferee::total(const TimelineRow& row, Rank& rank) const {
  if (!row.is_alloc) {
    rank.total -= row.bytes;
  } else if (const std::optional<std::int64_t> sum = checked_sum(rank.total.count, row.bytes.count)) {
    rank.total.count = *sum;
  } else {
    return fault(Fault::wrong_total, "live bytes pass 2^63");
  }
  if (rank.total == row.live) return std::nullopt;
  return fault(Fault::wrong_total,
               fmt::format("{} bytes are said to be live after {} '{}', but {} are", row.live.count,
                           row.is_alloc ? "the alloc of" : "the free of", row.tensor, rank.total.count));
}

std::optional<Violation> referee(std::span<const TimelineRow> rows) {
  RowReferee referee;
  for (const TimelineRow& row : rows)
    if (std::optional<Violation> found = referee.next(row)) return found;
  return std::nullopt;
}

namespace {

struct Allocation {
  StorageId storage = no_id;
  OpId op = no_id;
};

/// Each rank's allocs in host order, and which op frees each storage.
struct Expected {
  std::vector<std::vector<Allocation>> allocs;  // by rank
  std::vector<OpId> free_op;                    // by storage
};

Expected expected(const Step& step) {
  Expected all{std::vector<std::vector<Allocation>>(static_cast<std::size_t>(step.ranks)),
               std::vector<OpId>(step.storages.size(), no_id)};
  const auto born = [&](StorageId storage, OpId op) {
    all.allocs[static_cast<std::size_t>(step.storages[storage].rank)].push_back({storage, op});
  };
  for (const StorageId storage : step.initial) born(storage, no_id);
  for (const Instruction& at : step.instructions) {
    if (at.what == Do::alloc) born(at.index, at.op);
    if (at.what == Do::free) all.free_op[at.index] = at.op;
  }
  return all;
}

}  // namespace

std::optional<Violation> referee(const Step& step, std::span<const TimelineRow> rows) {
  if (std::optional<Violation> found = referee(rows)) return found;
  const Expected all = expected(step);
  std::vector<std::size_t> next(all.allocs.size());
  std::vector<std::unordered_map<std::uint64_t, StorageId>> storages(all.allocs.size());
  std::vector<MemoryEvent> events;
  const auto op_name = [&](OpId op) { return op == no_id ? std::string() : step.names[step.ops[op].name]; };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const TimelineRow& row = rows[i];
    const auto rank = static_cast<std::size_t>(row.rank);
    if (row.rank < 0 || rank >= next.size())
      return Violation{Fault::unknown, i, no_id, fmt::format("the step has no rank {}", row.rank)};
    if (row.is_alloc) {
      if (next[rank] == all.allocs[rank].size())
        return Violation{Fault::unknown, i, no_id,
                         fmt::format("'{}' is one alloc more than the step makes", row.tensor)};
      const Allocation& due = all.allocs[rank][next[rank]++];
      const StepStorage& storage = step.storages[due.storage];
      if (step.names[storage.name] != row.tensor || storage.bytes != row.bytes || op_name(due.op) != row.op)
        return Violation{
            Fault::missing_event, i, due.op,
            fmt::format("op '{}' allocates {} bytes of '{}' where the step's next alloc is op '{}', {} bytes "
                        "of '{}'",
                        row.op, row.bytes.count, row.tensor, op_name(due.op), storage.bytes.count,
                        step.names[storage.name])};
      storages[rank][row.id] = due.storage;
      events.push_back({row.time, row.live, due.storage, MemoryEvent::pack(due.op, true)});
    } else {
      const StorageId storage = storages[rank].at(row.id);
      const OpId due = all.free_op[storage];
      if (due == no_id || op_name(due) != row.op)
        return Violation{
            Fault::wrong_op, i, due,
            fmt::format("op '{}' frees '{}', which is for op '{}' to do", row.op, row.tensor, op_name(due))};
      events.push_back({row.time, row.live, storage, MemoryEvent::pack(due, false)});
    }
  }
  return referee(step, std::span<const MemoryEvent>(events));
}

}  // namespace tidemark
