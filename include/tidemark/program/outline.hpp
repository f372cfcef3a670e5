/// What does a policy see of a model, whatever the family?
#pragma once

#include <string>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/program/layer_graph.hpp"
#include "tidemark/program/program.hpp"

namespace tidemark {

struct OutlineOp {
  std::string name;    // within the layer: "attention.softmax"
  std::string kind;    // "softmax"; for a layer graph the layer's type
  Bytes output_bytes;  // new bytes its outputs take (aliases 0)
  Flops forward_flops;
  friend bool operator==(const OutlineOp&, const OutlineOp&) = default;
};

struct OutlineLayer {
  std::string name;
  std::string type;            // attention, ffn, other, block
  bool is_block = false;       // policies count blocks: block i is the i-th of these
  Bytes saved_bytes;           // what it saves when run in full
  std::vector<OutlineOp> ops;  // a layer-graph layer has exactly one
  friend bool operator==(const OutlineLayer&, const OutlineLayer&) = default;
};

struct Outline {
  std::vector<OutlineLayer> layers;
  bool is_chain = false;
  Flops step_flops;  // forward + backward without recompute, for `rule`'s ratio
  friend bool operator==(const Outline&, const Outline&) = default;
};

Outline outline(const LayerGraph& graph);

}  // namespace tidemark
