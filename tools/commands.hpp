/// What does each subcommand do?
///
/// `main.cpp` fills the options; a command does the work and returns the exit code. Results go to stdout, everything
/// else to stderr. The user's mistakes and the machine's failures leave as exceptions.
#pragma once

#include <string>
#include <vector>

namespace tidemark::cli {

enum ExitCode : int {
  exit_yes = 0,
  exit_no = 1,       // a true "no": it does not fit, it differs
  exit_mistake = 2,  // the user's
  exit_failure = 3,  // ours or the machine's
};

/// As typed; "" is not given.
struct RunOptions {
  std::string scenario;
  std::string config, batch, sequence, policy;
  std::vector<std::string> sets;  // key.path=value, in order
  std::string stage, rank;        // "" is the scenario's
  std::string budget;
  std::string top = "10";
  std::string timeline, host_timeline, ops, lifetimes, plan_out, trace, timeline_json, snapshot, report;  // paths
  std::vector<std::string> report_with;  // settings, scenarios or timelines laid over the run
  bool json = false;
  std::string chart = "sequence";
  bool ascii = false;
};
[[nodiscard]] int run_command(const RunOptions& options);

struct PlanOptions {
  std::string scenario;
  std::vector<std::string> sets;
  std::string budget;  // "" is the scenario's, or the device's usable bytes
  std::string method = "auto";
  std::string express;  // a framework: what it can say, in its words in place of YAML
  std::string heuristic = "h_DTR";
  std::string frontier;       // a path for the Pareto front as CSV, in place of one plan
  std::string points = "20";  // budgets of it
  std::string time_limit;     // seconds; "" is the default
  std::string out;            // a path; "" prints the plan
};
[[nodiscard]] int plan_command(const PlanOptions& options);

struct FitOptions {
  std::string scenario;
  std::string vary;  // the key
  std::vector<std::string> sets;
  std::string budget;      // "" is the scenario's, or the device's usable bytes
  std::string from, most;  // "" is the scenario's own value, and 2^20
  bool json = false;
};
[[nodiscard]] int fit_command(const FitOptions& options);

struct SweepCommandOptions {
  std::string study;
  std::vector<std::string> vary;
  std::string jobs = "0";  // threads; 0 is one a core
  std::string limit;       // rows at most; "" is all
  std::string verify = "4";
  std::string report;  // a path; "" writes none
  std::string out = "-";
  bool resume = false;
};
[[nodiscard]] int sweep_command(const SweepCommandOptions& options);

struct FormulaOptions {
  std::string name;
  std::vector<std::string> arguments;
  bool json = false;
};
[[nodiscard]] int formula_command(const FormulaOptions& options);

struct CheckOptions {
  std::string timeline;
  std::string scenario;  // "" without one
};
[[nodiscard]] int check_command(const CheckOptions& options);

/// A framework's own settings as a scenario.
struct ImportOptions {
  std::string settings;
  std::string vocab;      // "" is the file's
  std::string out = "-";  // the scenario; "-" prints it
};
[[nodiscard]] int import_command(const ImportOptions& options);

[[nodiscard]] int schema_command();

/// Each side is a scenario, or a measured timeline (CSV).
struct CompareOptions {
  std::string a, b;
  std::vector<std::string> sets_a, sets_b;  // key.path=value, in order
  bool json = false;
  std::string recorded_device;  // "cpu", "cuda:N"; "": the only one
  bool ascii = false;
};
[[nodiscard]] int compare_command(const CompareOptions& options);

/// A recorded run through allocators.
struct ReplayOptions {
  std::string recording;
  std::string recorded_device;  // "cpu", "cuda:N"; "": the only one
  std::vector<std::string> confs;
  bool all_settings = false;
  bool arena = false;
  std::string capacity;
  std::string lifetimes;  // a path; "" writes none
  bool json = false;
};
[[nodiscard]] int replay_command(const ReplayOptions& options);
struct CalibrateOptions {
  std::string out;                 // the profile (YAML); "" writes none
  std::string ops;                 // the times (CSV); "" writes none
  std::string from;                // a table of op times; "" measures here
  std::vector<std::string> where;  // which of its rows
  bool force = false, quick = false;
};
[[nodiscard]] int calibrate_command(const CalibrateOptions& options);

/// A command as a shell needs to know it.
struct CommandInfo {
  std::string name;
  std::vector<std::string> options;  // "--json"
};
struct CompletionOptions {
  std::string shell;
};
[[nodiscard]] int completion_command(const CompletionOptions& options, const std::vector<CommandInfo>& commands);

/// Writes a result to standard output, whole; throws OutputError when that fails.
void print(const std::string& text);

}  // namespace tidemark::cli
