/// How does a person walk through a step in a browser, or through several side by side?
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tidemark/engine/timeline.hpp"
#include "tidemark/report/csv.hpp"
#include "tidemark/report/summary.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// One run, of which the page shows the rank that reaches the peak. What it names must outlive the call.
struct PageRun {
  std::string name;
  const Step& step;
  const Timeline& timeline;
  const Summary& summary;
  bool is_measured = false;
};
inline constexpr std::size_t most_page_runs = 4;

/// One HTML file that needs no network: the tide by category with a cursor, who is alive at it and why, lifetimes,
/// costs by phase, the textbook formula. Of two to four runs also their levels over each other, and the difference.
/// Throws OutputError when the charting library was not there when Tidemark was built.
void write_page(std::span<const PageRun> runs, const TextSink& sink);

}  // namespace tidemark
