#include <algorithm>
#include <limits>

#include "tidemark/base/errors.hpp"
#include "tidemark/engine/simulate.hpp"

namespace tidemark {

// live and peak are unsigned: a total past 2^63 then shows as a peak past it, without a test in the loop.
Peak live_peak(const Step& step) {
  std::uint64_t live = 0, peak = 0;
  for (const StorageId storage : step.initial) {
    live += static_cast<std::uint64_t>(step.storages[storage].bytes.count);
    peak = std::max(peak, live);
  }
  std::size_t where = 0;
  for (std::size_t i = 0; i < step.instructions.size(); ++i) {
    const Instruction& at = step.instructions[i];
    if (at.what != Do::alloc && at.what != Do::free) continue;
    const auto bytes = static_cast<std::uint64_t>(step.storages[at.index].bytes.count);
    live += at.what == Do::alloc ? bytes : 0 - bytes;
    if (live > peak) {
      peak = live;
      where = i;
    }
  }
  if (peak > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    throw InputError("live bytes pass 2^63");
  return {Bytes{static_cast<std::int64_t>(peak)}, where};
}

}  // namespace tidemark
