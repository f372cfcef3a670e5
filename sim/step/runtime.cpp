#include "tidemark/step/runtime.hpp"

#include "tidemark/base/errors.hpp"

namespace tidemark {

Runtime runtime_rules(const std::string& runtime) {
  if (runtime == "ideal" || runtime == "reference") return {};
  if (runtime == "pytorch-1.13")
    return {.host_scopes = true, .sums_in_place = false, .seed_held = true, .inputs_in_tuple = true};
  if (runtime == "pytorch-2.6")
    return {
        .host_scopes = true, .sums_in_place = true, .seed_held = true, .stops_early = true, .unpacks_to_locals = true};
  throw InputError("no runtime is called '" + runtime + "'; known are ideal, reference, pytorch-1.13, pytorch-2.6");
}

}  // namespace tidemark
