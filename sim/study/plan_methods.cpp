#include "tidemark/study/plan_methods.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <variant>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/yaml_map.hpp"

namespace tidemark {
namespace {

struct Method {
  std::string name;
  std::vector<ModelKind> kinds;
};

const std::vector<Method>& methods() {
  static const std::vector<ModelKind> layered = {ModelKind::ops, ModelKind::graph, ModelKind::chain};
  static const std::vector<ModelKind> every = {ModelKind::ops, ModelKind::graph, ModelKind::chain,
                                               ModelKind::whole_step};
  static const std::vector<Method> all = {
      {"auto", every},
      {"uniform", layered},
      {"block", layered},
      {"chen", layered},
      {"knapsack", layered},
      {"revolve", {ModelKind::chain}},
      {"mixed", {ModelKind::chain}},
      {"two_level", {ModelKind::chain}},
      {"rotor", {ModelKind::chain}},
      {"rotor_tight", {ModelKind::chain}},
      {"chain_exact", {ModelKind::chain}},
      {"checkmate", {ModelKind::whole_step}},
      {"dtr", {ModelKind::whole_step}},
      {"search", every},
  };
  return all;
}

std::string_view name_of(ModelKind kind) {
  constexpr std::array<std::string_view, 4> names = {"models of ops", "layer graphs", "chains",
                                                     "graphs whose rows are the whole step"};
  return names[static_cast<std::size_t>(kind)];
}

bool takes(const Method& method, ModelKind kind) { return std::ranges::find(method.kinds, kind) != method.kinds.end(); }

}  // namespace

ModelKind kind_of(const Scenario& scenario) {
  const auto* graph = std::get_if<LayerGraph>(&scenario.model);
  if (graph == nullptr) return ModelKind::ops;
  return graph->is_whole_step ? ModelKind::whole_step : graph->is_chain ? ModelKind::chain : ModelKind::graph;
}

const std::vector<std::string>& plan_methods() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Method& method : methods()) out.push_back(method.name);
    return out;
  }();
  return names;
}

void check_method(const std::string& method, ModelKind kind) {
  const auto found = std::ranges::find(methods(), method, &Method::name);
  if (found == methods().end())
    throw InputError("no planner is called '" + method + "'; known are " + joined(plan_methods()));
  if (takes(*found, kind)) return;
  std::vector<std::string> others;
  for (const Method& other : methods())
    if (takes(other, kind)) others.push_back(other.name);
  throw InputError("method '" + method + "' does not plan " + std::string(name_of(kind)) + "; there are " +
                   joined(others));
}

}  // namespace tidemark
