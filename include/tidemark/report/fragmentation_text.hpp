/// Where are the reserved bytes, and who holds the free ones apart: for a person?
#pragma once

#include <string>

#include "tidemark/report/allocator_findings.hpp"
#include "tidemark/report/terminal.hpp"

namespace tidemark {

/// A section of the summary; lines keep within the style's width.
std::string fragmentation_text(const Fragmentation& fragmentation, const TerminalStyle& style);

}  // namespace tidemark
