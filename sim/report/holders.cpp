#include "tidemark/report/holders.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

namespace tidemark {
namespace {

constexpr std::size_t never = std::numeric_limits<std::size_t>::max();

/// For each op the first event at which it counts as begun: the host has come to it, and its stream, if that lags
/// behind the host, has done it.
std::vector<std::size_t> begun(const Step& step, const Timeline& timeline) {
  const std::size_t events = timeline.events.size();
  std::vector<std::size_t> out(step.ops.size(), events);
  std::vector<OpId> reached(static_cast<std::size_t>(std::max(step.ranks, 1)), 0);  // by rank: ops below are begun
  std::vector<std::vector<OpId>> ops(reached.size());
  for (OpId id = 0; id < step.ops.size(); ++id) ops[static_cast<std::size_t>(step.ops[id].rank)].push_back(id);
  for (std::size_t i = 0; i < events; ++i) {
    const OpId now = timeline.events[i].op();
    if (now == no_id) continue;
    const auto rank = static_cast<std::size_t>(step.ops[now].rank);
    for (; reached[rank] < ops[rank].size() && ops[rank][reached[rank]] <= now; ++reached[rank])
      out[ops[rank][reached[rank]]] = i;
  }
  for (OpId id = 0; id < step.ops.size(); ++id) {
    if (step.ops[id].stream == Stream::compute) continue;
    const auto done = std::ranges::lower_bound(timeline.events, timeline.ops[id].end, {}, &MemoryEvent::time);
    out[id] = std::max(out[id], static_cast<std::size_t>(done - timeline.events.begin()));
  }
  return out;
}

/// Each storage's readers, one op once.
struct Readers {
  std::vector<OpId> list;
  std::vector<std::uint32_t> first;

  explicit Readers(const Step& step) : first(step.storages.size() + 1) {
    for (const StorageId id : step.reads) ++first[id + 1];
    std::partial_sum(first.begin(), first.end(), first.begin());
    list.resize(step.reads.size());
    std::vector<std::uint32_t> next(first.begin(), first.end() - 1);
    for (OpId op = 0; op < step.ops.size(); ++op)
      for (std::uint32_t r = step.ops[op].read_begin; r < step.ops[op].read_end; ++r) list[next[step.reads[r]]++] = op;
  }
};

class Finder {
 public:
  Finder(const Step& step, const Timeline& timeline)
      : step_(step), timeline_(timeline), readers_(step), begun_(begun(step, timeline)) {}

  Holders find() {
    std::vector<std::size_t> birth(step_.storages.size(), never), death(step_.storages.size(), never);
    for (std::size_t i = 0; i < timeline_.events.size(); ++i)
      (timeline_.events[i].is_alloc() ? birth : death)[timeline_.events[i].storage] = i;
    for (StorageId id = 0; id < step_.storages.size(); ++id) {
      out_.first.push_back(static_cast<std::uint32_t>(out_.list.size()));
      if (birth[id] == never) continue;
      PeakStorage storage{.storage = id, .birth_event = birth[id]};
      if (death[id] != never) storage.death_event = death[id];
      follow(storage);
    }
    out_.first.push_back(static_cast<std::uint32_t>(out_.list.size()));
    return std::move(out_);
  }

 private:
  void follow(PeakStorage storage) {
    std::vector<OpId> ops(readers_.list.begin() + readers_.first[storage.storage],
                          readers_.list.begin() + readers_.first[storage.storage + 1]);
    std::ranges::stable_sort(ops, {}, [&](OpId op) { return begun_[op]; });
    std::size_t from = storage.birth_event;
    if (!ops.empty()) storage.last_reader = std::ranges::max(ops);
    for (const OpId op : ops) {
      if (begun_[op] <= from) continue;
      storage.next_reader = op;
      add(storage, from, no_id);
      from = begun_[op];
    }
    if (storage.death_event && from >= *storage.death_event) return;
    storage.next_reader = storage.last_reader = no_id;
    storage.read_at_peak = !ops.empty();
    add(storage, from, ops.empty() ? no_id : ops.back());
  }

  void add(const PeakStorage& storage, std::size_t from, OpId now) {
    const HoldReason reason = hold_reason(step_, timeline_, storage, now);
    if (out_.list.size() > out_.first.back() && reads_alike(out_.list.back().reason, reason)) return;
    out_.list.push_back({static_cast<std::uint32_t>(from), reason});
  }

  /// The same sentence.
  bool reads_alike(const HoldReason& a, const HoldReason& b) const {
    if (a.hold != b.hold || a.op == no_id || a.op == b.op) return a.hold == b.hold;
    const StepOp& x = step_.ops[a.op];
    const StepOp& y = step_.ops[b.op];
    return x.layer == y.layer && x.phase == y.phase && (x.name == y.name || to_text(step_, a) == to_text(step_, b));
  }

  const Step& step_;
  const Timeline& timeline_;
  Readers readers_;
  std::vector<std::size_t> begun_;
  Holders out_;
};

}  // namespace

Holders holders(const Step& step, const Timeline& timeline) { return Finder(step, timeline).find(); }

std::string holder_at(const Step& step, const Holders& holders, StorageId storage, std::size_t event) {
  const auto begin = holders.list.begin() + holders.first[storage];
  const auto after = std::upper_bound(begin + 1, holders.list.begin() + holders.first[storage + 1], event,
                                      [](std::size_t at, const Holder& holder) { return at < holder.from_event; });
  return to_text(step, std::prev(after)->reason);
}

}  // namespace tidemark
