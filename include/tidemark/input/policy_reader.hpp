/// Which policy does a scenario ask for?
#pragma once

#include <string>

#include "tidemark/input/document.hpp"
#include "tidemark/plan/policy.hpp"

namespace tidemark {

struct PolicyRequest {
  Policy policy;
  std::string plan_file;  // of policy `plan`: to be read against the model's outline; "" without one
};

/// `policy: full` or `policy: {kind: interval, interval: 3, ...}`. Throws InputError for an unknown kind, a planner
/// that is not available yet, and keys that the kind does not have.
PolicyRequest read_policy(const DocPtr& node);

}  // namespace tidemark
