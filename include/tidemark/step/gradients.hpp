/// Which gradients are on their way, who holds them, and what becomes of two that meet?
///
/// PyTorch's rules (autograd/engine.cpp, input_buffer.cpp, accumulate_grad.h of 1.13.1 and 2.6.0). A gradient is a
/// tensor object with handles: stealing looks at the handles, adding in place also at the storage's owners.
#pragma once

#include <vector>

#include "tidemark/program/program.hpp"
#include "tidemark/step/emitter.hpp"
#include "tidemark/step/runtime.hpp"

namespace tidemark {

using GradientId = std::int32_t;
inline constexpr GradientId no_gradient = -1;

class Gradients {
 public:
  Gradients(Emitter& emit, const Runtime& runtime) : emit_(emit), runtime_(runtime) {}

  /// A tensor object with one handle, which takes over one hold on `storage`.
  GradientId make(StorageId storage, Shape shape, Shape strides, bool is_view);
  void hold(GradientId id) { ++at(id).handles; }
  /// Lets one handle go; the last lets its hold on the storage go.
  void release(GradientId id);
  StorageId storage(GradientId id) const { return all_[static_cast<std::size_t>(id)].storage; }
  const Shape& shape(GradientId id) const { return all_[static_cast<std::size_t>(id)].shape; }
  const Shape& strides(GradientId id) const { return all_[static_cast<std::size_t>(id)].strides; }
  bool is_view(GradientId id) const { return all_[static_cast<std::size_t>(id)].is_view; }
  int handles(GradientId id) const { return all_[static_cast<std::size_t>(id)].handles; }

  /// A new tensor object on the same storage; the caller's handle on `id` is given up.
  GradientId viewed(GradientId id, Shape shape, Shape strides);

  /// E6: what an input buffer holds after `arriving` (its handle is taken over) met `old` (no_gradient: nothing).
  /// Under 1.13 the arriving one is put into `late`, to be released when the producing node has finished.
  GradientId sum(GradientId old, GradientId arriving, const Tensor& of, std::vector<GradientId>& late);

  /// E5: what a leaf without a gradient keeps of `arriving`: the tensor itself, or a clone when another handle is out
  /// or its layout is not the leaf's.
  GradientId steal_or_clone(GradientId arriving, const Tensor& leaf, std::vector<GradientId>& late);

  /// The same, as a leaf's .grad: the storage, with one hold that belongs to the caller.
  StorageId settle(GradientId arriving, const Tensor& leaf);

 private:
  struct Object {
    StorageId storage = no_id;
    Shape shape, strides;
    bool is_view = false;
    int handles = 1;
  };
  Object& at(GradientId id) { return all_[static_cast<std::size_t>(id)]; }
  Emitter& emit_;
  const Runtime& runtime_;
  std::vector<Object> all_;
};

}  // namespace tidemark
