#include "tidemark/step/clipping.hpp"

#include <algorithm>
#include <map>

namespace tidemark {
namespace {

constexpr std::int64_t chunk_elements = 65'536;  // kChunkSize (ATen/native/cuda/MultiTensorApply.cuh)
constexpr std::int64_t block_sums = 320;         // multi_tensor_l2norm_cuda (apex, Transformer Engine)

struct Group {
  std::vector<StorageId> gradients;
  std::int64_t elements = 0;
  std::int64_t largest = 0;  // elements of the largest one
};

class Clipping {
 public:
  Clipping(Emitter& emit, const std::vector<OptimizerParameter>& parameters, std::optional<DType> gradient_dtype,
           int step)
      : emit_(emit), step_(step) {
    for (const OptimizerParameter& p : parameters) {
      if (p.gradient == no_id) continue;
      Group& group = groups_[gradient_dtype.value_or(p.dtype)];
      group.gradients.push_back(p.gradient);
      group.elements += p.elements;
      group.largest = std::max(group.largest, p.elements);
    }
  }

  /// One norm a tensor, all of them stacked, the norm of those; max / (norm + 1e-6), clamped; in-place products
  /// (torch/nn/utils/clip_grad.py, 2.6). _foreach_norm has fp32 sums of chunks, as many for each tensor as the largest
  /// one needs (ATen/native/cuda/ForeachReduceOp.cu).
  void torch_form(bool foreach) {
    std::vector<StorageId> norms;
    DType widest = groups_.begin()->first;
    std::int64_t tensors = 0;
    for (const auto& [dtype, group] : groups_) {
      if (bytes_per_element(dtype) > bytes_per_element(widest)) widest = dtype;
      const auto count = static_cast<std::int64_t>(group.gradients.size());
      tensors += count;
      begin("clip.norm", dtype, 2 * group.elements, group.elements * bytes_per_element(dtype));
      StorageId sums = no_id;
      if (foreach) {
        const std::int64_t chunks = (group.largest + chunk_elements - 1) / chunk_elements;
        sums = temporary("clip.chunk_sums", 4 * count * chunks);
      }
      for (std::size_t i = 0; i < group.gradients.size(); ++i)
        norms.push_back(temporary("clip.tensor_norm", bytes_per_element(dtype)));
      emit_.compute(group.gradients);
      if (sums != no_id) emit_.release(sums);
    }
    const std::int64_t size = bytes_per_element(widest);
    begin("clip.total_norm", widest, 2 * tensors, tensors * size);
    const StorageId stacked = temporary("clip.stacked_norms", tensors * size);
    const StorageId total = temporary("clip.total_norm", size);
    emit_.compute(norms);
    emit_.release(stacked);
    for (; !norms.empty(); norms.pop_back()) emit_.release(norms.back());
    begin("clip.coefficient", widest, 4, 4 * size);
    const StorageId sum = temporary("clip.norm_plus_epsilon", size);
    const StorageId inverse = temporary("clip.reciprocal", size);
    const StorageId coefficient = temporary("clip.coefficient", size);
    emit_.release(inverse);
    emit_.release(sum);
    const StorageId clamped = temporary("clip.clamped", size);
    emit_.compute({total, coefficient});
    for (const auto& [dtype, group] : groups_) scale(dtype, group);
    for (const StorageId id : {clamped, coefficient, total}) emit_.release(id);
  }

  /// get_grad_norm_fp32 and clip_grad_by_total_norm_fp32 (megatron/core/optimizer/clip_grads.py): one kernel for all
  /// tensors, whose result is read by the host.
  void megatron_form() {
    for (const auto& [dtype, group] : groups_) {
      begin("clip.norm", dtype, 2 * group.elements, group.elements * bytes_per_element(dtype));
      const StorageId overflow = temporary("clip.overflow", 4);
      const StorageId sums = temporary("clip.block_sums", 4 * block_sums);
      const StorageId norm = temporary("clip.total_norm", 4);
      emit_.compute(group.gradients);
      emit_.release(sums);
      const StorageId square = temporary("clip.square", 4);
      for (const StorageId id : {square, norm, overflow}) emit_.release(id);
    }
    for (const auto& [dtype, group] : groups_) {
      begin("clip.overflow", dtype, 0, 4);
      const StorageId overflow = temporary("clip.overflow", 4);
      emit_.compute({overflow});
      scale(dtype, group);
      emit_.release(overflow);
    }
  }

  bool has_gradients() const { return !groups_.empty(); }

 private:
  void begin(const std::string& name, DType dtype, std::int64_t flops, std::int64_t moved) {
    StepOp op;
    op.phase = Phase::optimizer;
    op.step = static_cast<std::int16_t>(step_);
    op.dtype = dtype;
    op.other_flops = flops;
    op.moved = Bytes{moved};
    emit_.begin_op(op, name);
  }
  StorageId temporary(const char* name, std::int64_t bytes) {
    return emit_.alloc(name, Bytes{bytes}, Category::temporary, -1);
  }
  void scale(DType dtype, const Group& group) {
    begin("clip.scale", dtype, group.elements, 2 * group.elements * bytes_per_element(dtype));
    emit_.compute(group.gradients);
  }

  Emitter& emit_;
  int step_;
  std::map<DType, Group> groups_;
};

}  // namespace

void emit_clipping(Emitter& emit, const std::vector<OptimizerParameter>& parameters, ClippingForm form,
                   std::optional<DType> gradient_dtype, int step) {
  Clipping clipping(emit, parameters, gradient_dtype, step);
  if (!clipping.has_gradients()) return;
  if (form == ClippingForm::multi_tensor_norm) return clipping.megatron_form();
  clipping.torch_form(form == ClippingForm::foreach);
}

}  // namespace tidemark
