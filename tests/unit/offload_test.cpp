// Saved-tensor hooks that copy: on a CPU both copies are counted, elsewhere the first is on the host.
#include <doctest/doctest.h>

#include <string>

#include "tidemark/engine/referee.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;

namespace {

Run run_of(const std::string& profile, const std::string& policy) {
  return run(
      parse_scenario("profile: " + profile +
                         "\nmodel: {family: mlp, layers: 2, rows: 64, width: 8, hidden: 16}\n"
                         "device: {name: d, capacity: 1 GiB, flops: {float32: 1 TFLOP/s}, memory_bandwidth: 1 TB/s, "
                         "copy_bandwidth: {to_host: 1 GB/s, to_device: 500 MB/s}}\npolicy: " +
                         policy + "\n",
                     "case"));
}

struct HookCopies {
  std::int64_t to_host = 0, to_device = 0, counted = 0;  // bytes
};

HookCopies copies_of(const Run& run) {
  HookCopies out;
  for (const Instruction& i : run.step.instructions) {
    if (i.what == Do::copy && i.stream == Stream::copy_out) out.to_host += run.step.ops[i.index].moved.count;
    if (i.what == Do::copy && i.stream == Stream::copy_in) out.to_device += run.step.ops[i.index].moved.count;
    const bool is_copy = i.what == Do::alloc && run.step.names[run.step.storages[i.index].name].ends_with(".offloaded");
    if (is_copy) out.counted += run.step.storages[i.index].bytes.count;
  }
  return out;
}

const std::string offload = "{kind: full, checkpointing: {kind: offload}}";

}  // namespace

TEST_CASE("offload hooks: where the device is not the host, copies leave its memory and the step waits for them") {
  const Run with = run_of("pytorch-cuda", offload), without = run_of("pytorch-cuda", "none");
  const HookCopies copies = copies_of(with);
  CHECK(copies.counted == 0);
  CHECK(copies.to_host > 0);
  CHECK(copies.to_device == copies.to_host);
  CHECK(with.timeline.peak < without.timeline.peak);
  // one byte a nanosecond there, half a byte back, and nothing else runs meanwhile
  CHECK((with.timeline.end - without.timeline.end).count == 3 * copies.to_host);
  CHECK(!referee(with.step, with.timeline));
}

TEST_CASE("offload hooks: on a CPU the copies are in the memory that is counted") {
  const HookCopies copies = copies_of(run_of("pytorch-2.6-cpu", offload));
  CHECK(copies.counted > 0);
  CHECK(copies.to_host == 0);
}
