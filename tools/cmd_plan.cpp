#include <charconv>
#include <string>

#include "commands.hpp"
#include "plan_stages.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/input/plan_file.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/report/json_writer.hpp"
#include "tidemark/report/output_file.hpp"
#include "tidemark/study/frontier.hpp"
#include "tidemark/study/planner.hpp"

namespace tidemark::cli {
namespace {

std::string percent(Flops part, Flops whole) {
  if (whole.count == 0) return "0 %";
  const auto tenths = static_cast<std::int64_t>((part.count * 1000 + whole.count / 2) / whole.count);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " %";
}

/// "1.3 %", one digit, rounded up: a gap is never said to be smaller than it is.
std::string gap(Int128 value, Int128 bound) {
  const auto tenths = static_cast<std::int64_t>(((value - bound) * 1000 + bound - 1) / bound);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " %";
}

std::string bound_line(const PlanAnswer& answer) {
  const LowerBound& bound = answer.bound;
  const PlanCost& cost = answer.best->cost;
  if (answer.best->method == "none") return "# nothing runs again: this one is optimal\n";
  std::string out = "# no plan that fits ", to_gain;
  if (bound.time.count > 0) {
    out += "takes less than " + pretty(bound.time);
    to_gain = gap(cost.time.count, bound.time.count);
  } else if (answer.without.total.count > 0) {
    out += "recomputes less than " + pretty(bound.recompute);
    to_gain = gap(cost.total.count, answer.without.total.count + bound.recompute.count) + " of the FLOPs";
  } else {
    out += "runs fewer than " + std::to_string(bound.recomputes) + " ops again";
    to_gain = std::to_string(cost.recomputes - bound.recomputes);
  }
  out += " (" + bound.proof + "): ";
  return out + (bound.is_tight ? "this one is optimal" : "at most " + to_gain + " to gain") + "\n";
}

std::string list(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::string in_words(const PlanAnswer& answer, Bytes budget) {
  const Proposal& best = *answer.best;
  std::string out = "# " + best.words + " (method " + best.method;
  out += (answer.tried.size() > 1 ? "; tried " + list(answer.tried) : "") + ")\n";
  out += "# peak " + pretty(best.cost.peak) + " (" + to_string(best.cost.peak) + " B) within " + pretty(budget) +
         "; without recomputation " + pretty(answer.without.peak) + "\n";
  if (answer.without.total.count > 0 || best.cost.recomputes == 0)
    out += "# recomputes " + pretty(best.cost.recompute) + ", " + percent(best.cost.recompute, answer.without.total) +
           " more FLOPs\n";
  else
    out +=
        "# recomputes: " + std::to_string(best.cost.recomputes) + " runs of ops, whose FLOPs the model does not give\n";
  if (best.cost.time.count > 0)
    out += "# time " + pretty(best.cost.time) + ", without recomputation " + pretty(answer.without.time) + "\n";
  out += bound_line(answer);
  for (const std::string& note : answer.notes) out += "# " + note + "\n";
  return out + "# " + std::to_string(answer.simulations) + " plans simulated\n";
}

/// `framework`: whose words alone were searched; "" is none.
std::string nothing_fits(const PlanAnswer& answer, Bytes budget, const std::string& framework) {
  constexpr std::size_t most = 8;
  const Nearest& nearest = answer.nearest;
  const std::string which = !framework.empty()       ? "nothing that " + framework + " can say fits "
                            : nearest.peak <= budget ? "no plan of this method fits "
                                                     : "no plan fits ";
  std::string out = which + pretty(budget) + ": the lowest peak of " + std::to_string(answer.simulations) +
                    " simulated plans is " + pretty(nearest.peak) + " (" + to_string(nearest.peak) + " B)\n";
  if (!nearest.op.empty()) out += "it is reached in " + nearest.op + ", where these are alive:\n";
  for (std::size_t i = 0; i < nearest.alive.size() && i < most; ++i)
    out += "  " + nearest.alive[i].first + "  " + pretty(nearest.alive[i].second) + "\n";
  if (nearest.alive.size() > most) out += "  and " + std::to_string(nearest.alive.size() - most) + " more\n";
  for (const std::string& note : answer.notes) out += note + "\n";
  return out;
}

/// Whether it is the framework's words that keep a plan from fitting.
std::string outside_words(const PlanAnswer& free) {
  if (!free.best) return "no plan that was found without its words fits either\n";
  return "without its words, \"" + free.best->words + "\" fits: peak " + pretty(free.best->cost.peak) +
         "; plan without --express writes it\n";
}

/// What it costs that the framework cannot say more.
std::string price(const PlanAnswer& said, const PlanAnswer& free) {
  if (!free.best) return "";
  const PlanCost &here = said.best->cost, &there = free.best->cost;
  const bool timed = here.time.count > 0;
  const Int128 more = timed ? Int128{here.time.count - there.time.count} : here.total.count - there.total.count;
  if (more == 0 && here.recomputes > there.recomputes)
    return "# the price of its words: " + std::to_string(here.recomputes - there.recomputes) +
           " more runs of ops than \"" + free.best->words + "\"\n";
  if (more <= 0) return "# no plan that was found without the framework is cheaper\n";
  const std::string amount = timed ? pretty(Nanos{static_cast<std::int64_t>(more)}) : pretty(Flops{more});
  return "# the price of its words: " + amount + ", " +
         gap(timed ? Int128{here.time.count} : here.total.count, timed ? Int128{there.time.count} : there.total.count) +
         " above \"" + free.best->words + "\"\n";
}

double seconds_of(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0) || value > 1e6)
    throw InputError("--time-limit must be a number of seconds above 0, not '" + text + "'");
  return value;
}

int frontier(const Scenario& scenario, const PlanOptions& options, const PlanSettings& settings) {
  int points = 0;
  const std::string& text = options.points;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), points);
  if (error != std::errc() || end != text.data() + text.size() || points < 2 || points > 10'000)
    throw InputError("--points must be a whole number from 2 to 10000, not '" + text + "'");
  if (!options.budget.empty()) throw InputError("--frontier plans for many budgets; leave out --budget");
  OutputFile file(options.frontier);
  const std::vector<FrontierPoint> found = find_frontier(scenario, points, settings);
  file.write(frontier_csv(found, outline(scenario)));
  file.commit();
  return exit_yes;
}

}  // namespace

