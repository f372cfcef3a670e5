#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plan_stages.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/input/stage_policies.hpp"
#include "tidemark/input/yaml_map.hpp"
#include "tidemark/report/output_file.hpp"
#include "tidemark/study/stage_planner.hpp"

namespace tidemark::cli {
namespace {

std::string stage_lines(const StagePlanAnswer& answer, Bytes budget) {
  std::string out;
  for (std::size_t stage = 0; stage < answer.stages.size(); ++stage) {
    const StageChoice& at = answer.stages[stage];
    out += "# stage " + std::to_string(stage) + ": " + at.words + "; peak " + pretty(at.peak) + " (" +
           to_string(at.peak) + " B), without recomputation " + pretty(at.without) + "\n";
  }
  out += "# all within " + pretty(budget) + "\n";
  if (answer.time.count > 0)
    out += "# time " + pretty(answer.time) + ", without recomputation " + pretty(answer.without) + "\n";
  if (answer.bubble_rate) out += fmt::format("# bubble rate {:.4f}\n", *answer.bubble_rate);
  return out;
}

std::string binding_line(const StagePlanAnswer& answer) {
  const bool recomputes =
      std::ranges::any_of(answer.stages, [](const StageChoice& stage) { return stage.method != "none"; });
  if (!recomputes) return "# no stage binds: all fit without recomputation\n";
  if (answer.time.count == 0) return "# the device gives no times: which stage binds is not known\n";
  if (!answer.binds) return "# no stage binds alone: with any one budget lifted the step takes as long\n";
  return "# stage " + std::to_string(*answer.binds) + " binds: without its budget the time would be " +
         pretty(answer.stages[*answer.binds].lifted) + " less\n";
}

std::string no_stage_fits(const StagePlanAnswer& answer, Bytes budget) {
  const StageShort& nearest = *answer.nearest;
  return "no plan fits " + pretty(budget) + ": the lowest peak of stage " + std::to_string(nearest.stage) + " in " +
         std::to_string(answer.simulations) + " simulations is " + pretty(nearest.peak) + " (" +
         to_string(nearest.peak) + " B)" + (nearest.op.empty() ? "" : ", in " + nearest.op) + "\n";
}

/// What it costs that all stages are told the same.
std::string stages_price(const StagePlanAnswer& said, const StagePlanAnswer& free) {
  if (free.stages.empty()) return "";
  const Nanos more = said.time - free.time;
  if (more.count <= 0) return "# a policy of its own for each stage is no faster\n";
  return fmt::format("# the price of one setting for all stages: {}, {:.1f} % above a policy of its own for each\n",
                     pretty(more), 100 * static_cast<double>(more.count) / static_cast<double>(free.time.count));
}

}  // namespace

int plan_stages(const Scenario& scenario, const PlanOptions& options) {
  if (!options.express.empty() && options.method != "auto")
    throw InputError("--express searches all that the framework can say; leave out the method");
  const Bytes budget = *scenario.budget;
  const StagePlanAnswer answer = find_stage_policies(scenario, budget, options.method, options.express);
  if (answer.stages.empty()) {
    print(no_stage_fits(answer, budget));
    return exit_no;
  }
  std::string words = stage_lines(answer, budget);
  if (!options.express.empty()) {
    const StagePlanAnswer free = find_stage_policies(scenario, budget, "auto", "");
    print(words + stages_price(answer, free) + answer.express + "\n");
    return exit_yes;
  }
  words += binding_line(answer);
  words += "# tried " + joined(answer.tried) + "; " + std::to_string(answer.simulations) +
           " simulations of a stage or all\n";
  std::vector<Policy> policies;
  for (const StageChoice& stage : answer.stages) policies.push_back(stage.policy);
  const std::string text = words + write_stage_policies(policies);
  if (options.out.empty()) {
    print(text);
    return exit_yes;
  }
  OutputFile file(options.out);
  file.write(text);
  print(words);
  file.commit();
  return exit_yes;
}

}  // namespace tidemark::cli
