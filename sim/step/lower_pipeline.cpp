#include "tidemark/step/lower_pipeline.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "tidemark/base/errors.hpp"
#include "tidemark/step/lower.hpp"

namespace tidemark {
namespace {

/// Moves the weights' part of each backward of a chain's Step behind the step's last op.
class WeightSplit {
 public:
  WeightSplit(const Step& step, const LayerGraph& part) : in_(step), part_(part), out_(step) {}

  Step split(std::vector<OpId>& weights_begin) {
    out_.ops.clear();
    out_.reads.clear();
    out_.instructions.clear();
    late_.assign(in_.storages.size(), no_id);
    for (StorageId id = 0; id < in_.storages.size(); ++id) split_storage(id);
    std::size_t i = 0;
    for (int s = 0; s < in_.steps; ++s) {
      while (i < in_.instructions.size() && in_.ops[in_.instructions[i].op].step == s) take(in_.instructions[i++]);
      weights_begin.push_back(static_cast<OpId>(out_.ops.size()));
      for (const Late& op : weights_) put_weights(op);
      weights_.clear();
    }
    return std::move(out_);
  }

 private:
  struct Late {
    StepOp op;
    std::vector<StorageId> made, freed;
  };
  const LayerCost& cost(std::int32_t layer) const { return part_.layers[static_cast<std::size_t>(layer)]; }

  /// What a layer saved is two storages: one goes with the activations' backward, one with the weights'.
  void split_storage(StorageId id) {
    const StepStorage& storage = in_.storages[id];
    const bool is_saved = storage.category == Category::activation && in_.names[storage.name].starts_with("saved");
    if (!is_saved || cost(storage.layer).weight_activation.count == 0) return;
    StepStorage late = storage;
    late.bytes = cost(storage.layer).weight_activation;
    late.name = out_.names.id(in_.names[storage.name] + ".for_weights");
    out_.storages[id].bytes -= late.bytes;
    late_[id] = static_cast<StorageId>(out_.storages.size());
    out_.storages.push_back(late);
  }

  void take(const Instruction& at) {
    if (at.op != last_) open(at.op);
    last_ = at.op;
    const OpId op = static_cast<OpId>(out_.ops.size() - 1);
    const bool in_backward = in_.ops[at.op].phase == Phase::backward;
    if (at.what == Do::compute) {
      out_.ops[op].read_begin = static_cast<std::uint32_t>(out_.reads.size());
      for (std::uint32_t r = in_.ops[at.op].read_begin; r < in_.ops[at.op].read_end; ++r)
        read(in_.reads[r], in_backward);
      out_.ops[op].read_end = static_cast<std::uint32_t>(out_.reads.size());
      out_.instructions.push_back({Do::compute, at.stream, op, op});
      return;
    }
    if (in_backward && at.what == Do::alloc && in_.storages[at.index].category == Category::gradient) {
      weights_.back().made.push_back(at.index);
      return;
    }
    if (out_.storages[at.index].bytes.count > 0) out_.instructions.push_back({at.what, at.stream, op, at.index});
    const StorageId late = late_[at.index];
    if (late == no_id) return;
    if (in_backward && at.what == Do::free)
      weights_.back().freed.push_back(late);
    else
      out_.instructions.push_back({at.what, at.stream, op, late});
  }

  void read(StorageId id, bool in_backward) {
    if (in_backward && in_.storages[id].category == Category::gradient) return;
    if (out_.storages[id].bytes.count > 0) out_.reads.push_back(id);
    if (late_[id] != no_id) out_.reads.push_back(late_[id]);
  }

  void open(OpId id) {
    StepOp op = in_.ops[id];
    op.read_begin = op.read_end = static_cast<std::uint32_t>(out_.reads.size());
    if (op.phase == Phase::backward) {
      const LayerCost& layer = cost(op.layer);
      StepOp weights = op;
      weights.name = out_.names.id("W" + std::to_string(part_.first + op.layer));
      weights.time = layer.weight_time;
      weights.flops = static_cast<std::int64_t>(std::min(layer.forward_flops, layer.backward_flops).count);
      op.time -= weights.time;
      op.flops -= weights.flops;
      weights_.push_back({weights, {}, {}});
    }
    out_.ops.push_back(op);
  }

