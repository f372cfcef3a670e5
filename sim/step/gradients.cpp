#include "tidemark/step/gradients.hpp"

#include <utility>

#include "tidemark/base/errors.hpp"
#include "tidemark/program/strides.hpp"

namespace tidemark {

GradientId Gradients::make(StorageId storage, Shape shape, Shape strides, bool is_view) {
  all_.push_back({storage, std::move(shape), std::move(strides), is_view, 1});
  return static_cast<GradientId>(all_.size()) - 1;
}

void Gradients::release(GradientId id) {
  Object& object = at(id);
  check(object.handles > 0, "a gradient is released more often than it is held");
  if (--object.handles == 0) emit_.release(object.storage);
}

GradientId Gradients::viewed(GradientId id, Shape shape, Shape strides) {
  const StorageId storage = at(id).storage;
  emit_.hold(storage);
  release(id);
  return make(storage, std::move(shape), std::move(strides), true);
}

GradientId Gradients::sum(GradientId old, GradientId arriving, const Tensor& of, std::vector<GradientId>& late) {
  if (old == no_gradient) return arriving;
  const Object& buffer = at(old);
  const bool alone = buffer.handles == 1 && emit_.holds(buffer.storage) == 1;
  if (runtime_.sums_in_place && alone && !buffer.is_view && is_dense(buffer.shape, buffer.strides)) {
    release(arriving);
    return old;
  }
  const Bytes bytes{*element_count(of.shape) * bytes_per_element(of.dtype)};
  const StorageId total = emit_.alloc(of.name + ".grad", bytes, Category::temporary, of.layer);
  Shape strides = buffer.strides;
  if (!is_dense(buffer.shape, strides)) strides = contiguous_strides(of.shape);
  release(old);
  if (runtime_.sums_in_place)
    release(arriving);
  else
    late.push_back(arriving);
  return make(total, of.shape, std::move(strides), false);
}

GradientId Gradients::steal_or_clone(GradientId arriving, const Tensor& leaf, std::vector<GradientId>& late) {
  const Object& object = at(arriving);
  // The layout contract: a dense leaf's gradient has its strides, any other leaf's is contiguous.
  const Shape layout = is_dense(leaf.shape, leaf.strides) ? leaf.strides : contiguous_strides(leaf.shape);
  if (object.handles == 1 && same_layout(leaf.shape, object.strides, layout)) return arriving;
  const Bytes bytes{*element_count(leaf.shape) * bytes_per_element(leaf.dtype)};
  const StorageId clone = emit_.alloc(leaf.name + ".grad", bytes, Category::gradient, leaf.layer);
  late.push_back(arriving);
  return make(clone, leaf.shape, layout, false);
}

StorageId Gradients::settle(GradientId arriving, const Tensor& leaf) {
  std::vector<GradientId> late;
  const GradientId kept = steal_or_clone(arriving, leaf, late);
  const StorageId id = storage(kept);
  emit_.hold(id);
  release(kept);
  for (const GradientId dying : late) release(dying);
  emit_.step().storages[id].category = Category::gradient;
  return id;
}

}  // namespace tidemark
