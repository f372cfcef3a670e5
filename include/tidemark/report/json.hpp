/// How does another program read a Summary?
///
/// Keys stand in one fixed order (docs/output.md); integers are exact at any size; what is absent is null.
#pragma once

#include <string>

#include "tidemark/report/summary.hpp"

namespace tidemark {

/// The Summary as indented JSON, ending in a newline.
std::string summary_json(const Summary& summary);

}  // namespace tidemark
