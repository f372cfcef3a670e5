#include "optimizer_block.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "tidemark/input/quantities.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t largest_block = 1 << 20;

bool clips(const YamlMap& map) {
  const auto field = map.optional("clip_grad_norm");
  if (!field) return false;
  const std::optional<Decimal> norm = parse_decimal(field->value->text);
  if (field->value->kind != DocNode::Kind::scalar || !norm || norm->digits == 0) field->must_be("a decimal above 0");
  return true;
}

/// States that share a scale, or 0. bitsandbytes: 256 since 0.45, 2048 before.
std::int64_t block_8bit(const YamlMap& map, OptimizerKind kind) {
  const auto block = map.optional("block_size");
  if (map.get("states", choice, std::string("plain")) == "plain") {
    if (block) block->fail("'block_size' is for states: 8bit");
    return 0;
  }
  if (kind == OptimizerKind::none || kind == OptimizerKind::sgd)
    map.optional("states")->fail("8-bit states are for the kinds momentum, adam and adamw, which have states");
  return block ? positive_integer(*block, largest_block) : 256;
}

/// What has to see all gradients at once has no place in the hook of one.
const char* contradicts_in_backward(const Optimizer& optimizer, const Training& training, bool parallel) {
  if (optimizer.kind == OptimizerKind::none) return "kind: none";
  if (optimizer.clips) return "clip_grad_norm";
  if (!optimizer.zero_grad_to_none) return "zero_grad: zero";
  if (training.batch.accumulate > 1) return "batch.accumulate";
  if (training.dtypes.main_gradients) return "dtype.main_gradients";
  return parallel ? "parallel" : nullptr;
}

}  // namespace

Optimizer read_optimizer_block(const YamlMap& map, const Training& training, bool parallel) {
  Optimizer out;
  const std::string kind = choice(map.require("kind"));
  out.kind = static_cast<OptimizerKind>(std::ranges::find(optimizer_names, kind) - optimizer_names.begin());
  out.multi_tensor = map.get("multi_tensor", boolean, out.multi_tensor);
  out.fused = map.get("fused", boolean, out.fused);
  out.zero_grad_to_none = map.get("zero_grad", choice, std::string("none")) == "none";
  out.in_backward = map.get("in_backward", boolean, out.in_backward);
  out.clips = clips(map);
  out.block_8bit = block_8bit(map, out.kind);
  const char* other = contradicts_in_backward(out, training, parallel);
  if (out.in_backward && other != nullptr)
    map.optional("in_backward")
        ->fail(fmt::format("'in_backward' frees each gradient as it comes and does not go with '{}'", other));
  return out;
}

}  // namespace tidemark
