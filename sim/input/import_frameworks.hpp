/// Which scenario do the settings of each framework describe? `root` is the map of them.
#pragma once

#include <cstdint>
#include <optional>

#include "tidemark/input/document.hpp"
#include "tidemark/input/imported_scenario.hpp"

namespace tidemark {

ImportedScenario import_megatron(const DocNode& root, std::optional<std::int64_t> vocabulary);
ImportedScenario import_torchtitan(const DocNode& root);

}  // namespace tidemark
