/// How does a person look through the points of a sweep in a browser?
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/report/csv.hpp"

namespace tidemark {

struct SweepPage {
  std::string study;              // its file
  std::vector<std::string> axes;  // columns of the CSV that were varied
  std::string_view csv;           // as `sweep` writes it
};
/// Rows that a page can show smoothly.
inline constexpr std::int64_t most_sweep_page_rows = 200'000;

/// One HTML file that needs no network: the points over any two columns with the Pareto front, a heat map over two
/// axes, the front as a table.
void write_sweep_page(const SweepPage& page, const TextSink& sink);

}  // namespace tidemark
