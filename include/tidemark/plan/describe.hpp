/// What does a plan do, in one sentence?
#pragma once

#include <string>

#include "tidemark/plan/plan.hpp"
#include "tidemark/program/outline.hpp"

namespace tidemark {

/// "36 of 36 blocks run again, in 6 regions"; "2 ops of 12 of 36 blocks run again: softmax, dropout"; "nothing runs
/// again".
std::string describe(const Plan& plan, const Outline& outline);

}  // namespace tidemark
