/// What did a run allocate and free, as somebody recorded it?
///
/// Formats: our timeline CSV, plain; and, plain or gzipped, the event CSV of HTA (t_us,addr,bytes,total_allocated,
/// total_reserved; a negative size frees); the raw memory timeline of torch.profiler ([[t_ns, action, bytes,
/// category], ...]), in which a freed block is the oldest of its size and category.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tidemark/base/units.hpp"

namespace tidemark {

struct RecordedEvent {
  enum class What : std::uint8_t { alloc, free, category };  // category: the block only changes it
  std::int64_t row = 0;                                      // line of a CSV, number of an event in JSON, from 1
  std::int64_t time = 0;                                     // in the recording's own unit
  What what = What::alloc;
  std::uint64_t block = 0;  // pairs an alloc with its free
  Bytes bytes;
  std::optional<int> category = {};                // of the raw timeline's
  std::optional<int> category_before = {};         // What::category
  std::optional<Bytes> total = {}, reserved = {};  // as recorded, after the event
};
using RecordedSink = std::function<void(const RecordedEvent&)>;

/// Hands out the events one by one, so that the recording need not fit in memory. Throws InputError naming the row: a
/// size that is 0 or negative, a free of an unknown block or of another size, an address in use, a time that goes back,
/// a running total that is not the sum, a file that was cut off.
void read_recording(const std::string& path, const RecordedSink& sink);

}  // namespace tidemark
