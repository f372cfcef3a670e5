/// When does a tensor of a scenario's step live?
#pragma once

#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/study/pipeline.hpp"

namespace tidemark::test {

/// The step of a scenario written in a test, called "s.yaml" in errors, under some `--set`s.
inline Step step_of(const std::string& yaml, const std::vector<std::string>& sets) {
  return run(parse_scenario(yaml, "s.yaml", sets)).step;
}

/// What is wrong with it; empty when nothing is.
inline std::string error_of(const std::string& yaml, const std::vector<std::string>& sets) {
  try {
    step_of(yaml, sets);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

/// "32 B, head.lm_head to loss.float": size, birth and death by op ("start" and "end" where it has none).
inline std::string life_of(const Step& step, StorageId id) {
  std::string born = "start", died = "end";
  for (const Instruction& at : step.instructions) {
    if (at.index != id || (at.what != Do::alloc && at.what != Do::free)) continue;
    const StepOp& op = step.ops[at.op];
    (at.what == Do::alloc ? born : died) = (op.phase == Phase::backward    ? "backward of "
                                            : op.phase == Phase::recompute ? "recompute of "
                                                                           : "") +
                                           std::string(step.names[op.name]);
  }
  return std::to_string(step.storages[id].bytes.count) + " B, " + born + " to " + died;
}

/// Of all storages of that name, in the order in which they are made.
inline std::vector<std::string> lives_of(const Step& step, const std::string& name) {
  std::vector<std::string> out;
  for (StorageId id = 0; id < step.storages.size(); ++id)
    if (step.names[step.storages[id].name] == name) out.push_back(life_of(step, id));
  return out;
}

/// Of the first; "never" when there is none.
inline std::string life(const Step& step, const std::string& name) {
  const std::vector<std::string> lives = lives_of(step, name);
  return lives.empty() ? "never" : lives.front();
}

/// Of all, with " | " between them; "never" when there is none.
inline std::string every_life(const Step& step, const std::string& name) {
  std::string out;
  for (const std::string& one : lives_of(step, name)) out += (out.empty() ? "" : " | ") + one;
  return out.empty() ? "never" : out;
}

}  // namespace tidemark::test
