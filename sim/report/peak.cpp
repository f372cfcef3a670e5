#include "tidemark/report/peak.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tidemark {
namespace {

constexpr std::size_t no_event = std::numeric_limits<std::size_t>::max();
constexpr std::uint32_t not_alive = no_id;

/// Position of each storage in `alive`, or not_alive.
std::vector<std::uint32_t> positions(const Step& step, const std::vector<PeakStorage>& alive) {
  std::vector<std::uint32_t> out(step.storages.size(), not_alive);
  for (std::uint32_t i = 0; i < alive.size(); ++i) out[alive[i].storage] = i;
  return out;
}

std::vector<PeakStorage> alive_at_peak(const Step& step, const Timeline& timeline) {
  std::vector<PeakStorage> alive;
  if (timeline.events.empty()) return alive;
  const std::int16_t rank = peak_rank(step, timeline);
  std::vector<std::size_t> birth(step.storages.size(), no_event);
  for (std::size_t i = 0; i <= timeline.peak_event; ++i) {
    const MemoryEvent& event = timeline.events[i];
    birth[event.storage] = event.is_alloc() ? i : no_event;
  }
  for (StorageId id = 0; id < step.storages.size(); ++id) {
    if (birth[id] == no_event || step.storages[id].rank != rank) continue;
    const OpId made_by = timeline.events[birth[id]].op();
    const bool rebuilt = made_by != no_id && step.ops[made_by].phase == Phase::recompute;
    alive.push_back({.storage = id, .birth_event = birth[id], .rebuilt = rebuilt});
  }
  std::ranges::sort(alive, [&](const PeakStorage& a, const PeakStorage& b) {
    const Bytes size_a = step.storages[a.storage].bytes;
    const Bytes size_b = step.storages[b.storage].bytes;
    return size_a != size_b ? size_a > size_b : a.birth_event < b.birth_event;
  });
  return alive;
}

void find_deaths(const Timeline& timeline, const std::vector<std::uint32_t>& position,
                 std::vector<PeakStorage>& alive) {
  for (std::size_t i = timeline.peak_event + 1; i < timeline.events.size(); ++i) {
    const std::uint32_t at = position[timeline.events[i].storage];
    if (at != not_alive) alive[at].death_event = i;
  }
}

void find_readers(const Step& step, const Timeline& timeline, const std::vector<std::uint32_t>& position,
                  std::vector<PeakStorage>& alive) {
  const OpId now = peak_op(timeline);
  const Nanos peak_time = timeline.events[timeline.peak_event].time;
  for (OpId id = 0; id < step.ops.size(); ++id) {
    const StepOp& op = step.ops[id];
    // Issued earlier, but its stream lags behind the host: it reads after the peak all the same.
    const bool lagging = op.stream != Stream::compute && timeline.ops[id].end > peak_time;
    const bool later = now == no_id || id > now || (id < now && lagging);
    const bool recompute = op.phase == Phase::recompute;
    if (!later && !recompute && id != now) continue;
    for (std::uint32_t r = op.read_begin; r < op.read_end; ++r) {
      const std::uint32_t at = position[step.reads[r]];
      if (at == not_alive) continue;
      PeakStorage& storage = alive[at];
      storage.read_by_recompute = storage.read_by_recompute || recompute;
      storage.read_at_peak = storage.read_at_peak || id == now;
      if (!later) continue;
      if (storage.next_reader == no_id) storage.next_reader = id;
      storage.last_reader = id;
    }
  }
}

/// The highest level over the events before each position of `ends`, which ascend.
template <class Level>
std::vector<Bytes> highest_before(const std::vector<std::size_t>& ends, Level level) {
  std::vector<Bytes> out;
  Bytes highest;
  std::size_t i = 0;
  for (const std::size_t end : ends) {
    for (; i < end; ++i) highest = std::max(highest, level(i));
    out.push_back(highest);
  }
  return out;
}

/// highest_before for ends in any order.
template <class Level>
std::vector<Bytes> highest_before_each(const std::vector<std::size_t>& ends, Level level) {
  std::vector<std::size_t> order(ends.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return ends[i]; });
  std::vector<std::size_t> ascending;
  for (const std::size_t i : order) ascending.push_back(ends[i]);
  const std::vector<Bytes> highest = highest_before(ascending, level);
  std::vector<Bytes> out(ends.size());
  for (std::size_t k = 0; k < order.size(); ++k) out[order[k]] = highest[k];
  return out;
}

}  // namespace

