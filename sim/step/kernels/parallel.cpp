/// Products and tables that tensor-parallel ranks share, and what ranks exchange.
#include <algorithm>
#include <string>

#include "draft.hpp"

namespace tidemark::kernels {

/// Transformer Engine's Linear and LayerNormLinear (transformer_engine/pytorch/module/linear.py) and Megatron-LM's
/// LinearWithGradAccumulationAndAsyncCommunication (megatron/core/tensor_parallel/layers.py).
///   column         a rank makes some columns of the result; the gradients of the input are added up over the ranks
///   column_tokens  the input's tokens are divided: all are gathered for the product, and again in backward, where the
///                  gradients are added up and divided. What is saved is the rank's own part
///   row            each rank has some columns of the input: results are added up
///   row_tokens     results are added up and divided by tokens; their gradients are gathered
/// `_buffered`: gathered into a buffer that stays, Megatron-LM's GlobalMemoryBuffer.
Kernel split_linear(const OpView& op) {
  const std::string& how = op.op.attributes.implementation;
  const bool column = how.starts_with("column");
  const bool divides_tokens = how.find("_tokens") != std::string::npos;
  const bool gathers = column && divides_tokens, scatters = !column && divides_tokens;
  const bool buffered = how.ends_with("_buffered");
  const Tensor& x = op.input(0);
  const Tensor& weight = op.input(1);
  const std::int64_t ranks = op.op.attributes.ranks;
  const std::int64_t whole_input = product(op, gathers ? ranks : 1, bytes(x));
  const std::int64_t whole_output = product(op, scatters ? ranks : 1, bytes(op.output(0)));
  const std::int64_t flops =
      matmul_flops(op, product(op, gathers ? ranks : 1, rows(x)), weight.shape.at(0), weight.shape.at(1));
  const std::int64_t products = (op.needs_gradient(0) ? 1 : 0) + (op.needs_gradient(1) ? 1 : 0);
  Draft k(op);
  const auto gathered = [&](std::int64_t size) {
    const std::int32_t buffer = buffered ? -1 : k.temp("gathered", size);
    k.exchange("all_gather", size);
    return buffer;
  };
  const auto let_go = [&](std::int32_t buffer) {
    if (buffer >= 0) k.free_temp(buffer);
  };
  const std::int32_t tokens = gathers ? gathered(whole_input) : -1;
  if (scatters) {
    const std::int32_t part = k.temp("partial_sums", whole_output);
    k.run().outputs().exchange("reduce_scatter", whole_output).free_temp(part);
  } else {
    k.outputs().run();
    if (!column) k.exchange("all_reduce", whole_output);
  }
  let_go(tokens);
  k.save_input_for(1, 0).save_input_for(0, 1);

  k.backward();
  const std::int32_t of_output = scatters ? gathered(whole_output) : -1;
  const std::int32_t tokens_again = gathers && op.needs_gradient(1) ? gathered(whole_input) : -1;
  const std::int32_t part = gathers && op.needs_gradient(0) ? k.temp("partial_gradient", whole_input) : -1;
  k.gradient(0).gradient(1).run();
  if (column && op.needs_gradient(0)) k.exchange(gathers ? "reduce_scatter" : "all_reduce", whole_input);
  let_go(tokens_again);
  let_go(part);
  if (op.inputs() > 2) k.gradient(2);
  let_go(of_output);
  return k.matmul_flops(flops, product(op, products, flops)).finish();
}

/// VocabParallelEmbedding (megatron/core/tensor_parallel/layers.py): ids outside the rank's words are masked, their
/// rows made zero in place; the mask and the shifted ids are kept. Backward masks a copy of the gradient.
Kernel split_embedding(const OpView& op) {
  constexpr std::int64_t int64 = 8;
  const std::int64_t ids = elements(op.input(0));
  Draft k(op);
  const std::int32_t below = k.temp("ids_below", ids);
  const std::int32_t above = k.temp("ids_above", ids);
  const std::int32_t mask = k.temp("ids_mask", ids);
  k.free_temp(above).free_temp(below);
  const std::int32_t clone = k.temp("ids_clone", product(op, int64, ids));
  const std::int32_t masked = k.temp("masked_ids", product(op, int64, ids));
  k.free_temp(clone).outputs().run().save_temp(masked).save_temp(mask);
  k.backward();
  const std::int32_t gradient = k.temp("masked_gradient", bytes(op.output(0)));
  k.gradient(1).run().free_temp(gradient);
  return k.other_flops(elements(op.output(0)), elements(op.output(0))).finish();
}

/// What ranks exchange between ops, and its counterpart in backward (megatron/core/tensor_parallel/mappings.py;
/// torch.distributed._functional_collectives). `scatter` takes the rank's own part without asking the others.
Kernel collective(const OpView& op) {
  const std::string& how = op.op.attributes.implementation;
  const std::int64_t in = bytes(op.input(0)), out = bytes(op.output(0));
  Draft k(op);
  if (how == "all_reduce") return k.exchange(how, in).backward().pass(0).finish();
  if (how == "scatter") return k.outputs().run().backward().gradient(0).exchange("all_gather", in).finish();
  if (how == "all_gather")
    return k.outputs().exchange(how, out).backward().gradient(0).exchange("reduce_scatter", out).finish();
  if (how == "reduce_scatter")
    return k.outputs().exchange(how, in).backward().gradient(0).exchange("all_gather", in).finish();
  // What a busy rank receives can be more than it sends: the link's fuller way takes the time.
  const std::int64_t fuller = std::max(in, out);
  return k.outputs().exchange(how, fuller).backward().gradient(0).exchange(how, fuller).finish();
}

}  // namespace tidemark::kernels
