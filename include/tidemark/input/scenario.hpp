/// What did the user ask for?
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "tidemark/base/device.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/program/layer_graph.hpp"
#include "tidemark/program/mlp.hpp"
#include "tidemark/program/training.hpp"
#include "tidemark/program/transformer.hpp"
#include "tidemark/step/lower.hpp"

namespace tidemark {

using ModelSpec = std::variant<LayerGraph, MlpSpec, TransformerSpec>;

struct Scenario {
  std::string name;
  std::string file;    // where it came from, for messages; "" without one
  std::string family;  // chain, graph, mlp, transformer
  ModelSpec model;
  Policy policy;
  Training training;
  Convention convention = Convention::framework;
  Device device;
  std::optional<Bytes> budget;
  std::string flops_convention = "palm";
  std::string allocator = "live";
};

}  // namespace tidemark
