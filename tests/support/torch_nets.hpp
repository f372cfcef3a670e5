/// The networks whose PyTorch steps were recorded, written as forward programs with their Python scopes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tidemark/program/program.hpp"

namespace tidemark::test {

/// "L=4 d=32 style=addmm" as a map.
std::map<std::string, std::string> settings(const std::string& text);

/// One layer of the Program a unit; units that a policy may group are blocks. "core" is the attention function of a
/// gpt block: its ops' names contain ".core.".
Program torch_net(const std::string& family, const std::map<std::string, std::string>& net);

}  // namespace tidemark::test
