/// What did a run allocate and free, as somebody recorded it?
///
/// One reader for every recording, told apart by what is in the file; each may be gzipped:
///   our timeline CSV (docs/output.md);
///   minimalloc's CSV (id,lower,upper,size, and offset where addresses are given);
///   HTA's event CSV (t_us,addr,bytes,total_allocated,total_reserved; a negative size frees);
///   torch.profiler's raw memory timeline ([[t_ns, action, bytes, category], ...]);
///   torch.profiler's Chrome trace (its "[memory]" events);
///   torch.cuda.memory's snapshot (a pickle, of which nothing is ever run).
/// Where a format gives no addresses, a freed block is the oldest of its size (and category).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tidemark/base/errors.hpp"
#include "tidemark/base/units.hpp"

namespace tidemark {

struct RecordedEvent {
  enum class What : std::uint8_t { alloc, free, category };  // category: the block only changes it
  std::int64_t row = 0;   // line of a CSV, else number of the event in the file, from 1; 0: a block older than it
  std::int64_t time = 0;  // ns
  What what = What::alloc;
  bool is_earlier = false;  // the block is older than the recording; such come first
  std::uint64_t block = 0;  // pairs an alloc with its free
  Bytes bytes;
  std::string name = {};                           // who asked, where known
  std::optional<int> category = {};                // of the raw timeline's
  std::optional<int> category_before = {};         // What::category
  std::optional<Bytes> total = {}, reserved = {};  // as recorded, after the event
};

/// Hands out the events one by one. CSV (but minimalloc's, which is in no order) and raw timelines need not fit in
/// memory; of a Chrome trace the memory events alone are held (56 bytes each, 32 million at most), of a snapshot all
/// (64 million values at most).
///
/// Throws InputError naming the row: a size that is 0 or negative, a free of an unknown block or of another size, an
/// address in use, a time that goes back, a running total that is not the sum, a file that was cut off, one that is
/// larger than the above, a pickle that holds anything but containers, strings and numbers.
class RecordingReader {
 public:
  /// `device` is "cpu" or "cuda:N". Without one: the only GPU that the file speaks of, else the CPU.
  explicit RecordingReader(const std::string& path, const std::string& device = "");
  ~RecordingReader();
  RecordingReader(RecordingReader&&) noexcept;
  RecordingReader& operator=(RecordingReader&&) noexcept;
  std::optional<RecordedEvent> next();
  /// Nothing in the file tells which block a free is of, but its size.
  bool pairs_by_size() const;
  /// Where the event handed out last stands.
  SourceLoc where() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Is this file a scenario, our timeline CSV, or another recording? By its name's end (.csv; .gz, .pickle, .pkl), of a
/// .csv and a .json also by its beginning.
enum class RecordingKind : std::uint8_t { none, timeline, other };
RecordingKind recording_kind(const std::string& path);

using RecordedSink = std::function<void(const RecordedEvent&)>;
/// All events of the recording, in order; `device` as the reader takes it.
void read_recording(const std::string& path, const std::string& device, const RecordedSink& sink);

}  // namespace tidemark
