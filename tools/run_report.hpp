/// What stands on the page of `run --report`?
#pragma once

#include <string>
#include <vector>

#include "commands.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/report/page.hpp"
#include "tidemark/study/pipeline.hpp"

namespace tidemark::cli {

/// A scenario file, or a model's config and flags. Beside a file the flags are short for --set, which goes after them.
/// `more` is one more --set at the end; "" is none.
Scenario scenario_of(const RunOptions& options, const std::string& more = "");

/// A run that the page lays over the first.
struct OtherRun {
  std::string name;
  Step step;
  Timeline timeline;
  Summary summary;
  bool is_measured = false;
};

/// A setting such as policy=none: the same scenario with it; a file that ends in .csv: a measured timeline; else
/// another scenario.
OtherRun other_run(const RunOptions& options, const std::string& text);

void write_report(const Summary& summary, const Run& run, const std::vector<OtherRun>& others, const TextSink& sink);

}  // namespace tidemark::cli
