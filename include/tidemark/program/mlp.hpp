/// The MLP chain h = relu(x W1 + b1) W2 + b2, repeated, as a Program.
#pragma once

#include <string>

#include "tidemark/program/program.hpp"
#include "tidemark/program/training.hpp"

namespace tidemark {

struct MlpSpec {
  std::int64_t layers = 4, rows = 256, width = 32, hidden = 64;
  std::string style = "matmul";     // matmul (x @ W, then + b), addmm, linear, residual, inplace
  std::string activation = "relu";  // relu, gelu, silu, tanh
  std::string loss = "mse";         // mse, sum, none
  bool input_requires_grad = true;
  bool save_pre_activation =
      false;  // profile reference: backward reads the saved pre-activation instead of rebuilding it
  friend bool operator==(const MlpSpec&, const MlpSpec&) = default;
};

Program make_mlp(const MlpSpec& spec, const Training& training);

}  // namespace tidemark
