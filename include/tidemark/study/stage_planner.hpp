/// Which policy should each stage of a pipeline have, so that all stages fit a budget and the step takes the least
/// time?
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/input/scenario.hpp"
#include "tidemark/plan/policy.hpp"

namespace tidemark {

/// A stage under the policy that was found for it.
struct StageChoice {
  Policy policy;
  std::string words;   // "the first 3 of 4 blocks in full"
  std::string method;  // that proposed it
  Bytes peak;          // as `tidemark run` has it, all stages under their policies
  Bytes without;       // no stage running anything again
  Nanos lifted;        // how much shorter all steps would be, had this stage no budget
};

/// Where nothing fits: a stage that no policy brings below the budget, at its lowest.
struct StageShort {
  std::size_t stage = 0;
  Bytes peak;
  std::string op;
};

struct StagePlanAnswer {
  std::vector<StageChoice> stages;    // nothing fits: none
  std::string express;                // in the framework's words
  Nanos time, without;                // of all steps; no stage running anything again
  std::optional<double> bubble_rate;  // of the last step
  std::optional<std::size_t> binds;   // the stage whose budget costs the step most; none where none costs anything
  std::vector<std::string> tried;
  std::int64_t simulations = 0;
  std::optional<StageShort> nearest;
};

/// "auto", "uniform", "block", "search".
const std::vector<std::string>& stage_plan_methods();

/// By stage: policies are lowered and put in the order of what they take of the stage's time; the first whose peak
/// fits, simulated micro-batch by micro-batch in the pipeline's schedule, is the stage's. A pass that gets shorter
/// delays no other, so the step takes the least time too: among what is tried, of a schedule that is not searched, and
/// with one chunk a stage. At the end all stages are run together; where one does not fit after all, its next policy is
/// taken.
///
/// `express` is a framework, or "": it has one setting for all stages.
/// Throws InputError for a method that plans one device only.
StagePlanAnswer find_stage_policies(const Scenario& scenario, Bytes budget, const std::string& method,
                                    const std::string& express);

}  // namespace tidemark
