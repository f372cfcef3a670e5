#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.hpp"
#include "terminal.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/input/timeline_file.hpp"
#include "tidemark/report/comparison.hpp"
#include "tidemark/study/compare.hpp"
#include "tidemark/study/pipeline.hpp"

namespace tidemark::cli {
namespace {

/// A scenario that was run, or a measured timeline: what ends in .csv is one.
struct Input {
  std::string name;
  std::optional<Run> simulated;

  Input(const std::string& path, const std::vector<std::string>& sets) : name(path) {
    if (path.ends_with(".csv")) {
      if (!sets.empty()) throw InputError("'" + path + "' is a measured timeline: there is nothing to set in it");
      return;
    }
    simulated = run(read_scenario(path, sets));
    for (const std::string& set : sets) name += " " + set;
  }

  Side side() const {
    return simulated ? simulated_side(name, *simulated) : measured_side(name, std::make_shared<TimelineReader>(name));
  }
};

}  // namespace

int compare_command(const CompareOptions& options) {
  const Input a(options.a, options.sets_a);
  const Input b(options.b, options.sets_b);
  Comparison comparison = compare(a.side(), b.side());
  if (a.simulated && b.simulated) comparison.explanation = explain(*a.simulated, *b.simulated);
  print(options.json ? comparison_json(comparison) : comparison_text(comparison, terminal_style(options.ascii)));
  return comparison.difference ? exit_no : exit_yes;
}

}  // namespace tidemark::cli
