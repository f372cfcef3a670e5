/// What does an import give?
#pragma once

#include <string>
#include <vector>

namespace tidemark {

struct ImportedScenario {
  std::string framework;            // "Megatron-LM", "torchtitan"
  std::string scenario;             // YAML that `tidemark run` takes
  std::vector<std::string> unused;  // settings that change a step and are not in it, each with its value
  std::vector<std::string> notes;   // what was filled in, and why
};

}  // namespace tidemark
