#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.hpp"
#include "terminal.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/input/recording.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/input/timeline_file.hpp"
#include "tidemark/report/comparison.hpp"
#include "tidemark/study/compare.hpp"
#include "tidemark/study/pipeline.hpp"

namespace tidemark::cli {
namespace {

/// A scenario that was run, or a recording.
struct Input {
  std::string name;
  RecordingKind kind;
  std::optional<Run> simulated;

  Input(const std::string& path, const std::vector<std::string>& sets) : name(path), kind(recording_kind(path)) {
    if (kind != RecordingKind::none) {
      if (!sets.empty()) throw InputError("'" + path + "' is a recording: there is nothing to set in it");
      return;
    }
    simulated = run(read_scenario(path, sets));
    for (const std::string& set : sets) name += " " + set;
  }

  Side side(const std::string& device) const {
    if (simulated) return simulated_side(name, *simulated);
    if (kind == RecordingKind::timeline) return measured_side(name, std::make_shared<TimelineReader>(name));
    return recorded_side(name, name, device);
  }
};

}  // namespace

int compare_command(const CompareOptions& options) {
  const Input a(options.a, options.sets_a);
  const Input b(options.b, options.sets_b);
  Comparison comparison = compare(a.side(options.recorded_device), b.side(options.recorded_device));
  if (a.simulated && b.simulated) comparison.explanation = explain(*a.simulated, *b.simulated);
  print(options.json ? comparison_json(comparison) : comparison_text(comparison, terminal_style(options.ascii)));
  return comparison.difference ? exit_no : exit_yes;
}

}  // namespace tidemark::cli
