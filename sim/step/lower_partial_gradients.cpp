// Which gradients do tensor-parallel ranks add up when a step ends?
#include <set>
#include <string>

#include "issued_ops.hpp"
#include "program_lowering.hpp"

namespace tidemark {

/// Of parameters that every tensor-parallel rank has whole, but whose gradients it has of its own tokens, or heads,
/// alone: under sequence parallelism vectors that no rank has a part of (norms, biases behind row products) and weights
/// that each multiplies its own tokens with (routers, the narrow ones of latent attention), and norms of queries and
/// keys always. megatron/core/distributed/finalize_model_grads.py, _allreduce_layernorm_grads.
std::vector<StorageId> ProgramLowering::partial_gradients() {
  std::set<std::string> divided;  // biases of column products, whoever adds them
  std::set<std::string> whole;    // weights of products that are not divided
  for (const ProgramOp& op : program_.ops) {
    if (op.kind != OpKind::linear) continue;
    const std::string& weight = tensor(op.inputs[1]).name;
    if (op.attributes.implementation.starts_with("column"))
      divided.insert(weight.substr(0, weight.rfind('.')) + ".bias");
    else if (!op.attributes.implementation.starts_with("row"))
      whole.insert(weight);
  }
  std::vector<StorageId> out;
  for (const TensorId t : parameter_tensors_) {
    const std::string& name = tensor(t).name;
    const bool of_heads = name.find(".q_norm") != std::string::npos || name.find(".k_norm") != std::string::npos;
    const bool of_own = whole.contains(name) || (tensor(t).shape.size() == 1 && !divided.contains(name));
    const bool of_tokens = training_.shards.sequence && of_own;
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
  emit_.begin_op(collective_op(step_number_, Bytes{2 * passed_in_ring(bytes.count, ranks)}),
                 "norm_gradients.all_reduce");
  StorageId flat = none;
  if (touched.size() > 1) touched.push_back(flat = emit_.alloc("norm_gradients.flat", bytes, Category::temporary, -1));
  emit_.compute(touched);
  if (flat != none) emit_.release(flat);
}

}  // namespace tidemark