  void put_weights(const Late& late) {
    StepOp op = late.op;
    const auto id = static_cast<OpId>(out_.ops.size());
    op.read_begin = static_cast<std::uint32_t>(out_.reads.size());
    out_.reads.insert(out_.reads.end(), late.made.begin(), late.made.end());
    out_.reads.insert(out_.reads.end(), late.freed.begin(), late.freed.end());
    op.read_end = static_cast<std::uint32_t>(out_.reads.size());
    out_.ops.push_back(op);
    for (const StorageId made : late.made) out_.instructions.push_back({Do::alloc, op.stream, id, made});
    out_.instructions.push_back({Do::compute, op.stream, id, id});
    for (const StorageId freed : late.freed) out_.instructions.push_back({Do::free, op.stream, id, freed});
  }

  const Step& in_;
  const LayerGraph& part_;
  Step out_;
  std::vector<StorageId> late_;  // by storage: what the weights still need of it
  std::vector<Late> weights_;    // of this step, in the order of backward
  OpId last_ = no_id;
};

/// What waits for the weights is not known to a plan, and hooks copy without one.
void refuse_copies(const Plan& plan, bool splits) {
  const bool copies = std::ranges::any_of(plan.steps, [](const PlanStep& step) {
    return step.action == Action::copy_out || step.action == Action::copy_in;
  });
  if (copies && splits)
    throw InputError(
        "a stage that runs the weights' backward apart copies nothing to the host; expected another schedule, "
        "or a policy without copies");
  if (plan.checkpointing.kind == Checkpointing::Kind::offload)
    throw InputError("a pipeline's stages have no saved-tensor hooks; expected policy.offload, or no copies");
}

}  // namespace

bool has_copies(const std::vector<ChunkStep>& chunks) {
  return std::ranges::any_of(chunks, [](const ChunkStep& chunk) { return !chunk.step.host.empty(); });
}

LayerGraph part_of_chain(const LayerGraph& chain, std::int32_t first, std::int32_t count) {
  LayerGraph part;
  const auto begin = chain.layers.begin() + first;
  part.layers.assign(begin, begin + count);
  for (std::int32_t i = 0; i < count; ++i)
    part.layers[static_cast<std::size_t>(i)].inputs =
        i == 0 ? std::vector<std::int32_t>{} : std::vector<std::int32_t>{i - 1};
  part.input = first == 0 ? chain.input : (begin - 1)->output;
  part.is_chain = true;
  part.first = chain.first + first;
  if (begin + count == chain.layers.end()) {
    part.output_gradient = chain.output_gradient;
    part.loss_time = chain.loss_time;
    part.loss_workspace = chain.loss_workspace;
  } else {
    part.output_gradient = (begin + count)->gradient;
  }
  return part;
}

ChunkStep lower_chunk(const LayerGraph& part, const Plan& plan, int steps, bool splits) {
  refuse_copies(plan, splits);
  ChunkStep out;
  out.step = lower(part, plan, Convention::framework, steps);
  if (splits) out.step = WeightSplit(out.step, part).split(out.weights_begin);
  const auto first = std::to_string(part.first);
  out.input = "boundary" + first;
  out.input_gradient = "gradient" + first;
  out.output = "boundary" + std::to_string(part.first + static_cast<std::int32_t>(part.layers.size()));
  out.input_bytes = part.input;
  out.output_bytes = part.layers.back().output;
  out.loss_runs_backward = true;
  return out;
}

ChunkStep lower_chunk(const TransformerChunk& chunk, const Plan& plan, Training training, bool splits) {
  const Program& program = chunk.program;
  const auto tensor = [&](TensorId id) -> const Tensor& { return program.tensors[static_cast<std::size_t>(id)]; };
  const auto bytes = [&](TensorId id) { return program.storages[static_cast<std::size_t>(tensor(id).storage)].bytes; };
  refuse_copies(plan, splits);
  ChunkStep out;
  out.pieces = training.batch.accumulate = std::min(2, training.batch.accumulate);
  out.step = splits ? lower_split(program, plan, training, chunk.input, out.weights_begin)
                    : lower(program, plan, training, chunk.input);
  if (chunk.input >= 0) {
    out.input = tensor(chunk.input).name;
    out.input_gradient = out.input + ".grad.sent";
    out.input_bytes = bytes(chunk.input);
  }
  if (chunk.shared_table >= 0) {
    const Tensor& table = tensor(chunk.shared_table);
    const std::optional<DType> main = training.dtypes.main_gradients;
    out.shared_gradient = table.name + (main ? ".main_grad" : ".grad");
    out.shared_bytes = Bytes{*element_count(table.shape) * bytes_per_element(main.value_or(table.dtype))};
  }
  if (program.loss_gradient >= 0) {
    out.output = tensor(program.loss).name;
    out.output_gradient = tensor(program.loss_gradient).name;
    out.output_bytes = bytes(program.loss);
  }
  return out;
}

}  // namespace tidemark
