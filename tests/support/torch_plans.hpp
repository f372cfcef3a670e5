/// The recorded steps' policies and optimizers as plans and training settings.
#pragma once

#include <map>
#include <string>

#include "tidemark/plan/plan.hpp"
#include "tidemark/program/program.hpp"
#include "tidemark/program/training.hpp"

namespace tidemark::test {

/// `policy` as the recorder wrote it: kind (none, every, sequential, mask, inside, offload), K, last, segments, mask,
/// reentrant, rng, early, sac, what, params.
Plan torch_plan(const Program& program, const std::map<std::string, std::string>& policy);

/// `row`: version, optimizer, zero_grad, micro_batches, warm (steps before the one that counts).
Training torch_training(const std::map<std::string, std::string>& row);

}  // namespace tidemark::test
