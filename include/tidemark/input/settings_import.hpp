/// Which scenario do a framework's own settings describe, and what of them does it leave out?
///
/// Megatron-LM's arguments as YAML (its functional tests' form, MODEL_ARGS, or the arguments alone) and torchtitan's
/// TOML. What decides sizes is taken or refused; what decides none is passed over; the rest is named.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tidemark/input/imported_scenario.hpp"

namespace tidemark {

/// `vocabulary` stands for a tokenizer that is not in the file. Throws InputError for a file of neither framework, a
/// setting that is not modelled and changes sizes, and what is missing.
ImportedScenario import_settings(const std::string& path, std::optional<std::int64_t> vocabulary = {});

}  // namespace tidemark
