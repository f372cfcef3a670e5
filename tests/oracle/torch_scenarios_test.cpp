// Do the recorded PyTorch steps come out of a scenario as a user writes it: program, policy, checkpointing, loop?
#include <doctest/doctest.h>

#include <string>

#include "support/csv.hpp"
#include "support/program_text.hpp"
#include "support/torch_nets.hpp"
#include "support/torch_plans.hpp"
#include "support/torch_streams.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/step/lower.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;
using test::Row;

namespace {

using Settings = std::map<std::string, std::string>;

std::string get(const Settings& s, const std::string& key, const std::string& otherwise) {
  const auto found = s.find(key);
  return found == s.end() ? otherwise : found->second;
}

std::string joined(const std::vector<std::string>& words, const std::string& between) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

std::string checkpointing(const Settings& policy) {
  if (policy.at("kind") == "offload")
    return std::string("{kind: offload, parameters: ") + (get(policy, "params", "0") == "1" ? "true}" : "false}");
  return std::string("{kind: ") + (get(policy, "reentrant", "0") == "1" ? "reentrant" : "nonreentrant") +
         ", early_stop: " + (get(policy, "early", "1") == "1" ? "true" : "false") +
         ", preserve_rng: " + (get(policy, "rng", "0") == "1" ? "true}" : "false}");
}

/// "bmm/_softmax", or "mm/2": a number belongs to the name before it.
std::string kept(const std::string& sac) {
  std::vector<std::string> names;
  for (const std::string& word : test::split(sac, '/')) {
    if (word == "2")
      names.back() += "/2";
    else
      names.push_back(word == "_softmax" ? "softmax" : word);
  }
  return joined(names, ", ");
}

/// Blocks of a mask as "0,2,3".
std::string blocks(const std::string& mask) {
  std::vector<std::string> chosen;
  const std::vector<std::string> words = test::split(mask, '/');
  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i] == "1") chosen.push_back(std::to_string(i));
  return joined(chosen, ",");
}

std::string policy_text(const Settings& policy) {
  const std::string kind = policy.at("kind");
  std::string rule = "kind: none";
  if (kind == "every" && policy.count("sac") != 0)
    rule = "kind: selective, keep: [" + kept(policy.at("sac")) + "], interval: " + policy.at("K");
  else if (kind == "every")
    rule = "kind: interval, interval: " + policy.at("K") +
           ", checkpoint_last: " + (policy.at("last") == "1" ? "true" : "false");
  else if (kind == "sequential")
    rule = "kind: sequential, segments: " + policy.at("segments");
  else if (kind == "mask")
    rule = "kind: selective, layers: \"" + blocks(policy.at("mask")) + "\"";
  else if (kind == "inside")
    rule = "kind: selective, recompute: [core]";
  else if (kind == "offload")
    rule = "kind: full";
  if (kind == "none") return "policy: none\n";
  return "policy: {" + rule + ", checkpointing: " + checkpointing(policy) + "}\n";
}

std::string optimizer_text(const Row& row) {
  const std::string& o = row.at("optimizer");
  const std::string kind = o == "sgdm"                 ? "momentum"
                           : o.starts_with("adamw")    ? "adamw"
                           : o.starts_with("adam")     ? "adam"
                           : o == "sgd" || o == "none" ? o
                                                       : "?";
  return "optimizer: {kind: " + kind + ", multi_tensor: " + (o == "adam_foreach" ? "true" : "false") +
         ", fused: " + (o == "adamw_fused" ? "true" : "false") +
         ", zero_grad: " + (row.at("zero_grad") == "zero" ? "zero" : "none") + "}\n";
}

std::string scenario_text(const Row& row) {
  const Program program = test::torch_net(row.at("family"), test::settings(row.at("net")));
  return "profile: pytorch-" + row.at("version") + "-cpu\n" + optimizer_text(row) +
         "batch: {accumulate: " + row.at("micro_batches") +
         "}\nsteps: " + std::to_string(std::stoi(row.at("warm")) + 1) + "\n" +
         policy_text(test::settings(row.at("policy"))) + test::program_text(program);
}

}  // namespace

TEST_CASE("recorded PyTorch steps: every allocation and free, out of a scenario") {
  for (const Row& row : test::table("tests/oracle/data/torch_steps.csv")) {
    const std::string name = row.at("version") + " " + row.at("name");
    CAPTURE(name);
    const Run made = run(parse_scenario(scenario_text(row), "recorded.yaml"));
    const std::size_t live = test::split(row.at("live"), ' ').size();
    CHECK(test::difference(test::events_of(made.step, live), test::split(row.at("events"), ' ')) == "");
  }
}

TEST_CASE("a program written down and read again is the same program") {
  const std::string nets[] = {"L=3 d=4 h=6 n=5 style=inplace", "L=2 d=4 h=6 n=5 style=linear loss=sum xgrad=False"};
  for (const std::string& net : nets) {
    CAPTURE(net);
    const Program program = test::torch_net("mlp", test::settings(net));
    const Scenario scenario = parse_scenario(test::program_text(program), "program.yaml");
    const Program& read = std::get<Program>(scenario.model);
    REQUIRE(read.ops.size() == program.ops.size());
    for (std::size_t k = 0; k < program.ops.size(); ++k) {
      const ProgramOp& a = read.ops[k];
      const ProgramOp& b = program.ops[k];
      CAPTURE(b.name);
      CHECK(a.kind == b.kind);
      CHECK(a.name == b.name);
      CHECK(a.attributes == b.attributes);
      CHECK(a.releases.size() == b.releases.size());
      for (std::size_t i = 0; i < b.outputs.size(); ++i) {
        const Tensor& x = read.tensors[static_cast<std::size_t>(a.outputs[i])];
        const Tensor& y = program.tensors[static_cast<std::size_t>(b.outputs[i])];
        CHECK(x.shape == y.shape);
        CHECK(x.strides == y.strides);
        CHECK(x.requires_grad == y.requires_grad);
      }
    }
  }
}
