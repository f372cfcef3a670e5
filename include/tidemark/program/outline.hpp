/// What does a policy see of a model, whatever the family?
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/program/layer_graph.hpp"
#include "tidemark/program/program.hpp"

namespace tidemark {

/// An op by its place in an Outline.
struct OpRef {
  std::int32_t layer = 0;
  std::int32_t op = 0;  // within the layer
  friend auto operator<=>(const OpRef&, const OpRef&) = default;
};

/// What a node holds for backward, parameters and the batch aside: they live anyway.
struct OutlineSaved {
  std::int32_t storage = -1;  // its number in the model; -1: a temporary, which no other node holds
  Bytes bytes;
  friend bool operator==(const OutlineSaved&, const OutlineSaved&) = default;
};

struct OutlineOp {
  std::string name;    // within the layer: "attention.softmax"
  std::string kind;    // "softmax"; for a layer graph the layer's type
  Bytes output_bytes;  // new bytes its outputs take (aliases 0)
  Flops forward_flops;
  Bytes saved_bytes;          // what its node holds that no earlier op of the layer holds already
  std::vector<OpRef> inputs;  // ops whose outputs it reads, all of them earlier; empty: only inputs and parameters
  std::optional<OpRef> overwrites = std::nullopt;  // in place: the op whose output it writes over
  std::vector<OutlineSaved> saved = {};            // each storage its node holds, whoever else does
  friend bool operator==(const OutlineOp&, const OutlineOp&) = default;
};

struct OutlineLayer {
  std::string name;
  std::string type;            // attention, ffn, other, block
  bool is_block = false;       // policies count blocks: block i is the i-th of these
  Bytes saved_bytes;           // what it saves when run in full
  std::vector<OutlineOp> ops;  // in forward order
  friend bool operator==(const OutlineLayer&, const OutlineLayer&) = default;
};

struct Outline {
  std::vector<OutlineLayer> layers;
  bool is_chain = false;
  bool saves_as_one = false;   // a layer graph: what a layer saved, its output with it, is one storage
  bool is_whole_step = false;  // LayerGraph::is_whole_step: nothing runs backward, there is no loss step
  Flops step_flops;            // forward + backward without recompute, for `rule`'s ratio
  friend bool operator==(const Outline&, const Outline&) = default;
};

/// A layer is one op of the layer's name and type. Where only a part of its forward FLOPs is attention, it is two:
/// op 0 "attention" and op 1 "rest" (of the layer's type, but never again attention), so that a plan can run op 0
/// alone.
Outline outline(const LayerGraph& graph);

}  // namespace tidemark
