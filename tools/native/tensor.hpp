/// Who holds a piece of memory, and when is it given back?
///
/// A Tensor is one handle on a block of the arena; the last handle to go gives the block back. There is no other rule:
/// lifetimes are those of the C++ variables that a model's code is written with.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arena.hpp"
#include "record.hpp"

namespace tidemark::native {

class Machine;

struct Block {
  Machine* machine = nullptr;
  void* data = nullptr;
  std::int64_t bytes = 0;
  StorageNumber storage = 0;
  std::int32_t handles = 0;
};

/// Up to four extents or strides, in elements.
struct Dims {
  static constexpr std::size_t most = 4;
  std::array<std::int64_t, most> at{};
  std::size_t size = 0;

  Dims() = default;
  Dims(std::initializer_list<std::int64_t> extents) : size(extents.size()) {
    std::copy(extents.begin(), extents.end(), at.begin());
  }
  std::int64_t& operator[](std::size_t i) { return at[i]; }
  std::int64_t operator[](std::size_t i) const { return at[i]; }
  std::int64_t back() const { return at[size - 1]; }
  friend bool operator==(const Dims&, const Dims&) = default;
};
/// Product of the extents; 1 of none.
std::int64_t element_count(const Dims& shape);
Dims row_major_strides(const Dims& shape);

class Tensor {
 public:
  Tensor() = default;
  /// Takes over one handle.
  Tensor(Block* block, Name name, Dims shape)
      : block_(block), name_(name), shape_(shape), strides_(row_major_strides(shape)) {}
  Tensor(const Tensor& other);
  Tensor(Tensor&& other) noexcept;
  /// What was held before is let go once the new value is in place, as a Python variable does.
  Tensor& operator=(Tensor other) noexcept;
  ~Tensor() { let_go(); }

  void let_go();
  bool is_empty() const { return block_ == nullptr; }
  /// Laid out otherwise than its memory was made.
  bool is_view() const { return is_view_; }
  bool is_only_handle() const { return block_->handles == 1; }
  bool shares_memory_with(const Tensor& other) const { return block_ == other.block_; }

  Name name() const { return name_; }
  const Dims& shape() const { return shape_; }
  const Dims& strides() const { return strides_; }
  std::int64_t elements() const { return element_count(shape_); }
  /// Of the view, not of the block.
  std::int64_t bytes() const { return elements() * item_bytes_; }
  float* data() const { return static_cast<float*>(block_->data) + offset_; }
  template <class T>
  T* data_as() const {
    return static_cast<T*>(block_->data);
  }
  Category category() const;
  void set_category(Category category) const;
  /// Temporary until something keeps it for backward, or a recompute starts from it.
  void mark_activation() const;

  /// The same memory under another name and shape.
  Tensor view(Name name, Dims shape, Dims strides, std::int64_t offset = 0) const;
  void rename(Name name) { name_ = name; }
  void set_item_bytes(std::int64_t bytes) { item_bytes_ = bytes; }

 private:
  Block* block_ = nullptr;
  Name name_;
  Dims shape_, strides_;
  std::int64_t offset_ = 0;  // elements
  std::int64_t item_bytes_ = sizeof(float);
  bool is_view_ = false;
};

/// Lets go in the order written.
template <class... Tensors>
void let_go(Tensors&... tensors) {
  (tensors.let_go(), ...);
}

/// Arena and record together: what a native program runs on.
class Machine {
 public:
  Arena arena;
  Record record;
  /// A planted fault, so that a test can see a comparison fail: where two tensors die together, the other goes first.
  bool swap_frees = false;

  /// The text for as long as the machine lives, so that records may name it.
  std::string_view lasting(const std::string& text) { return *texts_.insert(text).first; }
  Tensor allocate(Name name, Dims shape, Category category = Category::temporary,
                  std::int64_t item_bytes = sizeof(float));
  void begin_op(Name name, std::string_view layer, Phase phase) {
    record.begin_op(name, layer, phase, arena.live_bytes());
  }
  void free(Block* block);

 private:
  std::set<std::string> texts_;
  std::deque<Block> blocks_;
  std::vector<Block*> unused_;
};

}  // namespace tidemark::native
