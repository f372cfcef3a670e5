#include "dtype_block.hpp"

#include <array>
#include <utility>

#include "tidemark/input/quantities.hpp"

namespace tidemark {
namespace {

std::optional<DType> dtype_or_none(const Field& field) {
  return choice(field) == "none" ? std::nullopt : std::optional(dtype(field));
}

}  // namespace

DTypes read_dtype_block(const YamlMap& map) {
  DTypes out;
  out.parameters = map.get("parameters", dtype, out.parameters);
  out.compute = map.get("compute", dtype, out.parameters);
  if (const auto autocast = map.optional("autocast")) {
    const DType cast = dtype(*autocast);
    if (map.has("compute") && cast != out.compute) autocast->fail("'autocast' contradicts 'compute'");
    out.autocast = true;
    out.compute = cast;
  }
  for (const auto& [key, member] : std::array<std::pair<std::string_view, std::optional<DType> DTypes::*>, 6>{
           {{"gradients", &DTypes::gradients},
            {"main_gradients", &DTypes::main_gradients},
            {"master", &DTypes::master},
            {"moments", &DTypes::moments},
            {"logits", &DTypes::logits},
            {"norms", &DTypes::norms}}})
    if (const auto field = map.optional(key)) out.*member = dtype_or_none(*field);
  return out;
}

/// Megatron-LM: DistributedDataParallel has a buffer of main gradients, in fp32 (arguments.py sets
/// accumulate_allreduce_grads_in_fp32 for bf16) or, for fp16, of the weights' type; the optimizer holds fp32 copies of
/// 16-bit weights (Float16OptimizerWithFloat16Params), and Transformer Engine's and Apex's FusedAdam fp32 states.
void keep_framework_states(const YamlMap* map, Training& training) {
  if (training.profile.loop != "megatron") return;
  DTypes& dtypes = training.dtypes;
  const auto said = [&](std::string_view key) { return map != nullptr && map->has(key); };
  const bool half = dtypes.parameters != DType::float32;
  if (!said("main_gradients"))
    dtypes.main_gradients = dtypes.parameters == DType::float16 ? DType::float16 : DType::float32;
  if (!said("master") && half) dtypes.master = DType::float32;
  if (!said("moments")) dtypes.moments = DType::float32;
}

}  // namespace tidemark
