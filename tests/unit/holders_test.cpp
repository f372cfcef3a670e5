#include "tidemark/report/holders.hpp"

#include <doctest/doctest.h>

#include "support/tide.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/report/holding.hpp"
#include "tidemark/report/peak.hpp"

using namespace tidemark;
using tidemark::test::HandStep;

namespace {

/// "k: 3 read next by x, 6 saved for ..." for one storage.
std::string life(const HandStep& made, const std::string& name) {
  const Holders all = holders(made.step, simulate(made.step, {}));
  std::string out;
  const StorageId id = made.id(name);
  for (std::uint32_t i = all.first[id]; i < all.first[id + 1]; ++i)
    out += (out.empty() ? "" : "; ") + std::to_string(all.list[i].from_event) + " " +
           to_text(made.step, all.list[i].reason);
  return out;
}

}  // namespace

// The events of small_tide: w x (at the start), 2 +mid 3 +h 4 -mid 5 +k 6 +y 7 +l 8 +gh 9 -k 10 -y 11 -l 12 +mid 13 +gw
// ...
TEST_CASE("holders: who holds a tensor changes when its next reader begins") {
  struct Case {
    std::string tensor, life;
  };
  const Case cases[] = {
      {"w", "0 parameter"},
      {"x", "1 read next by layers.0.a; 2 input of the recompute of layers.0; 12 input of the step"},
      {"h", "3 read next by layers.1.b; 5 saved for backward of layers.1.b; 8 held until backward of layers.0.a"},
      {"k", "5 saved for backward of layers.1.b; 8 read by the running op"},
      {"gw", "13 gradient until the optimizer"},
  };
  const HandStep made = test::small_tide();
  for (const Case& c : cases) {
    CAPTURE(c.tensor);
    CHECK(life(made, c.tensor) == c.life);
  }
}

TEST_CASE("holders: an op on a stream that lags reads until its stream has done it") {
  HandStep made;
  made.op("A", 10).alloc("a", 5).run().record(0);
  made.op("out", 30, Stream::copy_out).phase(Phase::offload).wait(0).copy({"a"}).free("a");
  made.op("B", 10).alloc("b", 3).run();
  CHECK(life(made, "a") == "0 read next by out");
}

TEST_CASE("holders: at the peak they are what the summary says") {
  const HandStep made = test::small_tide();
  const Timeline timeline = simulate(made.step, {});
  const Holders all = holders(made.step, timeline);
  for (const PeakStorage& storage : peak_storages(made.step, timeline))
    CHECK(holder_at(made.step, all, storage.storage, timeline.peak_event) == held_by(made.step, timeline, storage));
}
