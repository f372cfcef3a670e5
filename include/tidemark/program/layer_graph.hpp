/// What does a model look like when each layer is a row of measured or given numbers?
///
/// A chain is the layer graph in which layer i reads layer i - 1. Lowered directly to a Step, without autograd.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tidemark/base/units.hpp"

namespace tidemark {

/// One layer's costs. What is not given is 0.
struct LayerCost {
  std::string name;
  std::string type = "other";        // attention, ffn, other
  std::vector<std::int32_t> inputs;  // layers it reads; empty: the model's input
  Bytes layer_activation;            // saved when run in full, its own output included
  Bytes output;                      // the next boundary: what a forward that saves nothing leaves
  Bytes gradient;                    // of the layer's *input*
  Bytes forward_workspace, backward_workspace;
  Bytes parameters;
  Flops forward_flops, backward_flops;
  Flops attention_flops;  // the part of forward_flops that selective recompute of "attention" runs again
  Nanos forward_time, backward_time;
  Nanos weight_time;        // the part of backward_time that weights' gradients take, where a schedule splits it off
  Bytes weight_activation;  // the part of layer_activation that they still need
  friend bool operator==(const LayerCost&, const LayerCost&) = default;
};

struct LayerGraph {
  std::vector<LayerCost> layers;  // in a topological order
  Bytes input;                    // boundary 0: the model's input, live at the start
  Bytes output_gradient;          // of the last layer's output, made by the loss
  Nanos loss_time;
  Bytes loss_workspace;
  bool is_chain = false;
  bool is_whole_step = false;  // the rows are every computation of a step, gradients too: no backward is added
  std::int32_t first = 0;      // number of its first layer, where it is a part of a longer chain
  friend bool operator==(const LayerGraph&, const LayerGraph&) = default;
};

}  // namespace tidemark
