/// How does a test, or a page, show what a kernel rule does?
#pragma once

#include <string>
#include <vector>

#include "tidemark/program/program.hpp"
#include "tidemark/step/kernel.hpp"

namespace tidemark::test {

/// One op on small tensors: the last op of a program of its own.
struct Sample {
  std::string name;
  Program program;
  std::vector<std::string> inputs;  // what its inputs are called: "x", "weight"
  const ProgramOp& op() const { return program.ops.back(); }
};
/// Every op kind but custom, with the variants whose rules branch.
std::vector<Sample> samples();
const Sample& find_sample(const std::vector<Sample>& all, const std::string& name);

/// A rule's Kernel in words: "+out +mean 16 run", "x weight mean", "+dx +dweight run, g to residual". Outputs and
/// gradients have their tensors' sizes; buffers are followed by their bytes.
struct RuleText {
  std::string forward, saved, backward;
  friend bool operator==(const RuleText&, const RuleText&) = default;
};
RuleText text_of(const Sample& sample, const Kernel& kernel);

/// The rule tables of docs/memory-model.md: `ideal` in full, of the others what differs from the set they start from.
std::string rule_tables();

}  // namespace tidemark::test
