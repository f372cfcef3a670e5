/// How is a Program written down as a scenario's `model`?
#pragma once

#include <string>

#include "tidemark/program/program.hpp"

namespace tidemark::test {

/// "model: {family: program, ...}" in block style; what reads it gets a Program of the same ops, shapes, strides,
/// aliases and scopes.
std::string program_text(const Program& program);

}  // namespace tidemark::test
