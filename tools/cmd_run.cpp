#include <algorithm>
#include <charconv>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "commands.hpp"
#include "run_report.hpp"
#include "terminal.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/input/plan_file.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/report/chart.hpp"
#include "tidemark/report/csv.hpp"
#include "tidemark/report/json.hpp"
#include "tidemark/report/lifetimes_csv.hpp"
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
  if (!options.report_with.empty() && options.report.empty())
    throw InputError("--report-with goes into a page: it needs --report F.html");
  if (options.report_with.size() >= most_page_runs)
    throw InputError("a page shows at most " + std::to_string(most_page_runs) + " runs: --report-with can stand " +
                     std::to_string(most_page_runs - 1) + " times");
  const std::size_t top = number_of_tensors(options.top);
  if (options.chart != "none") axis_of(options.chart);

  Run result;
  Summary summary;
  std::vector<OtherRun> others;
  const std::vector<Export> exports = {
      {"--timeline", options.timeline,
       [&](const TextSink& sink) { write_timeline_csv(result.step, result.timeline, sink); }},
      {"--host-timeline", options.host_timeline,
       [&](const TextSink& sink) { write_host_timeline_csv(result.step, result.timeline, sink); }},
      {"--ops", options.ops, [&](const TextSink& sink) { write_ops_csv(result.step, result.timeline, sink); }},
      {"--report", options.report, [&](const TextSink& sink) { write_report(summary, result, others, sink); }},
      {"--trace", options.trace, [&](const TextSink& sink) { write_trace(result.step, result.timeline, sink); }},
      {"--timeline-json", options.timeline_json,
       [&](const TextSink& sink) { write_timeline_json(result.step, result.timeline, sink); }},
      {"--snapshot", options.snapshot,
       [&](const TextSink& sink) { write_snapshot(result.step, result.timeline, sink); }},
      {"--lifetimes", options.lifetimes,
       [&](const TextSink& sink) {
         write_lifetimes_csv(lifetimes(result.timeline, result.step), result.arena ? &*result.arena : nullptr, sink);
       }},
      {"--plan-out", options.plan_out, [&](const TextSink& sink) { sink(write_plan(result.plan, result.outline)); }},
  };
  refuse_clashes(exports, options.json);
  result = run(scenario);
  ScenarioFacts facts = scenario_facts(scenario, result);
  facts.top = top;
  summary = summarize(result.step, result.timeline, facts);
  for (const std::string& other : options.report_with) others.push_back(other_run(options, other));

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