OpId peak_op(const Timeline& timeline) {
  return timeline.events.empty() ? no_id : timeline.events[timeline.peak_event].op();
}

std::int16_t peak_rank(const Step& step, const Timeline& timeline) {
  return timeline.events.empty() ? std::int16_t{0} : step.storages[timeline.events[timeline.peak_event].storage].rank;
}

std::vector<PeakStorage> peak_storages(const Step& step, const Timeline& timeline) {
  std::vector<PeakStorage> alive = alive_at_peak(step, timeline);
  if (alive.empty()) return alive;
  const std::vector<std::uint32_t> position = positions(step, alive);
  find_deaths(timeline, position, alive);
  find_readers(step, timeline, position, alive);
  return alive;
}

std::vector<Bytes> peak_drops(const Timeline& timeline, const Step& step, const std::vector<PeakStorage>& storages) {
  const std::size_t n = timeline.events.size();
  if (n == 0) return std::vector<Bytes>(storages.size());
  const std::int16_t rank = peak_rank(step, timeline);
  const auto level = [&](std::size_t i) {
    const MemoryEvent& event = timeline.events[i];
    return step.storages[event.storage].rank == rank ? event.live : Bytes{};
  };
  std::vector<std::size_t> births, from_end;
  for (const PeakStorage& s : storages) {
    births.push_back(s.birth_event);
    from_end.push_back(s.death_event ? n - *s.death_event : 0);
  }
  const std::vector<Bytes> before = highest_before_each(births, level);
  const std::vector<Bytes> after = highest_before_each(from_end, [&](std::size_t i) { return level(n - 1 - i); });
  std::vector<Bytes> drops;
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const Bytes elsewhere = std::max(before[i], after[i]);
    drops.push_back(std::min(step.storages[storages[i].storage].bytes, timeline.peak - elsewhere));
  }
  return drops;
}

namespace {

/// Of which names and in which layers does a recompute make tensors?
struct Rebuilds {
  std::vector<bool> names, layers;
  bool any = false;
};

Rebuilds rebuilds_of(const Step& step) {
  Rebuilds out{std::vector<bool>(step.names.size(), false), std::vector<bool>(step.layers.size(), false)};
  for (const Instruction& instruction : step.instructions) {
    if (instruction.what != Do::alloc || instruction.op == no_id) continue;
    if (step.ops[instruction.op].phase != Phase::recompute) continue;
    const StepStorage& storage = step.storages[instruction.index];
    out.any = true;
    out.names[storage.name] = true;
    if (storage.layer >= 0) out.layers[static_cast<std::size_t>(storage.layer)] = true;
  }
  return out;
}

/// A first version that only forward reads, and of which a recompute makes another: the policy drops it.
bool is_dropped_later(const Step& step, const Rebuilds& rebuilds, const PeakStorage& s) {
  if (!rebuilds.names[step.storages[s.storage].name] || s.read_by_recompute) return false;
  if (s.last_reader == no_id) return true;
  const Phase last = step.ops[s.last_reader].phase;
  return last == Phase::forward || last == Phase::loss;
}

}  // namespace

std::vector<bool> given_up_later(const Step& step, const std::vector<PeakStorage>& storages) {
  const Rebuilds rebuilds = rebuilds_of(step);
  std::vector<bool> out;
  for (const PeakStorage& s : storages) out.push_back(!s.rebuilt && is_dropped_later(step, rebuilds, s));
  return out;
}

RecomputeAtPeak recompute_at_peak(const Step& step, const std::vector<PeakStorage>& storages) {
  const Rebuilds rebuilds = rebuilds_of(step);
  RecomputeAtPeak out;
  out.any = rebuilds.any;
  std::vector<bool> layers(step.layers.size(), false);
  for (const PeakStorage& s : storages) {
    const StepStorage& storage = step.storages[s.storage];
    if (s.rebuilt) {
      out.rebuilt += storage.bytes;
      if (storage.layer >= 0) layers[static_cast<std::size_t>(storage.layer)] = true;
    } else if (is_dropped_later(step, rebuilds, s)) {
      out.to_be_dropped += storage.bytes;
    }
    if (s.next_reader != no_id && step.ops[s.next_reader].phase == Phase::recompute) out.kept += storage.bytes;
  }
  out.layers_rebuilt = static_cast<std::size_t>(std::ranges::count(layers, true));
  out.layers_recomputed = static_cast<std::size_t>(std::ranges::count(rebuilds.layers, true));
  return out;
}

}  // namespace tidemark
