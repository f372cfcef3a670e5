/// What does a person at the terminal read?
#pragma once

#include <string>

#include "tidemark/report/summary.hpp"
#include "tidemark/report/terminal.hpp"

namespace tidemark {

/// The Summary for a person; `chart` (tide_chart, or "") stands below the headline. Lines end in "\n" and keep
/// within the style's width, or 60.
std::string summary_text(const Summary& summary, const std::string& chart, const TerminalStyle& style);

/// "out of memory in ..., step 1: 'x' asks for ...; the device has ... left, ... would have fitted".
std::string out_of_memory_text(const OutOfMemoryFigures& failed);

/// 1234567 as "1,234,567".
std::string grouped(std::int64_t value);
/// "1 event", "1,234 events".
std::string counted(std::size_t n, std::string_view one, std::string_view many);
/// "  (1,234,567 B)"; nothing where the short form is exact.
std::string exactly(Bytes bytes);

}  // namespace tidemark
