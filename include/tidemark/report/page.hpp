/// How does a person walk through a step in a browser, or through several side by side?
#pragma once

#include <span>

#include "tidemark/report/csv.hpp"
#include "tidemark/report/page_run.hpp"

namespace tidemark {

/// One HTML file that needs no network: the tide by category with a cursor, who is alive at it and why, lifetimes,
/// costs by phase, the textbook formula. Of two to four runs also their levels over each other, and the difference.
/// Throws OutputError when the charting library was not there when Tidemark was built.
void write_page(std::span<const PageRun> runs, const TextSink& sink);

}  // namespace tidemark
