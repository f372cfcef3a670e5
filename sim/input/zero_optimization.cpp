#include "tidemark/input/zero_optimization.hpp"

#include <fmt/core.h>

#include <optional>
#include <string>
#include <string_view>

#include "tidemark/input/quantities.hpp"
#include "tidemark/input/yaml_map.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t max_elements = 1'000'000'000'000;

/// "5e8", as DeepSpeed's files write counts, in digits; any other text as it is.
std::string in_digits(const std::string& text) {
  const std::size_t e = text.find('e');
  const auto zeros = e == std::string::npos ? std::nullopt : parse_whole(std::string_view(text).substr(e + 1));
  if (!zeros || *zeros > 12 || !parse_whole(std::string_view(text).substr(0, e))) return text;
  return text.substr(0, e) + std::string(static_cast<std::size_t>(*zeros), '0');
}

std::int64_t count_from(const Field& field, std::int64_t least) {
  const auto value = parse_whole(in_digits(field.value->text));
  if (!field.value->quoted && value && *value >= least && *value <= max_elements) return *value;
  return whole_number(field, least, max_elements);  // says what is wrong
}

std::int64_t elements(const Field& field) { return count_from(field, 0); }
std::int64_t bucket(const Field& field) { return count_from(field, 1); }

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
