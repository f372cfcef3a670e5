#include "tidemark/report/summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tidemark/base/errors.hpp"
#include "tidemark/report/holding.hpp"

namespace tidemark {
namespace {

/// Follows the level through the events and keeps, for each step, where it started, was highest, and ended.
class LevelScan {
 public:
  LevelScan(const Step& step, std::vector<StepFigures>& figures) : step_(step), figures_(figures) {}

  void scan(const Timeline& timeline, std::int16_t rank) {
    for (const MemoryEvent& event : timeline.events) {
      if (step_.storages[event.storage].rank != rank) continue;
      const OpId op = event.op();
      // A free that waited for a copy may come when the next step has begun: it opens nothing.
      if (op != no_id) open_up_to(step_.ops[op].step);
      take(event);
    }
    open_up_to(static_cast<int>(figures_.size()) - 1);
    figures_.back().end = level_;
  }

 private:
  void open_up_to(int number) {
    while (current_ < number) {
      if (current_ >= 0) figures_[static_cast<std::size_t>(current_)].end = level_;
      StepFigures& opened = figures_[static_cast<std::size_t>(++current_)];
      opened.peak = {level_, current_, time_, "", "", Phase::initial};
      opened.at_peak = by_category_;
      opened.phase_peaks[static_cast<std::size_t>(Phase::initial)] = level_;
    }
  }

  void take(const MemoryEvent& event) {
    const StepStorage& storage = step_.storages[event.storage];
    Bytes& category = by_category_[static_cast<std::size_t>(storage.category)];
    if (event.is_alloc())
      category += storage.bytes;
    else
      category -= storage.bytes;
    level_ = event.live;
    time_ = event.time;
    if (current_ < 0 || !event.is_alloc()) return;
    StepFigures& now = figures_[static_cast<std::size_t>(current_)];
    if (level_ <= now.peak.bytes) return;
    now.peak = moment_of(step_, event);
    now.peak.step = current_;
    now.at_peak = by_category_;
  }

  const Step& step_;
  std::vector<StepFigures>& figures_;
  int current_ = -1;
  Bytes level_;
  Nanos time_;
  ByCategory by_category_{};
};

void add_flops(FlopFigures& figures, Phase phase, Flops amount) {
  figures.total += amount;
  if (phase == Phase::forward || phase == Phase::loss) figures.forward += amount;
  if (phase == Phase::recompute) figures.recompute += amount;
  if (phase == Phase::backward) figures.backward += amount;
}

void add_time(TimeFigures& figures, Phase phase, Nanos time) {
  if (phase == Phase::forward || phase == Phase::loss) figures.forward += time;
  if (phase == Phase::recompute) figures.recompute += time;
  if (phase == Phase::backward) figures.backward += time;
  if (phase == Phase::optimizer) figures.optimizer += time;
}

void scan_ops(const Step& step, const Timeline& timeline, std::int16_t rank,
              const std::vector<std::int32_t>& stands_for, std::vector<StepFigures>& figures) {
  std::vector<Nanos> ends(figures.size());  // of each step's last op on the compute stream; at the end, of all
  Nanos all_done;
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    const StepOp& op = step.ops[i];
    const OpSpan& span = timeline.ops[i];
    check(op.step >= 0 && static_cast<std::size_t>(op.step) < figures.size(), "an op belongs to a step past the last");
    if (op.rank != rank || span.start.count < 0) continue;
    StepFigures& now = figures[static_cast<std::size_t>(op.step)];
    const std::int64_t count = times(stands_for, i);
    add_flops(now.flops, op.phase, Flops{Int128{count} * op.flops});
    add_flops(now.other_flops, op.phase, Flops{Int128{count} * op.other_flops});
    all_done = std::max(all_done, span.end);
    if (op.stream == Stream::compute) {
      add_time(now.time, op.phase, count * (span.end - span.start));
      ends[static_cast<std::size_t>(op.step)] = span.end;
    }
    auto& phase_peak = now.phase_peaks[static_cast<std::size_t>(op.phase)];
    phase_peak = std::max(phase_peak.value_or(Bytes{}), span.peak);
    if (op.phase == Phase::forward) now.forward_end = span.after;
  }
  ends.back() = all_done;
  Nanos before;
  for (std::size_t k = 0; k < figures.size(); ++k) {
    TimeFigures& time = figures[k].time;
    const Nanos end = std::max(before, ends[k]);
    time.step = end - before;
    time.exposed = time.step - time.forward - time.recompute - time.backward - time.optimizer;
    before = end;
  }
}

std::optional<double> utilization(Flops flops, Nanos time, double flops_per_second) {
  if (flops_per_second <= 0 || time.count <= 0) return std::nullopt;
  return static_cast<double>(flops.count) / (static_cast<double>(time.count) * 1e-9 * flops_per_second);
}

std::vector<PeakTensor> list_tensors(const Step& step, const Timeline& timeline, std::vector<PeakStorage> storages,
                                     std::size_t top) {
  storages.resize(std::min(top, storages.size()));
  const std::vector<Bytes> drops = peak_drops(timeline, step, storages);
  std::vector<PeakTensor> out;
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const StepStorage& storage = step.storages[storages[i].storage];
    const MemoryEvent& birth = timeline.events[storages[i].birth_event];
    PeakTensor tensor{.tensor = step.names[storage.name],
                      .op = birth.op() == no_id ? "" : step.names[step.ops[birth.op()].name],
                      .layer = std::string(layer_name(step, storage.layer)),
                      .category = storage.category,
                      .bytes = storage.bytes,
                      .birth = birth.time,
                      .death = std::nullopt,
                      .drop = drops[i],
                      .held_by = held_by(step, timeline, storages[i])};
    if (storages[i].death_event) tensor.death = timeline.events[*storages[i].death_event].time;
    out.push_back(std::move(tensor));
  }
  return out;
}

