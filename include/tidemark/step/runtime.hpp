/// Which habits of the framework's runtime decide when memory dies?
#pragma once

#include <string>

namespace tidemark {

/// The `runtime` axis of a profile as switches; E5 to E9 are rules of PyTorch's autograd/engine.cpp, input_buffer.cpp,
/// accumulate_grad.h and variable.cpp (1.13.1 and 2.6.0), numbered as in docs/memory-model.md.
struct Runtime {
  bool host_scopes = false;        // E9: a Python local keeps its tensor until it is rebound or returns
  bool sums_in_place = true;       // E6: two gradients that meet are added in place when the buffer has one owner (2.x)
  bool seed_held = false;          // E7: the gradient of the loss lives until backward returns
  bool stops_early = false;        // nonreentrant checkpointing ends recomputation at the last saved tensor (2.x)
  bool unpacks_to_locals = false;  // a recomputed tensor leaves its slot and dies before the incoming gradient (2.x)
  bool inputs_in_tuple = false;    // a nonreentrant region's inputs, of which a tuple drops the last first (1.13)
  friend bool operator==(const Runtime&, const Runtime&) = default;
};

/// Throws InputError for an unknown name.
Runtime runtime_rules(const std::string& runtime);

}  // namespace tidemark
