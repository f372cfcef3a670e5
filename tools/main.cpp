// The command line: fills one struct a command and runs it.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "commands.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/report/terminal.hpp"

namespace tidemark::cli {
namespace {

/// The parser, and what each of its commands runs.
class CommandLine {
 public:
  CommandLine() : app_("Tidemark: the exact memory tide of a training step.", "tidemark") {
    app_.set_version_flag("--version", "tidemark " TIDEMARK_VERSION, "Print the version and stop");
    app_.require_subcommand(1);
    app_.failure_message(CLI::FailureMessage::simple);
    add_run();
    add_sweep();
    add_plan();
    add_fit();
    add_formula();
    add_check();
    add_compare();
    add_replay();
    add_calibrate();
    add_import();
    add_schema();
    add_completion();
  }

  int run(const std::vector<std::string>& words) {
    refuse_unknown_names(words);
    try {
      app_.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // it takes them from the back
    } catch (const CLI::Success& wanted) {
      return app_.exit(wanted);  // --help, --version
    } catch (const CLI::ParseError& error) {
      throw InputError(std::string(error.what()) + "; see tidemark " + words[0] + " " + "--help");
    }
    return chosen_();
  }

 private:
  /// A command; when it is named, `action` runs it.
  CLI::App* add(const std::string& name, const std::string& what, std::function<int()> action) {
    CLI::App* command = app_.add_subcommand(name, what);
    command->callback([this, action = std::move(action)] { chosen_ = action; });
    return command;
  }

  void add_run() {
    CLI::App* command = add("run", "Simulate one scenario and print its peak, what makes it, FLOPs and time.",
                            [this] { return run_command(run_); });
    command->add_option("scenario", run_.scenario, "Scenario file (YAML)");
    command->add_option("--config", run_.config, "Instead of a scenario: a model's config.json (Hugging Face)");
    command->add_option("--batch", run_.batch, "Sequences in a micro-batch");
    command->add_option("--sequence", run_.sequence, "Tokens in a sequence");
    command->add_option("--policy", run_.policy, "Policy kind, such as full, or its settings as flow YAML");
    command->add_option("--set", run_.sets, "Change a value of the scenario: key.path=value (flow YAML); repeatable")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    command->add_option("--stage", run_.stage, "Of a pipeline: the stage to show, from 0; or all");
    command->add_option("--rank", run_.rank, "The same by rank");
    command->add_option("--budget", run_.budget, "Exit 1 when the peak is above this size, such as 40GiB");
    command->add_option("--top", run_.top, "How many tensors to list at the peak")->capture_default_str();
    command->add_flag("--json", run_.json, "Print the summary as JSON");
    command->add_option("--timeline", run_.timeline, "Write each allocation and free as CSV; '-' is stdout");
    command->add_option("--host-timeline", run_.host_timeline, "Write what copies hold of the host's memory as CSV");
    command->add_option("--ops", run_.ops, "Write each op as CSV; '-' is stdout");
    command->add_option("--report", run_.report, "Write a page for the browser: the tide, who is alive, who holds it");
    command
        ->add_option("--report-with", run_.report_with,
                     "Lay another run over it: a setting (policy=none), a scenario, a recording; up to 3")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    command->add_option("--trace", run_.trace, "Write a trace for Perfetto or chrome://tracing (JSON)");
    command->add_option("--timeline-json", run_.timeline_json,
                        "Write the raw memory timeline of PyTorch's profiler (JSON)");
    command->add_option("--snapshot", run_.snapshot, "Write a snapshot for PyTorch's memory viewer (pickle)");
    command->add_option("--lifetimes", run_.lifetimes,
                        "Write each storage's lifetime for minimalloc (CSV), with its offset under allocator: arena");
    command->add_option("--plan-out", run_.plan_out, "Write the plan as YAML; '-' is stdout");
    command->add_option("--chart", run_.chart, "The chart's axis: sequence, time, or none for no chart")
        ->capture_default_str();
    command->add_flag("--ascii", run_.ascii, "Draw with plain ASCII");
  }

