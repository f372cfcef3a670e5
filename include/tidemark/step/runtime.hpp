/// Which habits of the framework's runtime decide when memory dies?
#pragma once

#include <string>

namespace tidemark {

/// The `runtime` axis of a profile as switches. Each is a rule of MEMORY: E5, E6, E7, E9 name PyTorch's own
/// (autograd/engine.cpp, input_buffer.cpp, accumulate_grad.h, variable.cpp of 1.13.1 and 2.6.0).
struct Runtime {
  bool host_scopes = false;   // E9: a Python local keeps its tensor until it is rebound or returns
  bool sums_in_place = true;  // E6: two gradients meet: added in place when the buffer has one owner (2.x)
  bool seed_held = false;     // E7: the gradient of the loss lives until backward returns
  friend bool operator==(const Runtime&, const Runtime&) = default;
};

/// Throws InputError for an unknown name.
Runtime runtime_rules(const std::string& runtime);

}  // namespace tidemark