int plan_command(const PlanOptions& options) {
  Scenario scenario = read_scenario(options.scenario, options.sets);
  PlanSettings settings{.method = options.method, .express = options.express, .heuristic = options.heuristic};
  if (!options.time_limit.empty()) settings.seconds = seconds_of(options.time_limit);
  if (!options.frontier.empty() && scenario.pipeline)
    throw InputError("--frontier is of one device; a pipeline's stages are planned for one --budget");
  if (!options.frontier.empty()) return frontier(scenario, options, settings);
  if (!options.budget.empty()) {
    scenario.budget = parse_bytes(options.budget);
    if (!scenario.budget)
      throw InputError("--budget must be a size with a unit, such as 40GiB, not '" + options.budget + "'");
  }
  const std::optional<Bytes> device = scenario.device.usable ? scenario.device.usable : scenario.device.capacity;
  if (!scenario.budget && device) scenario.budget = *device;
  if (!scenario.budget) throw InputError("plan needs a budget: --budget SIZE, 'budget' or a device in the scenario");
  *scenario.budget -= scenario.device.non_torch;  // the plan has what is left
  if (scenario.pipeline) return plan_stages(scenario, options);
  const PlanAnswer answer = find_plan(scenario, *scenario.budget, settings);
  std::optional<PlanAnswer> free;  // of the framework's words
  if (!options.express.empty()) {
    settings.express.clear();
    free = find_plan(scenario, *scenario.budget, settings);
  }
  if (!answer.best) {
    print(nothing_fits(answer, *scenario.budget, options.express) + (free ? outside_words(*free) : ""));
    return exit_no;
  }
  if (free) {
    print(in_words(answer, *scenario.budget) + price(answer, *free) + answer.best->express + "\n");
    return exit_yes;
  }
  const Proposal& best = *answer.best;
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
