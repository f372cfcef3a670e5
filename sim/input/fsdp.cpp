#include "tidemark/input/fsdp.hpp"

#include <fmt/core.h>

#include "tidemark/input/quantities.hpp"
#include "tidemark/input/yaml_map.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t max_depth = 65'536;

/// true: among all ranks; false: not; n: among n, which must divide them.
int reshard_ranks(const Field& field, int ranks) {
  const std::string& text = field.value->text;
  if (text == "true") return 0;
  if (text == "false") return 1;
  const auto among = parse_whole(text);
  if (!among || *among < 2 || ranks % *among != 0)
    field.must_be(fmt::format("true, false, or a number of ranks from 2 on that divides the {} of 'data'", ranks));
  return *among == ranks ? 0 : static_cast<int>(*among);
}

int depth(const Field& field) { return static_cast<int>(whole_number(field, 0, max_depth)); }

}  // namespace

Fsdp read_fsdp(const Field* field, const Shards& shards, const Training& training) {
  Fsdp out;
  out.reshard_last_block = training.profile.model_code != "torchtitan";
  if (field == nullptr) return out;
  if (!gathers_units(shards))
    field->fail(fmt::format("'fsdp' is for sharding fsdp1 and fsdp2, not {}",
                            sharding_names[static_cast<std::size_t>(shards.sharding)]));
  const YamlMap map(field->value, block("fsdp"));
  out.forward_prefetch = map.get("forward_prefetch", depth, out.forward_prefetch);
  out.backward_prefetch = map.get("backward_prefetch", depth, out.backward_prefetch);
  out.limit_all_gathers = map.get("limit_all_gathers", boolean, out.limit_all_gathers);
  if (const auto reshard = map.optional("reshard_after_forward")) {
    out.reshard_after_forward = reshard_ranks(*reshard, shards.data);
    if (out.reshard_after_forward > 1 && shards.sharding == Sharding::fsdp1)
      reshard->fail("fsdp1 reshards among all ranks or not at all; expected true or false");
  }
  out.reshard_last_block = map.get("reshard_last_block", boolean, out.reshard_last_block);
  if (const auto type = map.optional("parameter_dtype")) out.parameter_dtype = dtype(*type);
  if (const auto type = map.optional("reduce_dtype")) out.reduce_dtype = dtype(*type);
  out.no_sync = map.get("no_sync", boolean, out.no_sync);
  out.ignored_modules = map.get("ignored_modules", texts, out.ignored_modules);
  return out;
}

}  // namespace tidemark