  void add_sweep() {
    CLI::App* command = add("sweep", "Run a scenario at every point of a grid of settings; one CSV row each.",
                            [this] { return sweep_command(sweep_); });
    command->add_option("study", sweep_.study, "A scenario (YAML) with a 'sweep' block, or any scenario with --vary")
        ->required();
    command
        ->add_option("--vary", sweep_.vary,
                     "An axis: key.path=1..36, =[a, b], ='1..64 x2', ='{subsets: [a, b]}'; repeatable")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    command->add_option("--jobs", sweep_.jobs, "Threads; 0 is one a core")->capture_default_str();
    command->add_option("--limit", sweep_.limit, "The first so many points only");
    command->add_option("--verify", sweep_.verify, "Composed rows, drawn at random, to simulate in full as well")
        ->capture_default_str();
    command->add_option("--out", sweep_.out, "The CSV; '-' is stdout")->capture_default_str();
    command->add_option("--report", sweep_.report, "Write a page for the browser: the points, their front, a heat map");
    command->add_flag("--resume", sweep_.resume, "Go on from the rows that --out holds");
  }

  void add_plan() {
    CLI::App* command = add("plan", "Find the cheapest plan whose simulated peak fits a budget; print it as YAML.",
                            [this] { return plan_command(plan_); });
    command->add_option("scenario", plan_.scenario, "Scenario file (YAML)")->required();
    command->add_option("--budget", plan_.budget, "The most bytes at the peak, such as 40GiB; else the device's");
    command
        ->add_option(
            "--method", plan_.method,
            "auto, uniform, block, chen, knapsack, search; for chains revolve, mixed, two_level, rotor, rotor_tight, "
            "chain_exact; for graphs of a whole step checkmate, dtr")
        ->capture_default_str();
    command
        ->add_option("--heuristic", plan_.heuristic,
                     "What dtr evicts first: h_DTR, h_DTR_eq, h_local, h_LRU, h_size, h_MSPS")
        ->capture_default_str();
    command->add_option("--frontier", plan_.frontier,
                        "Write the Pareto front of peak and time as CSV, a plan a row; '-' is stdout");
    command->add_option("--points", plan_.points, "Budgets of the front")->capture_default_str();
    command->add_option("--time-limit", plan_.time_limit,
                        "Seconds after which a search or an integer program ends with what it has; 60");
    command->add_option("--express", plan_.express,
                        "megatron, torchtitan, hf or sac: plan with what it can say, in its own words");
    command->add_option("--out", plan_.out,
                        "Write the plan to this file; run takes it as policy: {kind: plan, file: F}, a pipeline's as "
                        "parallel: {stage_policies_file: F}");
    command->add_option("--set", plan_.sets, "Change a value of the scenario: key.path=value (flow YAML); repeatable")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }

  void add_fit() {
    CLI::App* command = add("fit", "Find the largest value of a key with which a scenario fits: exit 1 when none does.",
                            [this] { return fit_command(fit_); });
    command->add_option("scenario", fit_.scenario, "Scenario file (YAML)")->required();
    command->add_option("--vary", fit_.vary, "A whole number: batch.size, batch.sequence, model.layers, ...")
        ->required();
    command->add_option("--budget", fit_.budget, "What must hold it, such as 40GiB; else the device");
    command->add_option("--from", fit_.from, "Where the search starts; else the scenario's own value, or 1");
    command->add_option("--most", fit_.most, "The largest value to try; else 1048576");
    command->add_option("--set", fit_.sets, "Change a value of the scenario: key.path=value (flow YAML); repeatable")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    command->add_flag("--json", fit_.json, "Print one JSON object");
  }

