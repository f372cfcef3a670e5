/// How do numbers for layers, written one by one or as a table, become a LayerGraph?
#pragma once

#include <string>

#include "tidemark/input/yaml_map.hpp"
#include "tidemark/program/layer_graph.hpp"

namespace tidemark {

/// The model of family chain. Throws InputError for a list whose length is not the number of layers, a value given
/// both inline and in the file, an attention_fraction that does not give a whole number of FLOPs.
LayerGraph read_chain(const YamlMap& model);

/// The model of family graph: a layer table or a PipeDream graph.txt, put into a topological order that stays as near
/// as possible to the file's (a table's rows, PipeDream's node numbers). Throws InputError for a cycle, an unknown or
/// repeated id, naming the row. `whole_step`: the rows of the table are all computations of a step.
LayerGraph read_graph(const YamlMap& model, bool whole_step);

/// PipeDream's profile: "node4 -- Conv2d(...) -- forward_compute_time=46.201, ..." in ms and bytes, then edges
/// "\tnode4 -- node5". A layer's activation and output are activation_size (a tuple's parts added up), its gradient
/// that of all it reads.
LayerGraph read_pipedream(const std::string& path);

/// The layers in a topological order, the lowest index first among those that are ready; `inputs` are renumbered.
/// `where` gives the place of a layer's row. Throws InputError naming a layer on a cycle.
std::vector<LayerCost> in_topological_order(std::vector<LayerCost> layers, const std::vector<SourceLoc>& where);

}  // namespace tidemark
