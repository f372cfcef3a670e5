#include "tidemark/study/allocation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "tidemark/engine/arena.hpp"
#include "tidemark/engine/caching_model.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/input/caching_settings.hpp"

namespace tidemark {
namespace {

Allocation with_caching(const Scenario& scenario, const Step& step) {
  Allocation out;
  std::deque<CachingModel> models;
  std::vector<Allocator*> seams;
  for (int rank = 0; rank < step.ranks; ++rank) seams.push_back(&models.emplace_back(*scenario.caching));
  out.timeline = simulate(step, scenario.device, seams);
  out.notes = contradictions(*scenario.caching);
  for (const CachingModel& model : models) out.findings.retries += model.allocator().counters().retries;
  if (const auto retries = out.findings.retries; retries > 0)
    out.notes.push_back(fmt::format("the allocator gave back its whole cache {} time{} and asked the device again",
                                    retries, retries == 1 ? "" : "s"));
  if (auto& failed = out.timeline.out_of_memory) {
    const CachingModel& model = models[static_cast<std::size_t>(step.storages[failed->storage].rank)];
    failed->shortage =
        model.allocator().shortage(failed->requested, static_cast<CachingAllocator::StreamId>(failed->stream));
  }
  return out;
}

/// One arrangement for all events: the arena is reserved from the first event on.
Allocation with_arena(const Scenario& scenario, const Step& step) {
  Allocation out{.timeline = simulate(step, scenario.device), .findings = {}, .arena = {}, .notes = {}};
  if (step.ranks > 1) {
    out.notes.emplace_back("allocator 'arena' is modelled for one rank; live bytes only");
    return out;
  }
  const std::vector<Lifetime> lives = lifetimes(out.timeline, step);
  out.arena = make_arena(lives);
  const Bytes height = out.arena->height;
  for (const MemoryEvent& event : out.timeline.events) {
    out.timeline.allocator.allocated.push_back(event.live);
    out.timeline.allocator.active.push_back(event.live);
    out.timeline.allocator.reserved.push_back(height);
    out.timeline.allocator.inactive_split.push_back(height - event.live);
  }
  out.findings.arena =
      ArenaFigures{height, out.arena->lower_bound, out.timeline.peak, static_cast<std::int64_t>(lives.size())};
  return out;
}

}  // namespace

Allocation simulate_with_allocator(const Scenario& scenario, const Step& step) {
  Allocation out;
  if (scenario.caching)
    out = with_caching(scenario, step);
  else if (scenario.allocator == "arena")
    out = with_arena(scenario, step);
  else
    out.timeline = simulate(step, scenario.device);
  if (scenario.allocator != "live") out.findings.kind = scenario.allocator;
  return out;
}

}  // namespace tidemark
