#include <string>

#include "commands.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/input/plan_file.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/report/json_writer.hpp"
#include "tidemark/report/output_file.hpp"
#include "tidemark/study/planner.hpp"

namespace tidemark::cli {
namespace {

std::string percent(Flops part, Flops whole) {
  if (whole.count == 0) return "0 %";
  const auto tenths = static_cast<std::int64_t>((part.count * 1000 + whole.count / 2) / whole.count);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " %";
}

std::string in_words(const PlanAnswer& answer, Bytes budget) {
  const Proposal& best = *answer.best;
  std::string out = "# " + best.words + " (method " + best.method + ")\n";
  out += "# peak " + pretty(best.cost.peak) + " (" + to_string(best.cost.peak) + " B) within " + pretty(budget) +
         "; without recomputation " + pretty(answer.without.peak) + "\n";
  out += "# recomputes " + pretty(best.cost.recompute) + ", " + percent(best.cost.recompute, answer.without.total) +
         " more FLOPs; no plan that fits recomputes less than " + pretty(answer.recompute_bound) + " a micro-batch\n";
  if (best.cost.time.count > 0)
    out += "# time " + pretty(best.cost.time) + ", without recomputation " + pretty(answer.without.time) + "\n";
  return out + "# " + std::to_string(answer.simulations) + " plans simulated\n";
}

}  // namespace

int plan_command(const PlanOptions& options) {
  Scenario scenario = read_scenario(options.scenario, options.sets);
  if (scenario.pipeline)
    throw InputError("plan knows one device; leave 'parallel' out, or try a policy a stage in 'stage_policies'");
  if (!options.budget.empty()) {
    scenario.budget = parse_bytes(options.budget);
    if (!scenario.budget)
      throw InputError("--budget must be a size with a unit, such as 40GiB, not '" + options.budget + "'");
  }
  const std::optional<Bytes> device = scenario.device.usable ? scenario.device.usable : scenario.device.capacity;
  if (!scenario.budget && device) scenario.budget = *device - scenario.device.non_torch;
  if (!scenario.budget) throw InputError("plan needs a budget: --budget SIZE, 'budget' or a device in the scenario");
  if (!options.express.empty() && options.express != "megatron")
    throw InputError("--express must be megatron, not '" + options.express + "'");
  const PlanAnswer answer = find_plan(scenario, *scenario.budget, options.method);
  if (!answer.best) {
    print("no plan fits " + pretty(*scenario.budget) + ": the lowest peak of " + std::to_string(answer.simulations) +
          " simulated plans is " + pretty(answer.least_peak) + " (" + to_string(answer.least_peak) + " B)\n");
    return exit_no;
  }
  const Proposal& best = *answer.best;
  if (options.express == "megatron") {
    if (best.method == "none") {
      print("# fits without recomputation; no flags needed\n");
      return exit_yes;
    }
    if (best.megatron.empty())
      throw InputError("this plan (" + best.words + ") has no flags in Megatron; try --method uniform or block");
    print(best.megatron + "\n");
    return exit_yes;
  }
  const std::string text = in_words(answer, *scenario.budget) + write_plan(best.plan, answer.outline);
  if (options.out.empty()) {
    print(text);
    return exit_yes;
  }
  OutputFile file(options.out);
  file.write(text);
  print(in_words(answer, *scenario.budget));
  file.commit();
  return exit_yes;
}

}  // namespace tidemark::cli
