/// Which method plans which kind of model?
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tidemark/input/scenario.hpp"

namespace tidemark {

enum class ModelKind : std::uint8_t { ops, graph, chain, whole_step };
ModelKind kind_of(const Scenario& scenario);

/// Method names in the order in which a message lists them.
const std::vector<std::string>& plan_methods();

/// Throws InputError for an unknown method, and for one that does not take the model; the message names those that do.
void check_method(const std::string& method, ModelKind kind);

}  // namespace tidemark
