#include "tidemark/input/ddp.hpp"

#include "tidemark/input/quantities.hpp"
#include "tidemark/input/yaml_map.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t max_mebibytes = 1'000'000;

}  // namespace

Ddp read_ddp(const Field* field, bool wraps) {
  Ddp out;
  if (field == nullptr) return out;
  if (!wraps)
    field->fail("'ddp' is for whole replicas of model code huggingface and torchtitan: data above 1, sharding none");
  const YamlMap map(field->value, block("ddp"));
  if (const auto cap = map.optional("bucket_cap_mb")) {
    out.bucket_cap_mb = positive_integer(*cap, max_mebibytes);
    out.bucket_cap_given = true;
  }
  out.gradient_as_bucket_view = map.get("gradient_as_bucket_view", boolean, out.gradient_as_bucket_view);
  out.no_sync = map.get("no_sync", boolean, out.no_sync);
  return out;
}

}  // namespace tidemark
