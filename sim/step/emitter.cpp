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
  if (--holds_[id] == 0 && step_.storages[id].bytes.count > 0)
    step_.instructions.push_back({Do::free, stream, op_, id});
}

void Emitter::compute(const std::vector<StorageId>& touched) {
  read(touched);
  step_.instructions.push_back({Do::compute, step_.ops[op_].stream, op_, op_});
}

void Emitter::copy_and_wait(const std::vector<StorageId>& touched) {
  read(touched);
  const Stream stream = step_.ops[op_].stream;
  const std::uint32_t done = step_.events++;
  step_.instructions.push_back({Do::copy, stream, op_, op_});
  step_.instructions.push_back({Do::record, stream, op_, done});
  step_.instructions.push_back({Do::wait, Stream::compute, op_, done});
}

void Emitter::read(const std::vector<StorageId>& touched) {
  StepOp& op = step_.ops[op_];
  op.read_begin = static_cast<std::uint32_t>(step_.reads.size());
  for (const StorageId id : touched)
    if (step_.storages[id].bytes.count > 0) step_.reads.push_back(id);
  op.read_end = static_cast<std::uint32_t>(step_.reads.size());
}

}  // namespace tidemark