  void add_formula() {
    CLI::App* command = add("formula", "Evaluate a textbook closed form; without a name, list them.",
                            [this] { return formula_command(formula_); });
    command->add_option("name", formula_.name, "Its name, such as optimal_segment");
    command->add_option("argument", formula_.arguments, "Its arguments in order; trailing ones have defaults");
    command->add_flag("--json", formula_.json, "Print one JSON object");
  }

  void add_check() {
    CLI::App* command = add("check", "Check a timeline CSV: exit 0 valid, 1 with the first violation as file:line.",
                            [this] { return check_command(check_); });
    command->add_option("timeline", check_.timeline, "Timeline file (CSV), as run --timeline writes it")->required();
    command->add_option("--scenario", check_.scenario, "Check it against this scenario: reads, leaks, missing ops too");
  }

  void add_compare() {
    CLI::App* command =
        add("compare", "Compare a scenario with a recording of a real run, or two scenarios: exit 1 when they differ.",
            [this] { return compare_command(compare_); });
    command
        ->add_option("a", compare_.a, "Scenario (YAML), or a recording: timeline CSV, profiler trace, memory snapshot")
        ->required();
    command->add_option("b", compare_.b, "The same; its differences from A are shown")->required();
    const auto sets = [&](const std::string& name, std::vector<std::string>& values) {
      command->add_option(name, values, "Change a value of that scenario: key.path=value (flow YAML); repeatable")
          ->expected(1)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    };
    sets("--set-a", compare_.sets_a);
    sets("--set-b", compare_.sets_b);
    command->add_option("--recorded-device", compare_.recorded_device,
                        "Of a recording of several: cpu or cuda:N; default: its only GPU, else the CPU");
    command->add_flag("--json", compare_.json, "Print the comparison as JSON");
    command->add_flag("--ascii", compare_.ascii, "Print plain ASCII");
  }

  void add_replay() {
    CLI::App* command = add("replay", "Put a recorded run through PyTorch's allocator: exit 1 when out of memory.",
                            [this] { return replay_command(replay_); });
    command
        ->add_option(
            "recording", replay_.recording,
            "Timeline, event or minimalloc CSV, raw memory timeline, Chrome trace, memory snapshot; gzipped or not")
        ->required();
    command->add_option("--conf", replay_.confs, "PYTORCH_CUDA_ALLOC_CONF to try; repeatable")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    command->add_option("--recorded-device", replay_.recorded_device,
                        "Of a recording of several: cpu or cuda:N; default: its only GPU, else the CPU");
    command->add_flag("--all-settings", replay_.all_settings,
                      "Settings worth a look and static addresses, side by side");
    command->add_flag("--arena", replay_.arena, "Static addresses for the whole recording, too");
    command->add_option("--lifetimes", replay_.lifetimes, "Write each block's lifetime for minimalloc (CSV)");
    command->add_option("--capacity", replay_.capacity, "Of the device, such as 80GiB");
    command->add_flag("--json", replay_.json, "Print one JSON object");
  }

  void add_calibrate() {
    CLI::App* command =
        add("calibrate", "Measure op times on this machine, fit a device profile to them, show its errors.",
            [this] { return calibrate_command(calibrate_); });
    command->add_option("--out", calibrate_.out, "Write the profile (YAML); any scenario's device: takes it");
    command->add_option("--ops", calibrate_.ops, "Write the op times (CSV), as --from reads them");
    command->add_option("--from", calibrate_.from, "Fit to op times measured elsewhere (CSV)");
    command
        ->add_option("--where", calibrate_.where, "Rows of that table: device=, provider=, dtype= or kind=; repeatable")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    command->add_flag("--quick", calibrate_.quick, "About a quarter of the rounds");
    command->add_flag("--force", calibrate_.force, "Write over files that exist");
  }

  void add_import() {
    CLI::App* command = add("import", "Turn a framework's own settings into a scenario, and say what it leaves out.",
                            [this] { return import_command(import_); });
    command->add_option("settings", import_.settings, "Megatron-LM arguments (YAML) or torchtitan settings (TOML)")
        ->required();
    command->add_option("--vocab", import_.vocab, "Words of a tokenizer that is not in the file; Megatron pads them");
    command->add_option("--out", import_.out, "Write the scenario here; - prints it");
  }

