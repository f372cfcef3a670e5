#include "tidemark/step/emitter.hpp"

#include "tidemark/base/errors.hpp"

namespace tidemark {

StorageId Emitter::new_storage(std::string_view name, Bytes bytes, Category category, std::int32_t layer) {
  const auto id = static_cast<StorageId>(step_.storages.size());
  // Nobody sees a storage of nothing, so it needs no name.
  step_.storages.push_back({bytes, bytes.count > 0 ? step_.names.id(name) : 0, layer, category});
  holds_.push_back(1);
  return id;
}

StorageId Emitter::initial(std::string_view name, Bytes bytes, Category category, std::int32_t layer) {
  const StorageId id = new_storage(name, bytes, category, layer);
  if (bytes.count > 0) step_.initial.push_back(id);
  return id;
}

OpId Emitter::begin_op(StepOp op, std::string_view name) {
  op.name = step_.names.id(name);
  op_ = static_cast<OpId>(step_.ops.size());
  op.read_begin = op.read_end = static_cast<std::uint32_t>(step_.reads.size());
  step_.ops.push_back(op);
  return op_;
}

StorageId Emitter::alloc(std::string_view name, Bytes bytes, Category category, std::int32_t layer) {
  const StorageId id = new_storage(name, bytes, category, layer);
  if (bytes.count > 0) step_.instructions.push_back({Do::alloc, Stream::compute, op_, id});
  return id;
}

void Emitter::release(StorageId id, Stream stream) {
  check(holds_[id] > 0, "a storage is released more often than it is held");
  if (--holds_[id] > 0) return;
  if (const auto use = uses_.find(id); use != uses_.end()) {
    if (stream == Stream::compute) stream = use->second.stream;
    uses_.erase(use);
  }
  if (step_.storages[id].bytes.count > 0) step_.instructions.push_back({Do::free, stream, op_, id});
}

void Emitter::copy_and_wait(const std::vector<StorageId>& touched) {
  copy(touched);
  wait(record(step_.ops[op_].stream), Stream::compute);
}

void Emitter::run(Do what, const std::vector<StorageId>& touched) {
  StepOp& op = step_.ops[op_];
  op.read_begin = static_cast<std::uint32_t>(step_.reads.size());
  for (const StorageId id : touched)
    if (step_.storages[id].bytes.count > 0) step_.reads.push_back(id);
  op.read_end = static_cast<std::uint32_t>(step_.reads.size());
  if (!uses_.empty())
    for (const StorageId id : touched)
      if (const auto use = uses_.find(id); use != uses_.end() && use->second.writes && use->second.stream != op.stream)
        wait(use->second.until, op.stream);
  step_.instructions.push_back({what, op.stream, op_, op_});
}

std::uint32_t Emitter::record(Stream stream) {
  step_.instructions.push_back({Do::record, stream, op_, step_.events});
  return step_.events++;
}

void Emitter::wait(std::uint32_t event, Stream stream) {
  step_.instructions.push_back({Do::wait, stream, op_, event});
  if (stream == Stream::compute) std::erase_if(uses_, [&](const auto& use) { return use.second.until == event; });
}

}  // namespace tidemark
