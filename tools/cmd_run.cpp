#include <algorithm>
#include <charconv>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "commands.hpp"
#include "terminal.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/input/plan_file.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/report/chart.hpp"
#include "tidemark/report/csv.hpp"
#include "tidemark/report/json.hpp"
#include "tidemark/report/output_file.hpp"
#include "tidemark/report/page.hpp"
#include "tidemark/report/snapshot.hpp"
#include "tidemark/report/text.hpp"
#include "tidemark/report/timeline_json.hpp"
#include "tidemark/report/trace.hpp"
#include "tidemark/study/facts.hpp"
#include "tidemark/study/pipeline.hpp"

namespace tidemark::cli {
namespace {

/// A scenario file, or a model's config and flags. Beside a file the flags are short for --set, which goes after them.
Scenario scenario_of(const RunOptions& options) {
  if (options.scenario.empty() == options.config.empty())
    throw InputError(options.scenario.empty() ? "run needs a scenario file, or --config FILE"
                                              : "run takes a scenario file or --config, not both");
  if (options.scenario.empty())
    return scenario_from_config({options.config, options.batch, options.sequence, options.policy}, options.sets);
  std::vector<std::string> sets;
  if (!options.batch.empty()) sets.push_back("batch.size=" + options.batch);
  if (!options.sequence.empty()) sets.push_back("batch.sequence=" + options.sequence);
  if (!options.policy.empty()) sets.push_back("policy=" + options.policy);
  sets.insert(sets.end(), options.sets.begin(), options.sets.end());
  return read_scenario(options.scenario, sets);
}

std::size_t number_of_tensors(const std::string& text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || (text.size() > 1 && text[0] == '0'))
    throw InputError("--top must be a whole number, not '" + text + "'");
  return value;
}

ChartOptions::Axis axis_of(const std::string& text) {
  if (text == "sequence") return ChartOptions::Axis::sequence;
  if (text == "time") return ChartOptions::Axis::time;
  throw InputError("--chart must be sequence, time or none, not '" + text + "'");
}

/// A result that goes to a file of its own.
struct Export {
  std::string option;
  std::string path;  // "" is not asked for, "-" is standard output
  std::function<void(const TextSink&)> write;
};

/// Two results in one place would destroy each other.
void refuse_clashes(const std::vector<Export>& exports, bool json) {
  for (std::size_t i = 0; i < exports.size(); ++i) {
    if (exports[i].path.empty()) continue;
    if (json && exports[i].path == "-")
      throw InputError("--json and " + exports[i].option + " - both want standard output");
    for (std::size_t j = 0; j < i; ++j)
      if (exports[i].path == exports[j].path)
        throw InputError(exports[j].option + " and " + exports[i].option + " both name '" + exports[i].path + "'");
  }
}

std::string summary_of(const Summary& summary, const Run& result, const RunOptions& options) {
  if (options.json) return summary_json(summary);
  const TerminalStyle style = terminal_style(options.ascii);
  std::string chart;
  if (options.chart != "none")
    chart = tide_chart(result.step, result.timeline, {.axis = axis_of(options.chart), .limit = summary.limit}, style);
  return summary_text(summary, chart, style);
}

}  // namespace

int run_command(const RunOptions& options) {
  Scenario scenario = scenario_of(options);
  if (!options.budget.empty()) {
    scenario.budget = parse_bytes(options.budget);
    if (!scenario.budget)
      throw InputError("--budget must be a size with a unit, such as 40GiB, not '" + options.budget + "'");
  }
  const std::size_t top = number_of_tensors(options.top);
  if (options.chart != "none") axis_of(options.chart);

  Run result;
  Summary summary;
  const std::vector<Export> exports = {
      {"--timeline", options.timeline,
       [&](const TextSink& sink) { write_timeline_csv(result.step, result.timeline, sink); }},
      {"--ops", options.ops, [&](const TextSink& sink) { write_ops_csv(result.step, result.timeline, sink); }},
      {"--report", options.report,
       [&](const TextSink& sink) { write_page(result.step, result.timeline, summary, sink); }},
      {"--trace", options.trace, [&](const TextSink& sink) { write_trace(result.step, result.timeline, sink); }},
      {"--timeline-json", options.timeline_json,
       [&](const TextSink& sink) { write_timeline_json(result.step, result.timeline, sink); }},
      {"--snapshot", options.snapshot,
       [&](const TextSink& sink) { write_snapshot(result.step, result.timeline, sink); }},
      {"--plan-out", options.plan_out, [&](const TextSink& sink) { sink(write_plan(result.plan, result.outline)); }},
  };
  refuse_clashes(exports, options.json);
  result = run(scenario);
  ScenarioFacts facts = scenario_facts(scenario, result);
  facts.top = top;
  summary = summarize(result.step, result.timeline, facts);

  // Every file is complete before anything is shown, and nothing appears under its name before that.
  std::list<OutputFile> files;
  bool summary_shown = true;
  for (const Export& one : exports) {
    if (one.path.empty()) continue;
    OutputFile& file = files.emplace_back(one.path);
    one.write([&](std::string_view text) { file.write(text); });
    summary_shown = summary_shown && one.path != "-";
  }
  if (summary_shown) print(summary_of(summary, result, options));
  for (OutputFile& file : files) file.commit();
  return summary.fits.value_or(true) ? exit_yes : exit_no;
}

}  // namespace tidemark::cli