OutOfMemoryFigures out_of_memory_figures(const Step& step, const Timeline& timeline) {
  const OutOfMemory& failed = *timeline.out_of_memory;
  const MemoryEvent& event = timeline.events[failed.event];
  OutOfMemoryFigures out;
  out.moment = {.bytes = event.live - failed.requested, .step = 0, .time = event.time, .op = "", .layer = ""};
  if (failed.op != no_id) {
    const StepOp& op = step.ops[failed.op];
    out.moment.step = op.step;
    out.moment.op = step.names[op.name];
    out.moment.layer = layer_name(step, op.layer);
    out.moment.phase = op.phase;
  }
  out.tensor = step.names[step.storages[failed.storage].name];
  out.requested = failed.requested;
  out.allocator = failed.figures;
  out.shortage = failed.shortage;
  return out;
}

void judge_allocation(const Step& step, const Timeline& timeline, const ScenarioFacts& facts, Summary& summary) {
  const AllocatorColumn& allocator = timeline.allocator;
  if (!allocator.allocated.empty()) summary.allocated_peak = std::ranges::max(allocator.allocated);
  if (!allocator.reserved.empty()) summary.reserved_peak = std::ranges::max(allocator.reserved);
  judge_fit(facts, summary.reserved_peak.value_or(timeline.peak), summary);
  if (summary.limit || timeline.out_of_memory)
    summary.by = summary.reserved_peak || timeline.out_of_memory ? "reserved" : "live";
  if (!timeline.out_of_memory) return;
  summary.out_of_memory = out_of_memory_figures(step, timeline);
  summary.fits = false;
  summary.margin.reset();
  if (const auto& why = timeline.out_of_memory->shortage) summary.margin = why->device_free - why->needed;
}

/// The largest tensors at the peak that a policy could do something about: "a, b, c".
std::string largest_there(const Step& step, const std::vector<PeakStorage>& storages) {
  std::vector<NameId> names;
  for (const PeakStorage& s : storages) {
    const StepStorage& storage = step.storages[s.storage];
    const bool fixed = storage.category == Category::parameter || storage.category == Category::optimizer_state ||
                       storage.category == Category::gradient;
    if (!fixed && std::ranges::find(names, storage.name) == names.end()) names.push_back(storage.name);
    if (names.size() == 3) break;
  }
  std::string out;
  for (const NameId name : names) out += (out.empty() ? "" : ", ") + step.names[name];
  return out;
}

std::string why_not_below(const RecomputeAtPeak& recompute) {
  const std::size_t layers = recompute.layers_recomputed;
  if (layers == 1 && recompute.layers_rebuilt == 1)
    return ": the recomputed layer is whole again before backward has freed any of it";
  if (layers > 0 && recompute.layers_rebuilt == layers)
    return fmt::format(": all {} recomputed layers are rebuilt at once, before backward has freed any of them", layers);
  if (recompute.layers_rebuilt > 0)
    return fmt::format(": {} of the {} recomputed layers are rebuilt and alive together", recompute.layers_rebuilt,
                       layers);
  return recompute.kept.count > 0 ? ": " + pretty(recompute.kept) + " are kept there to recompute from" : "";
}

