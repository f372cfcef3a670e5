#include "tidemark/input/zero_optimization.hpp"

#include <fmt/core.h>

#include "tidemark/input/quantities.hpp"
#include "tidemark/input/yaml_map.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t max_elements = 1'000'000'000'000;

std::int64_t elements(const Field& field) { return whole_number(field, 0, max_elements); }
std::int64_t bucket(const Field& field) { return positive_integer(field, max_elements); }

}  // namespace

ZeroOptimization read_zero_optimization(const Field* field, const Shards& shards) {
  ZeroOptimization out;
  const bool third = shards.sharding == Sharding::zero3;
  out.overlap_comm = third;
  if (field == nullptr) return out;
  if (!is_deepspeed(shards))
    field->fail(fmt::format("'zero_optimization' is for sharding zero2 and zero3, not {}",
                            sharding_names[static_cast<std::size_t>(shards.sharding)]));
  const YamlMap map(field->value, block("zero_optimization"));
  out.reduce_bucket_size = map.get("reduce_bucket_size", bucket, out.reduce_bucket_size);
  out.contiguous_gradients = map.get("contiguous_gradients", boolean, out.contiguous_gradients);
  out.overlap_comm = map.get("overlap_comm", boolean, out.overlap_comm);
  if (const auto type = map.optional("grad_accum_dtype")) out.grad_accum_dtype = dtype(*type);
  const auto of_third = [&](std::string_view key, std::int64_t& value, auto read) {
    const auto given = map.optional(key);
    if (!given) return;
    if (!third) given->fail(fmt::format("'{}' is for sharding zero3, whose parameters are divided", key));
    value = read(*given);
  };
  of_third("stage3_prefetch_bucket_size", out.stage3_prefetch_bucket_size, elements);
  of_third("stage3_param_persistence_threshold", out.stage3_param_persistence_threshold, elements);
  of_third("stage3_max_live_parameters", out.stage3_max_live_parameters, elements);
  of_third("stage3_max_reuse_distance", out.stage3_max_reuse_distance, elements);
  of_third("sub_group_size", out.sub_group_size, bucket);
  return out;
}

}  // namespace tidemark
