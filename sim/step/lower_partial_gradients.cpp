// Which gradients do tensor-parallel ranks add up when a step ends?
#include <set>
#include <string>

#include "program_lowering.hpp"

namespace tidemark {

/// Of parameters that every tensor-parallel rank has whole, but whose gradients it has of its own tokens, or heads,
/// alone: under sequence parallelism vectors that no rank has a part of (norms, biases behind row products), and norms
/// of queries and keys always. megatron/core/distributed/finalize_model_grads.py, _allreduce_layernorm_grads.
std::vector<StorageId> ProgramLowering::partial_gradients() {
  std::set<std::string> divided;  // biases of column products, whoever adds them
  for (const ProgramOp& op : program_.ops)
    if (op.kind == OpKind::linear && op.attributes.implementation.starts_with("column")) {
      const std::string& weight = tensor(op.inputs[1]).name;
      divided.insert(weight.substr(0, weight.rfind('.')) + ".bias");
    }
  std::vector<StorageId> out;
  for (const TensorId t : parameter_tensors_) {
    const std::string& name = tensor(t).name;
    const bool of_heads = name.find(".q_norm") != std::string::npos || name.find(".k_norm") != std::string::npos;
    const bool of_tokens = training_.shards.sequence && tensor(t).shape.size() == 1 && !divided.contains(name);
    if ((of_heads || of_tokens) && leaf_storage(t) != none) out.push_back(leaf_storage(t));
  }
  return out;
}

/// Copied side by side, added up over the ranks, copied back; a single one needs no copy.
void ProgramLowering::add_partial_gradients() {
  const std::int64_t ranks = training_.shards.tensor;
  if (ranks == 1) return;
  std::vector<StorageId> touched = partial_gradients();
  if (touched.empty()) return;
  Bytes bytes;
  for (const StorageId id : touched) bytes += step_.storages[id].bytes;
  StepOp op;
  op.phase = Phase::communication;
  op.step = static_cast<std::int16_t>(step_number_);
  op.kind = OpKind::collective;
  op.moved = Bytes{2 * (bytes.count - bytes.count / ranks)};
  emit_.begin_op(op, "norm_gradients.all_reduce");
  StorageId flat = none;
  if (touched.size() > 1) touched.push_back(flat = emit_.alloc("norm_gradients.flat", bytes, Category::temporary, -1));
  emit_.compute(touched);
  if (flat != none) emit_.release(flat);
}

}  // namespace tidemark