  void add_schema() {
    add("schema", "Print the JSON Schema of a scenario, for editors that check and complete YAML.",
        [] { return schema_command(); });
  }

  void add_completion() {
    CLI::App* command = add("completion", "Print a script that completes commands and options in a shell.",
                            [this] { return completion_command(completion_, commands()); });
    command->add_option("shell", completion_.shell, "bash, zsh or fish")->required();
  }

  /// The parser answers a misspelt name with a list of what is missing; say which name is near instead.
  void refuse_unknown_names(const std::vector<std::string>& words) const {
    if (words.empty()) throw InputError("no command; see tidemark --help");
    if (words[0].starts_with("-")) {
      refuse_unknown_options({words[0]}, "tidemark", {"--help", "--version"});
      return;
    }
    const std::vector<CommandInfo> known = commands();
    std::vector<std::string> names;
    for (const CommandInfo& command : known) names.push_back(command.name);
    const auto named = std::find(names.begin(), names.end(), words[0]);
    if (named == names.end()) throw InputError("unknown command '" + words[0] + "'" + hint(words[0], names));
    refuse_unknown_options({words.begin() + 1, words.end()}, "tidemark " + words[0],
                           known[static_cast<std::size_t>(named - names.begin())].options);
  }

  static void refuse_unknown_options(const std::vector<std::string>& words, const std::string& command,
                                     const std::vector<std::string>& options) {
    for (const std::string& word : words) {
      if (word == "--") return;
      const std::string option = word.substr(0, word.find('='));
      if (option.starts_with("--") && std::find(options.begin(), options.end(), option) == options.end())
        throw InputError("unknown option '" + option + "' of " + command + hint(option, options));
    }
  }

  static std::string hint(const std::string& name, const std::vector<std::string>& known) {
    const std::string near = nearest_name(name, known);
    if (!near.empty()) return "; did you mean '" + near + "'?";
    std::string all;
    for (const std::string& one : known) all += (all.empty() ? "" : ", ") + one;
    return "; expected one of: " + all;
  }

  std::vector<CommandInfo> commands() const {
    std::vector<CommandInfo> out;
    for (const CLI::App* command : app_.get_subcommands([](const CLI::App*) { return true; })) {
      CommandInfo info{command->get_name(), {}};
      for (const CLI::Option* option : command->get_options())
        for (const std::string& name : option->get_lnames()) info.options.push_back("--" + name);
      out.push_back(std::move(info));
    }
    return out;
  }

  CLI::App app_;
  std::function<int()> chosen_;
  RunOptions run_;
  SweepCommandOptions sweep_;
  PlanOptions plan_;
  FitOptions fit_;
  FormulaOptions formula_;
  CheckOptions check_;
  CompareOptions compare_;
  ReplayOptions replay_;
  CalibrateOptions calibrate_;
  ImportOptions import_;
  CompletionOptions completion_;
};

int report(const std::string& message, int code) {
  std::fprintf(stderr, "%s\n", printable(message).c_str());
  return code;
}

int run(const std::vector<std::string>& words) {
  try {
    return CommandLine().run(words);
  } catch (const InputError& error) {
    return report(error.what(), exit_mistake);
  } catch (const OutputError& error) {
    return report(std::string("error: ") + error.what(), exit_failure);
  } catch (const std::bad_alloc&) {
    return report("error: this machine's memory is not enough for that", exit_failure);
  } catch (const std::exception& error) {
    return report(std::string("internal error, please report it: ") + error.what(), exit_failure);
  }
}

}  // namespace
}  // namespace tidemark::cli

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit is then an error like a full disk, not a death with a file left
  return tidemark::cli::run({argv + 1, argv + argc});
}
