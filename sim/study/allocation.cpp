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

std::string bytes(Bytes amount) { return fmt::format("{} ({} B)", pretty(amount), amount.count); }

Allocation with_caching(const Scenario& scenario, const Step& step) {
  Allocation out;
  std::deque<CachingModel> models;
  std::vector<Allocator*> seams;
  for (int rank = 0; rank < step.ranks; ++rank) seams.push_back(&models.emplace_back(*scenario.caching));
  out.timeline = simulate(step, scenario.device, seams);
  out.notes = contradictions(*scenario.caching);
  for (const CachingModel& model : models)
    if (const auto retries = model.allocator().counters().retries; retries > 0)
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
  Allocation out{simulate(step, scenario.device), {}};
  if (step.ranks > 1) {
    out.notes.emplace_back("allocator 'arena' is modelled for one rank; live bytes only");
    return out;
  }
  const Arena arena = make_arena(lifetimes(out.timeline, step));
  for (const MemoryEvent& event : out.timeline.events) {
    out.timeline.allocator.allocated.push_back(event.live);
    out.timeline.allocator.active.push_back(event.live);
    out.timeline.allocator.reserved.push_back(arena.height);
    out.timeline.allocator.inactive_split.push_back(arena.height - event.live);
  }
  out.notes.push_back(fmt::format("an arena of {} holds every storage at a fixed address; no arena is below {}",
                                  bytes(arena.height), bytes(arena.lower_bound)));
  return out;
}

}  // namespace

Allocation simulate_with_allocator(const Scenario& scenario, const Step& step) {
  if (scenario.caching) return with_caching(scenario, step);
  if (scenario.allocator == "arena") return with_arena(scenario, step);
  return {simulate(step, scenario.device), {}};
}

}  // namespace tidemark
