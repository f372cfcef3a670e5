// Whatever a step does, are allocated bytes at most the active, and these at most the reserved?
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <string>
#include <vector>

#include "support/hand_step.hpp"
#include "tidemark/engine/caching_model.hpp"
#include "tidemark/engine/simulate.hpp"

using namespace tidemark;
using tidemark::test::HandStep;

namespace {

/// Ops on two streams; those of the compute stream allocate, all may free something older when their stream has passed.
HandStep any_step() {
  HandStep made;
  std::vector<std::string> live;
  const int ops = *rc::gen::inRange(1, 40);
  for (int i = 0; i < ops; ++i) {
    const bool copies = *rc::gen::weightedElement<bool>({{3, false}, {1, true}});
    const std::string name = "t" + std::to_string(i);
    made.op("op" + std::to_string(i), *rc::gen::inRange(0, 20), copies ? Stream::copy_out : Stream::compute);
    // What a lagging stream allocates for itself its own order protects: such a block can go before its bytes do.
    if (!copies) {
      made.alloc(name, *rc::gen::oneOf(rc::gen::inRange(1, 1 << 20), rc::gen::inRange(1 << 20, 40 << 20)));
      live.push_back(name);
    }
    made.run();
    while (!live.empty() && *rc::gen::arbitrary<bool>()) {
      const auto pick = *rc::gen::inRange<std::size_t>(0, live.size());
      made.free(live[pick]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(pick));
    }
  }
  return made;
}

}  // namespace

TEST_CASE("allocator model: allocated, active and reserved bytes of any step keep their order") {
  CHECK(rc::check([] {
    const HandStep made = any_step();
    CachingSettings settings;
    settings.expandable_segments = *rc::gen::arbitrary<bool>();
    if (*rc::gen::arbitrary<bool>()) settings.capacity = Bytes{*rc::gen::inRange<std::int64_t>(40, 400) << 20};
    CachingModel model(settings);
    const Timeline timeline = simulate(made.step, {}, model);
    const AllocatorColumn& columns = timeline.allocator;
    RC_ASSERT(columns.reserved.size() ==
              (timeline.out_of_memory ? timeline.out_of_memory->event : timeline.events.size()));
    for (std::size_t i = 0; i < columns.reserved.size(); ++i) {
      RC_ASSERT(columns.allocated[i] <= columns.active[i]);
      RC_ASSERT(columns.active[i] <= columns.reserved[i]);
      RC_ASSERT(columns.active[i] + columns.inactive_split[i] <= columns.reserved[i]);
    }
  }));
}
