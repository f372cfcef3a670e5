/// What is standard output connected to?
#pragma once

#include "tidemark/report/terminal.hpp"

namespace tidemark::cli {

/// The one place that reads the environment: COLUMNS, NO_COLOR, TERM. Without a terminal: 100 columns, no color.
TerminalStyle terminal_style(bool ascii = false);

}  // namespace tidemark::cli