/// What a reader who turned recomputation on and sees no drop needs to know.
std::vector<std::string> policy_warnings(const Step& step, const std::vector<PeakStorage>& storages,
                                         const Summary& summary) {
  std::vector<std::string> out;
  const RecomputeAtPeak& recompute = summary.recompute;
  if (!recompute.any) return out;
  const Moment& peak = summary.peak().peak;
  if (recompute.rebuilt.count == 0 && recompute.to_be_dropped.count == 0) {
    const std::string largest = largest_there(step, storages);
    out.push_back("this policy touches none of the tensors at the peak (" +
                  (peak.op.empty() ? "at the start" : phase_of_work(peak.phase, peak.op, peak.layer)) +
                  (largest.empty() ? "" : "; the largest: " + largest) +
                  "): recomputing more of the same cannot lower it");
  }
  if (!summary.no_checkpoint_peak) return out;
  const Bytes without = *summary.no_checkpoint_peak;
  if (peak.bytes >= without)
    out.push_back(fmt::format("the peak is not below the {} of no checkpointing", pretty(without)) +
                  why_not_below(recompute));
  else if (recompute.layers_recomputed > 1 && recompute.layers_rebuilt == recompute.layers_recomputed)
    out.push_back(
        fmt::format("the peak is {} below the {} of no checkpointing", pretty(without - peak.bytes), pretty(without)) +
        why_not_below(recompute));
  return out;
}

/// Each sentence once, in order of its first.
void add_new(std::vector<std::string>& all, const std::vector<std::string>& more) {
  for (const std::string& one : more)
    if (std::ranges::find(all, one) == all.end()) all.push_back(one);
}

}  // namespace

void add_rates(StepFigures& figures, Flops model, double flops_per_second) {
  const Flops without = figures.flops.total - figures.flops.recompute;
  if (without.count > 0)
    figures.recompute_overhead =
        static_cast<double>(figures.flops.recompute.count) / static_cast<double>(without.count);
  figures.hfu = utilization(figures.flops.total, figures.time.step, flops_per_second);
  if (model.count == 0 && figures.flops.total.count > 0) return;
  figures.model_flops = model;
  figures.mfu = utilization(model, figures.time.step, flops_per_second);
}

void judge_fit(const ScenarioFacts& facts, Bytes needed, Summary& summary) {
  summary.limit = facts.budget ? facts.budget : facts.usable;
  summary.limit_name = facts.budget ? "the budget" : facts.device;
  summary.non_torch = facts.non_torch;
  summary.allocator = facts.allocator;
  if (!summary.limit) return;
  summary.margin = *summary.limit - needed;
  summary.fits = summary.margin->count >= 0;
}

Summary summarize(const Step& step, const Timeline& timeline, const ScenarioFacts& facts) {
  Summary out;
  out.scenario = facts.name;
  out.profile = facts.profile;
  out.steps.resize(static_cast<std::size_t>(std::max(step.steps, 1)));
  const std::int16_t rank = peak_rank(step, timeline);
  const std::vector<std::int32_t> stands_for =
      facts.pipeline ? facts.pipeline->stands_for : std::vector<std::int32_t>{};
  scan_ops(step, timeline, rank, stands_for, out.steps);
  LevelScan(step, out.steps).scan(timeline, rank);
  const Flops rank_flops{step.model_flops.count / step.ranks};  // every rank's share
  for (StepFigures& figures : out.steps) add_rates(figures, rank_flops, facts.flops_per_second);
  for (std::size_t k = 0; k < out.steps.size(); ++k)
    if (out.steps[k].peak.bytes > out.peak().peak.bytes) out.peak_step = k;
  check(out.peak().peak.bytes == timeline.peak, "the summary and the timeline disagree on the peak");

  const std::vector<PeakStorage> storages = peak_storages(step, timeline);
  out.tensors_at_peak = storages.size();
  out.peak_tensors = list_tensors(step, timeline, storages, facts.top);
  out.recompute = recompute_at_peak(step, storages);
  out.policy = facts.policy;
  out.no_checkpoint_peak = facts.no_checkpoint_peak;
  if (facts.textbook) out.textbook = compare_with_textbook(*facts.textbook, step, storages);
  if (step.parameters > 0) out.parameters = step.parameters;
  judge_allocation(step, timeline, facts, out);
  out.pipeline = facts.pipeline;
  out.offload = offload_figures(step, timeline, rank);
  out.collectives = collective_figures(step, timeline, rank, stands_for);
  out.offload.without = facts.without_copies;
  out.events = timeline.events.size();
  out.ops = static_cast<std::size_t>(
      std::ranges::count_if(timeline.ops, [](const OpSpan& span) { return span.start != OpSpan::never_ran; }));
  add_new(out.warnings, facts.warnings);
  add_new(out.warnings, step.warnings);
  add_new(out.warnings, policy_warnings(step, storages, out));
  return out;
}

}  // namespace tidemark
