#include <doctest/doctest.h>

#include "support/hand_step.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/engine/simulate.hpp"

using namespace tidemark;
using tidemark::test::HandStep;
using tidemark::test::lines_of;

namespace {

/// Writes down what it is asked, and has room for `capacity` bytes.
class Recorder final : public Allocator {
 public:
  explicit Recorder(const Step& step, std::int64_t capacity) : step_(&step), capacity_{capacity} {}

  bool alloc(StorageId storage, Bytes bytes, Stream stream, Nanos now) override {
    calls.push_back(to_string(now) + " alloc " + name(storage) + " " + to_string(bytes) + " " +
                    std::string(to_string(stream)));
    if (held_ + bytes > capacity_) return false;
    held_ += bytes;
    return true;
  }
  void free(StorageId storage, Stream stream, Nanos now, Nanos ready) override {
    calls.push_back(to_string(now) + " free " + name(storage) + " " + std::string(to_string(stream)) + " ready " +
                    to_string(ready));
    held_ -= step_->storages[storage].bytes;
  }
  AllocatorFigures figures() const override { return {held_, 2 * held_, 3 * held_, 4 * held_}; }

  std::vector<std::string> calls;

 private:
  std::string name(StorageId storage) const { return step_->names[step_->storages[storage].name]; }
  const Step* step_;
  Bytes capacity_, held_;
};

// compute   |A 10      |B 4 +y    |C 2 +z
// copy_out             |D 8: x          | -x (18)
HandStep offload() {
  return HandStep()
      .initial("w", 7)
      .op("A", 10)
      .alloc("x", 5)
      .run()
      .op("D", 8, Stream::copy_out)
      .copy({"x"})
      .free("x")
      .op("B", 4)
      .alloc("y", 3)
      .run()
      .free("y")
      .op("C", 2)
      .alloc("z", 9)
      .run()
      .free("z");
}

std::vector<std::int64_t> counts(const std::vector<Bytes>& column) {
  std::vector<std::int64_t> all;
  for (const Bytes bytes : column) all.push_back(bytes.count);
  return all;
}

}  // namespace

TEST_CASE("allocator seam: called in the host's order, with the host's time and the other stream's") {
  const HandStep made = offload();
  Recorder recorder(made.step, 100);
  const Timeline timeline = simulate(made.step, {}, recorder);
  CHECK(lines_of(recorder.calls) == lines_of({
                                        "0 alloc w 7 compute",
                                        "0 alloc x 5 compute",
                                        "10 free x copy_out ready 18",
                                        "10 alloc y 3 compute",
                                        "14 free y compute ready 14",
                                        "14 alloc z 9 compute",
                                        "16 free z compute ready 16",
                                    }));
  // events: +w +x +y -y +z -z -x; the block of x is handed back at 10, its bytes are live until 18
  CHECK(counts(timeline.allocator.allocated) == std::vector<std::int64_t>{7, 12, 10, 7, 16, 7, 7});
  CHECK(counts(timeline.allocator.active) == std::vector<std::int64_t>{14, 24, 20, 14, 32, 14, 14});
  CHECK(counts(timeline.allocator.reserved) == std::vector<std::int64_t>{21, 36, 30, 21, 48, 21, 21});
  CHECK(counts(timeline.allocator.inactive_split) == std::vector<std::int64_t>{28, 48, 40, 28, 64, 28, 28});
  CHECK(!timeline.out_of_memory);
  Timeline alone = simulate(made.step, {});
  alone.allocator = timeline.allocator;
  CHECK(alone == timeline);
}

TEST_CASE("allocator seam: out of memory is an answer, and live bytes go on") {
  const HandStep made = offload();
  Recorder recorder(made.step, 15);
  const Timeline timeline = simulate(made.step, {}, recorder);
  CHECK(recorder.calls.back() == "14 alloc z 9 compute");
  CHECK(timeline.out_of_memory == OutOfMemory{.event = 4,
                                              .storage = made.id("z"),
                                              .op = 3,
                                              .requested = Bytes{9},
                                              .figures = {Bytes{7}, Bytes{14}, Bytes{21}, Bytes{28}}});
  CHECK(timeline.allocator.allocated.size() == 4);
  CHECK(timeline.events == simulate(made.step, {}).events);
}

TEST_CASE("allocator seam: one for each rank, their figures merged in time") {
  HandStep made;
  made.op("A", 10).alloc("x", 4).run().record(0).free("x");
  made.op("B", 5, Stream::compute, 1).wait(0).alloc("y", 3).run().free("y");
  made.op("C", 20).alloc("z", 1).run().free("z");
  made.step.ranks = 2;
  Recorder first(made.step, 100), second(made.step, 2);
  std::array<Allocator*, 2> both = {&first, &second};
  const Timeline timeline = simulate(made.step, {}, both);
  // events: 0 +x | 10 -x, 10 +z (rank 0), 10 +y (rank 1 is full) | 15 -y | 30 -z
  CHECK(counts(timeline.allocator.allocated) == std::vector<std::int64_t>{4, 0, 1});
  REQUIRE(timeline.out_of_memory);
  CHECK(timeline.events.size() == 6);
  CHECK(timeline.out_of_memory->event == 3);
  CHECK(timeline.out_of_memory->storage == made.id("y"));
  CHECK_THROWS_AS(simulate(made.step, {}, first), InternalError);
}
