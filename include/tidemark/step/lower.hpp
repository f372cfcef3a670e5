/// How do a model and a Plan become one ordered list of instructions?
#pragma once

#include <vector>

#include "tidemark/plan/plan.hpp"
#include "tidemark/program/layer_graph.hpp"
#include "tidemark/program/mlp.hpp"
#include "tidemark/program/program.hpp"
#include "tidemark/program/training.hpp"
#include "tidemark/program/transformer.hpp"
#include "tidemark/step/kernel.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// Runs the Plan on the Program under the profile's runtime: kernels' scripts, autograd, gradients, optimizer, all
/// micro-batches and steps. The gradient of `received`, a pipeline chunk's input, is "<its name>.grad.sent" and goes
/// with its micro-batch.
Step lower(const Program& program, const Plan& plan, const Training& training, TensorId received = -1);

/// The same with the products that make weights' gradients behind the rest of each micro-batch's backward: what they
/// need, their input and the gradient of their output, is held until then. `weights_begin` gets, by step and
/// micro-batch, the first op of those. Throws InputError under reentrant checkpointing.
Step lower_split(const Program& program, const Plan& plan, const Training& training, TensorId received,
                 std::vector<OpId>& weights_begin);

/// What a Step issues for one layer before it turns to another. Layer -1: between micro-batches, and the optimizer.
struct StepPart {
  enum class What : std::uint8_t {
    forward,   // its forward pass
    backward,  // what runs of it from backward's start on, again or backward
    unwind,    // of a rebuilt region's end: the layer's local variables go; of none: what was kept of a micro-batch's
               // loss
  } what = What::forward;
  std::int32_t layer = -1;
  int step = 0;
  int micro_batch = 0;
  std::size_t instruction = 0, op = 0;  // where it begins; it ends where the next one does
  friend bool operator==(const StepPart&, const StepPart&) = default;
};
/// By op: what the profile's rules say of it.
std::vector<Kernel> kernels_of(const Program& program, const Training& training);
/// The same Step with kernels that are known, and its parts in order.
Step lower(const Program& program, const std::vector<Kernel>& kernels, const Plan& plan, const Training& training,
           std::vector<StepPart>& parts);

/// The seed's NumPy program as it is written, with no autograd: reference counts, the pre-activation built again in
/// every layer's backward. Throws InputError for plans, styles and loops that it does not have.
Step lower_reference(const MlpSpec& spec, const Plan& plan, const Training& training);

/// llm.c's arrays, which are never freed. Throws InputError for what llm.c cannot do: another model, dropout, a policy
/// that it has no flag for, a vocabulary that it would pad.
Step lower_llmc(const TransformerSpec& spec, const Plan& plan, const Training& training);

/// Published counting rules; docs/memory-model.md has them.
enum class Convention : std::uint8_t { framework, rotor, revolve, checkmate, dtr };

/// Chains and layer graphs, directly.
Step lower(const LayerGraph& graph, const Plan& plan, Convention convention, int steps);

}  // namespace tidemark
