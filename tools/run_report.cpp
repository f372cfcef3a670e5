#include "run_report.hpp"

#include <memory>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/recording.hpp"
#include "tidemark/input/timeline_file.hpp"
#include "tidemark/study/compare.hpp"
#include "tidemark/study/facts.hpp"
#include "tidemark/study/recorded.hpp"

namespace tidemark::cli {
namespace {

/// "policy=none", "model.layers=8": a key path before the first "=".
bool is_setting(const std::string& text) {
  const std::size_t key = text.find('=');
  constexpr const char* letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.";
  return key != std::string::npos && key > 0 && text.find_first_not_of(letters) == key;
}

OtherRun simulated(const std::string& name, const Scenario& scenario) {
  Run result = run(scenario);
  Summary summary = summarize(result.step, result.timeline, scenario_facts(scenario, result));
  return {name, std::move(result.step), std::move(result.timeline), std::move(summary), false};
}

OtherRun measured(const std::string& path, RecordingKind kind) {
  const Side side = kind == RecordingKind::timeline ? measured_side(path, std::make_shared<TimelineReader>(path))
                                                    : recorded_side(path, path, "");
  RecordedRun recorded = recorded_run(side);
  ScenarioFacts facts;
  facts.name = path;
  Summary summary = summarize(recorded.step, recorded.timeline, facts);
  return {path, std::move(recorded.step), std::move(recorded.timeline), std::move(summary), true};
}

}  // namespace

Scenario scenario_of(const RunOptions& options, const std::string& more) {
  if (options.scenario.empty() == options.config.empty())
    throw InputError(options.scenario.empty() ? "run needs a scenario file, or --config FILE"
                                              : "run takes a scenario file or --config, not both");
  std::vector<std::string> changes = options.sets;
  if (!options.stage.empty()) changes.push_back("parallel.stage=" + options.stage);
  if (!options.rank.empty()) changes.push_back("parallel.rank=" + options.rank);
  if (!more.empty()) changes.push_back(more);
  if (options.scenario.empty())
    return scenario_from_config({options.config, options.batch, options.sequence, options.policy}, changes);
  std::vector<std::string> sets;
  if (!options.batch.empty()) sets.push_back("batch.size=" + options.batch);
  if (!options.sequence.empty()) sets.push_back("batch.sequence=" + options.sequence);
  if (!options.policy.empty()) sets.push_back("policy=" + options.policy);
  sets.insert(sets.end(), changes.begin(), changes.end());
  return read_scenario(options.scenario, sets);
}

OtherRun other_run(const RunOptions& options, const std::string& text) {
  if (is_setting(text)) return simulated(text, scenario_of(options, text));
  const RecordingKind kind = recording_kind(text);
  if (kind != RecordingKind::none) return measured(text, kind);
  const Scenario scenario = read_scenario(text);
  return simulated(scenario.name, scenario);
}

void write_report(const Summary& summary, const Run& run, const std::vector<OtherRun>& others, const TextSink& sink) {
  std::vector<PageRun> runs = {{summary.scenario, run.step, run.timeline, summary}};
  for (const OtherRun& other : others)
    runs.push_back({other.name, other.step, other.timeline, other.summary, other.is_measured});
  write_page(runs, sink);
}

}  // namespace tidemark::cli
