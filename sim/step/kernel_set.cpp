#include <algorithm>
#include <optional>
#include <set>

#include "kernels/draft.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/program/outline.hpp"
#include "tidemark/step/kernel.hpp"

namespace tidemark {
namespace {

struct NamedRules {
  std::string_view name;
  kernels::RuleTable (*make)();
};
constexpr NamedRules kernel_sets[] = {
    {"ideal", kernels::ideal_rules},
    {"reference", kernels::ideal_rules},
    {"cpu-1.13", kernels::cpu_1_13_rules},
    {"cpu-2.6", kernels::cpu_2_6_rules},
    {"cuda-sm80", kernels::cuda_rules},
    {"cuda-sm90", kernels::cuda_rules},
    {"transformer-engine", kernels::transformer_engine_rules},
};

const Tensor& at(const Program& program, TensorId id) { return program.tensors[static_cast<std::size_t>(id)]; }

/// "attention.softmax" of layer "layers.3" and op "layers.3.attention.softmax".
std::string within_layer(const std::string& layer, const std::string& op) {
  return op.size() > layer.size() && op.starts_with(layer) && op[layer.size()] == '.' ? op.substr(layer.size() + 1)
                                                                                      : op;
}

}  // namespace

KernelSet::KernelSet(const std::string& kernels, const std::string& pytorch) {
  std::string known;
  for (const NamedRules& set : kernel_sets) {
    if (set.name == kernels) {
      kernels::RuleTable table = set.make();
      if (pytorch == "1.10") kernels::set_torch_1_10_rules(table);
      rules_.assign(table.begin(), table.end());
      return;
    }
    known += (known.empty() ? "" : ", ") + std::string(set.name);
  }
  throw InputError("unknown kernels '" + kernels + "'; known are " + known);
}

Kernel KernelSet::kernel(const Program& program, const ProgramOp& op) const {
  Kernel kernel = rules_[static_cast<std::size_t>(op.kind)]({program, op});
  // Where no result needs a gradient there is no node.
  if (std::ranges::none_of(op.outputs, [&](TensorId t) { return at(program, t).requires_grad; })) {
    kernel.saved.clear();
    kernel.gradients.clear();
    kernel.backward.clear();
    kernel.backward_cost = {};
  }
  return kernel;
}

Outline outline(const Program& program, const KernelSet& kernels) {
  Outline out;
  for (const Layer& layer : program.layers) out.layers.push_back({layer.name, layer.type, layer.is_block, {}, {}});
  // A storage that several nodes of a layer save is counted once; the batch and the parameters live anyway.
  std::set<std::pair<std::int32_t, std::int32_t>> counted;
  std::vector<std::optional<OpRef>> maker(program.tensors.size());
  for (const ProgramOp& op : program.ops) {
    const Kernel kernel = kernels.kernel(program, op);
    OutlineLayer& layer = out.layers[static_cast<std::size_t>(op.layer)];
    OutlineOp& row = layer.ops.emplace_back();
    row.name = within_layer(layer.name, op.name);
    row.kind = to_string(op.kind);
    row.forward_flops = Flops{kernel.forward_cost.matmul_flops};
    for (const Move& move : kernel.forward)
      if (move.what == Move::What::alloc && move.slot.of == Slot::Of::output) {
        const TensorId id = op.outputs[static_cast<std::size_t>(move.slot.index)];
        row.output_bytes += program.storages[static_cast<std::size_t>(at(program, id).storage)].bytes;
      }
    out.step_flops += Flops{kernel.forward_cost.matmul_flops} + Flops{kernel.backward_cost.matmul_flops};
    for (const Saved& saved : kernel.saved) {
      const auto i = static_cast<std::size_t>(saved.index);
      if (saved.of == Saved::Of::temp) {
        row.saved_bytes += kernel.temps[i].bytes;
        row.saved.push_back({-1, kernel.temps[i].bytes});
        continue;
      }
      const Tensor& tensor = at(program, saved.of == Saved::Of::input ? op.inputs[i] : op.outputs[i]);
      if (tensor.category == Category::parameter || tensor.category == Category::input) continue;
      const OutlineSaved held{tensor.storage, program.storages[static_cast<std::size_t>(tensor.storage)].bytes};
      if (counted.emplace(op.layer, tensor.storage).second) row.saved_bytes += held.bytes;
      if (std::ranges::find(row.saved, held) == row.saved.end()) row.saved.push_back(held);
    }
    layer.saved_bytes += row.saved_bytes;
    for (const TensorId id : op.inputs) {
      const auto& made = maker[static_cast<std::size_t>(id)];
      if (made) row.inputs.push_back(*made);
      if (op.attributes.in_place && at(program, id).storage == at(program, op.outputs.front()).storage)
        row.overwrites = made;
    }
    std::ranges::sort(row.inputs);
    row.inputs.erase(std::unique(row.inputs.begin(), row.inputs.end()), row.inputs.end());
    for (const TensorId id : op.outputs)
      maker[static_cast<std::size_t>(id)] = {op.layer, static_cast<std::int32_t>(layer.ops.size()) - 1};
  }
  return out;
}

}  // namespace tidemark
