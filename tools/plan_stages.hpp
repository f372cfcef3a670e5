/// `tidemark plan` of a pipeline: a policy for each stage.
#pragma once

#include "commands.hpp"
#include "tidemark/input/scenario.hpp"

namespace tidemark::cli {

/// `scenario` has a pipeline and a budget. Prints, or writes to `--out`, what parallel.stage_policies_file takes.
[[nodiscard]] int plan_stages(const Scenario& scenario, const PlanOptions& options);

}  // namespace tidemark::cli
