/// How does a TOML file become a document?
#pragma once

#include <string>

#include "tidemark/input/document.hpp"

namespace tidemark {

/// Throws InputError, with line and column, for what is no TOML.
DocPtr read_toml(const std::string& path);

}  // namespace tidemark
