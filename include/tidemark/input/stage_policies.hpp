/// How is one policy a stage written down, and read again?
#pragma once

#include <string>
#include <vector>

#include "tidemark/plan/policy.hpp"

namespace tidemark {

struct Field;

/// As `policy` takes it, on one line: "none", or "{kind: block, layers: 3}". A finished plan has no such form.
std::string write_policy(const Policy& policy);

/// A file that `parallel.stage_policies_file` names: `stage_policies` with one entry a stage.
std::string write_stage_policies(const std::vector<Policy>& policies);

/// Throws InputError for what is no list of rules, with the entry's place.
std::vector<Policy> stage_policies(const Field& list);
std::vector<Policy> read_stage_policies(const std::string& path);

}  // namespace tidemark
