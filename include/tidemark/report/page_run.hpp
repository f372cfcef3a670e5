/// What does a page need to know of one run?
#pragma once

#include <cstddef>
#include <string>

#include "tidemark/engine/timeline.hpp"
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

}  // namespace tidemark
