#include "tidemark/plan/discards.hpp"

#include <algorithm>
#include <string>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

bool starts_with_any(std::string_view name, const std::vector<std::string_view>& prefixes) {
  return std::ranges::any_of(prefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

/// The ops for which `member` holds, made again before the last op for which `awaited` holds.
template <class Member, class Awaited>
void add(std::vector<Discard>& out, const OutlineLayer& layer, const Member& member, const Awaited& awaited) {
  Discard found;
  for (std::size_t k = 0; k < layer.ops.size(); ++k) {
    const std::string_view name = layer.ops[k].name;
    if (member(name)) found.ops.push_back(static_cast<std::int32_t>(k));
    if (awaited(name)) found.before = static_cast<std::int32_t>(k);
  }
  if (!found.ops.empty() && found.before > found.ops.back()) out.push_back(std::move(found));
}

/// transformer_layer.py: each norm's output is made again on the gradient of what its branch puts out.
std::vector<Discard> layernorm(const OutlineLayer& layer) {
  std::vector<Discard> out;
  for (const std::string branch : {"attention", "mlp"})
    add(
        out, layer,
        [&](std::string_view name) { return name == branch + "_norm" || name.starts_with(branch + "_norm."); },
        [&](std::string_view name) { return name.starts_with(branch + "."); });
  return out;
}

/// experts.py: on the gradient of fc2's output.
std::vector<Discard> moe_act(const OutlineLayer& layer) {
  std::vector<Discard> out;
  add(
      out, layer,
      [](std::string_view name) {
        return starts_with_any(name, {"mlp.experts.swiglu", "mlp.experts.activation", "mlp.experts.mul"});
      },
      [](std::string_view name) { return name == "mlp.experts.down_proj"; });
  return out;
}

/// multi_latent_attention.py, qkv_up_proj_and_rope_apply: from the narrow rows to heads of queries, keys and values, on
/// the gradient of the attention core's output.
std::vector<Discard> mla_up_proj(const OutlineLayer& layer) {
  std::vector<Discard> out;
  if (std::ranges::none_of(layer.ops, [](const OutlineOp& op) { return op.name == "attention.kv_b_proj"; })) return out;
  const std::vector<std::string_view> outside = {"attention.q_a_proj", "attention.kv_a_proj", "attention.core_attn",
                                                 "attention.merge", "attention.o_proj"};
  add(
      out, layer,
      [&](std::string_view name) { return name.starts_with("attention.") && !starts_with_any(name, outside); },
      [](std::string_view name) { return name.starts_with("attention.core_attn"); });
  return out;
}

}  // namespace

std::vector<Discard> discards(std::string_view module, const OutlineLayer& layer) {
  if (module == "layernorm") return layernorm(layer);
  if (module == "moe_act") return moe_act(layer);
  if (module == "mla_up_proj") return mla_up_proj(layer);
  std::string known;
  for (const std::string_view one : discarding_modules) known += (known.empty() ? "" : ", ") + std::string(one);
  throw InputError("'" + std::string(module) + "' is no module that discards its output; known are " + known);
}

}  // namespace tidemark
