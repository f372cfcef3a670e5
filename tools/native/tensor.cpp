#include "tensor.hpp"

namespace tidemark::native {

std::int64_t element_count(const Dims& shape) {
  std::int64_t count = 1;
  for (std::size_t i = 0; i < shape.size; ++i) count *= shape[i];
  return count;
}

Dims row_major_strides(const Dims& shape) {
  Dims strides = shape;
  std::int64_t stride = 1;
  for (std::size_t i = shape.size; i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

Tensor::Tensor(const Tensor& other)
    : block_(other.block_),
      name_(other.name_),
      shape_(other.shape_),
      strides_(other.strides_),
      offset_(other.offset_),
      item_bytes_(other.item_bytes_),
      is_view_(other.is_view_) {
  if (block_ != nullptr) ++block_->handles;
}

Tensor::Tensor(Tensor&& other) noexcept
    : block_(std::exchange(other.block_, nullptr)),
      name_(other.name_),
      shape_(other.shape_),
      strides_(other.strides_),
      offset_(other.offset_),
      item_bytes_(other.item_bytes_),
      is_view_(other.is_view_) {}

Tensor& Tensor::operator=(Tensor other) noexcept {
  std::swap(block_, other.block_);
  name_ = other.name_;
  shape_ = other.shape_;
  strides_ = other.strides_;
  offset_ = other.offset_;
  item_bytes_ = other.item_bytes_;
  is_view_ = other.is_view_;
  other.let_go();
  return *this;
}

void Tensor::let_go() {
  Block* block = std::exchange(block_, nullptr);
  if (block != nullptr && --block->handles == 0) block->machine->free(block);
}

Category Tensor::category() const { return block_->machine->record.storage(block_->storage).category; }

void Tensor::set_category(Category category) const {
  block_->machine->record.storage(block_->storage).category = category;
}

void Tensor::mark_activation() const {
  if (category() == Category::temporary) set_category(Category::activation);
}

Tensor Tensor::view(Name name, Dims shape, Dims strides, std::int64_t offset) const {
  Tensor out(*this);
  out.name_ = name;
  out.shape_ = shape;
  out.strides_ = strides;
  out.offset_ += offset;
  out.is_view_ = true;
  return out;
}

Tensor Machine::allocate(Name name, Dims shape, Category category, std::int64_t item_bytes) {
  Block* block = nullptr;
  if (unused_.empty()) {
    block = &blocks_.emplace_back();
    unused_.reserve(blocks_.size());
  } else {
    block = unused_.back();
    unused_.pop_back();
  }
  const std::int64_t bytes = element_count(shape) * item_bytes;
  *block = {this, arena.take(bytes), bytes, 0, 1};
  block->storage = record.allocated(name, bytes, category, arena.live_bytes());
  Tensor out(block, name, shape);
  out.set_item_bytes(item_bytes);
  return out;
}

void Machine::free(Block* block) {
  arena.give_back(block->data, block->bytes);
  record.freed(block->storage, arena.live_bytes());
  unused_.push_back(block);
}

}  // namespace tidemark::native
