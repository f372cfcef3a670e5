/// How is a Step written down without mistakes: storages by reference count, instructions in order?
///
/// The one place that makes StepStorages and Instructions. A storage is freed when its last hold lets go (M3).
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "tidemark/step/step.hpp"

namespace tidemark {

class Emitter {
 public:
  explicit Emitter(Step& step) : step_(step) {}

  /// A storage live before the first op. Its one hold belongs to the caller. Zero bytes makes no event.
  StorageId initial(std::string_view name, Bytes bytes, Category category, std::int32_t layer);
  /// Opens an op; instructions that follow are its script.
  OpId begin_op(StepOp op, std::string_view name);
  /// A fresh storage with one hold, which belongs to the caller.
  StorageId alloc(std::string_view name, Bytes bytes, Category category, std::int32_t layer);
  void hold(StorageId id) { ++holds_[id]; }
  /// Lets one hold go; the last one frees, when `stream` has done what was issued to it. What another stream still uses
  /// is freed on that one.
  void release(StorageId id, Stream stream = Stream::compute);
  /// The open op's kernel; it reads or writes these storages.
  void compute(const std::vector<StorageId>& touched) { run(Do::compute, touched); }
  /// The open op copies these to or from the host, on its stream.
  void copy(const std::vector<StorageId>& touched) { run(Do::copy, touched); }
  /// The same, and the compute stream waits for it.
  void copy_and_wait(const std::vector<StorageId>& touched);
  /// `stream` reads the storage until the event; if it is freed before computation has waited for that, it is freed on
  /// that stream (PyTorch's record_stream).
  void read_until(StorageId id, Stream stream, std::uint32_t event) { uses_[id] = {stream, event, false}; }
  /// `stream` writes it until the event: the next op that touches it waits.
  void written_at(StorageId id, Stream stream, std::uint32_t event) { uses_[id] = {stream, event, true}; }
  /// An event on the stream: it has done what was issued to it so far.
  std::uint32_t record(Stream stream);
  /// The stream goes on when the event has come.
  void wait(std::uint32_t event, Stream stream);
  std::int32_t holds(StorageId id) const { return holds_[id]; }
  Step& step() { return step_; }

 private:
  /// Of a storage by a stream that is not compute's.
  struct Use {
    Stream stream = Stream::compute;
    std::uint32_t until = 0;
    bool writes = false;
  };
  void run(Do what, const std::vector<StorageId>& touched);
  StorageId new_storage(std::string_view name, Bytes bytes, Category category, std::int32_t layer);
  Step& step_;
  std::vector<std::int32_t> holds_;
  std::map<StorageId, Use> uses_;  // those that computation has not waited for
  OpId op_ = no_id;
};

}  // namespace tidemark
