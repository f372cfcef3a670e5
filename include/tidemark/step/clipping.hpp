/// What does it allocate to limit the norm of all gradients?
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/base/vocabulary.hpp"
#include "tidemark/step/emitter.hpp"

namespace tidemark {

/// One parameter as the optimizer sees it.
struct OptimizerParameter {
  std::string name;
  std::int64_t elements = 0;
  std::int32_t layer = -1;
  DType dtype = DType::float32;
  StorageId storage = no_id;
  StorageId gradient = no_id;  // no_id: no gradient, so it is skipped
};

/// per_tensor: torch.nn.utils.clip_grad_norm_ where tensors have no foreach kernels. foreach: the same with them.
/// multi_tensor_norm: Megatron-LM's clip_grads.py.
enum class ClippingForm : std::uint8_t { per_tensor, foreach, multi_tensor_norm };

/// The norm of all gradients, of `gradient_dtype` where they are main gradients, and their scaling in place. Gradients
/// are read and written where they lie; what is made dies before the update.
void emit_clipping(Emitter& emit, const std::vector<OptimizerParameter>& parameters, ClippingForm form,
                   std::optional<DType> gradient_dtype, int step);

}  // namespace tidemark
