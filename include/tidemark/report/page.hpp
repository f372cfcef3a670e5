/// How does a person walk through the step in a browser?
#pragma once

#include "tidemark/engine/timeline.hpp"
#include "tidemark/report/csv.hpp"
#include "tidemark/report/summary.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// One HTML file that needs no network: the tide by category with a cursor, who is alive at it and why, lifetimes,
/// costs by phase, the textbook formula. Of the rank that reaches the peak. Throws OutputError when the charting
/// library was not there when Tidemark was built.
void write_page(const Step& step, const Timeline& timeline, const Summary& summary, const TextSink& sink);

}  // namespace tidemark
