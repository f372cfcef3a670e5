/// How does a forward program, written down op by op or captured, become a Program?
///
/// parameters and inputs by name with their shapes; layers, each with its ops on names; releases where the host's
/// names let go. docs/program.md has the whole notation.
#pragma once

#include "tidemark/input/yaml_map.hpp"
#include "tidemark/program/program.hpp"

namespace tidemark {

/// The model of family program; its keys are inline, or in the file that it names.
/// Throws InputError naming the entry: an undefined name, a name defined twice, operands that do not fit, an unknown
/// op, a release of what is not there, a loss that nothing makes.
Program read_program(const YamlMap& model);

}  // namespace tidemark
