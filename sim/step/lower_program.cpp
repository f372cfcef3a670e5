#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

#include "program_lowering.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark {

ProgramLowering::ProgramLowering(const Program& program, const std::vector<Kernel>& kernels, const Plan& plan,
                                 const Training& training, TensorId received)
    : program_(program),
      training_(training),
      received_(received),
      runtime_(runtime_rules(training.profile.runtime)),
      kernels_(kernels),
      schedule_(schedule(program, plan, kernels_, runtime_.stops_early)),
      checkpointing_(plan.checkpointing),
      copies_(plan.copies),
      hold_boundaries_(plan.hold_boundaries),
      host_is_device_(training.profile.kernels.starts_with("cpu-")),
      emit_(step_),
      gradients_(emit_, runtime_),
      optimizer_(training.optimizer, training.dtypes, optimizer_habits(training)) {
  if (host_is_device_ && !schedule_.copies.empty())
    throw InputError("kernels " + training.profile.kernels +
                     " run where the host's memory is the device's; expected a plan without copies");
  step_.warnings = plan.warnings;
  warn_of_missing_rules();
  release_rank_.assign(program.tensors.size(), program.tensors.size());
  std::size_t rank = 0;
  for (const ProgramOp& op : program.ops)
    for (const TensorId t : op.releases) release_rank_[static_cast<std::size_t>(t)] = rank++;
}

/// Ops whose memory no rule knows: what the program says of them is all there is. One without operands only makes a
/// tensor, which needs no rule.
void ProgramLowering::warn_of_missing_rules() {
  std::map<std::string, int> counts;
  for (const ProgramOp& op : program_.ops)
    if (op.kind == OpKind::custom && !op.inputs.empty())
      ++counts[op.attributes.implementation.empty() ? op.name : op.attributes.implementation];
  if (counts.empty()) return;
  std::string names;
  std::size_t shown = 0;
  for (const auto& [name, count] : counts) {
    if (shown++ == 12) {
      names += ", ...";
      break;
    }
    names += (names.empty() ? "" : ", ") + name + (count > 1 ? " (" + std::to_string(count) + ")" : "");
  }
  step_.warnings.push_back("no rule for " + names + ": taken as given, with no temporaries but those given");
}

Step ProgramLowering::lower() {
  emit_static();
  for (step_number_ = 0; step_number_ < training_.loop.steps; ++step_number_) {
    micro_batch_ = 0;
    begin_part(StepPart::What::forward, -1);
    const StorageId token_count = emit_token_count();
    for (; micro_batch_ < training_.batch.accumulate; ++micro_batch_) emit_micro_batch();
    begin_part(StepPart::What::backward, -1);
    if (token_count != none) emit_.release(token_count);
    emit_optimizer();
    if (reports_losses()) emit_return();
    const bool last = step_number_ + 1 == training_.loop.steps;
    if (training_.optimizer.kind != OptimizerKind::none || !last) emit_zero_grad();
  }
  if (units_)
    for (const StorageId id : units_->living_gradients()) born_gradients_.push_back(id);
  if (buckets_) {
    for (const StorageId id : buckets_->buckets()) born_gradients_.push_back(id);
    for (const TensorId t : parameter_tensors_)
      if (const StorageId id = leaf_storage(t); id != none) born_gradients_.push_back(id);
  }
  for (const StorageId id : born_gradients_) step_.storages[id].outlives_step = true;
  step_.steps = training_.loop.steps;
  step_.parameters = parameter_count(program_);
  step_.model_flops = Int128{training_.batch.accumulate} * program_.model_flops;
  return std::move(step_);
}

void ProgramLowering::emit_static() {
  for (const Layer& layer : program_.layers) step_.layers.push_back(layer.name);
  values_.assign(program_.tensors.size(), none);
  variables_.assign(program_.tensors.size(), none);
  locals_.assign(program_.tensors.size(), none);
  buffers_.assign(program_.tensors.size(), no_gradient);
  leaf_storages_.assign(program_.storages.size(), none);
  is_leaf_.assign(program_.tensors.size(), false);
  for (const TensorId t : program_.parameters) is_leaf_[static_cast<std::size_t>(t)] = true;
  for (const TensorId t : program_.inputs) is_leaf_[static_cast<std::size_t>(t)] = true;
  leaf_buffers_.assign(program_.storages.size(), no_gradient);
  nodes_.resize(program_.ops.size());
  away_.resize(program_.ops.size());
  find_active_ops();
  const UnitContext context{program_, training_, schedule_, emit_, gradients_, values_, reentrant()};
  if (replicates_by_hooks(training_)) buckets_.emplace(program_, training_, emit_, leaf_storages_);
  if (training_.shards.sharding == Sharding::zero3) modules_.emplace(context, active_);
  if (gathers_units(training_.shards)) {
    units_.emplace(context);
    units_->expect_gradients(reached_);
  }
  if (training_.shards.sharding == Sharding::zero2) partition_.emplace(program_, training_, emit_, gradients_);
  region_states_.resize(schedule_.regions.size());
  std::vector<StorageId> by_storage(program_.storages.size(), none);
  const auto emit_leaf = [&](TensorId t) {
    const Tensor& leaf = tensor(t);
    StorageId& id = by_storage[static_cast<std::size_t>(leaf.storage)];
    if (is_sharded(t)) {
      if (id == none) {
        optimizer_parameters_.push_back(units_ ? units_->emit_initial(t) : modules_->emit_initial(t));
        parameter_tensors_.push_back(t);
        id = optimizer_parameters_.back().storage;
      }
      return;
    }
    if (id == none) {
      const Bytes bytes = program_.storages[static_cast<std::size_t>(leaf.storage)].bytes;
      id = emit_.initial(leaf.name, bytes, leaf.category, leaf.layer);
      step_.storages[id].outlives_step = true;
      if (leaf.category == Category::parameter) add_parameter(t, id);
    }
    value(t) = id;
  };
  for (const TensorId t : program_.parameters) emit_leaf(t);
  divide_states();
  if (modules_) modules_->emit_buffers();
  if (buckets_) buckets_->emit_initial();
  optimizer_.emit_initial(emit_, optimizer_parameters_);
  emit_main_gradients();
  for (const TensorId t : program_.inputs) emit_leaf(t);
}

void ProgramLowering::add_parameter(TensorId t, StorageId id) {
  const Tensor& p = tensor(t);
  optimizer_parameters_.push_back({p.name, *element_count(p.shape), p.layer, p.dtype, id, none, p.requires_grad});
  parameter_numbers_.resize(program_.storages.size());
  parameter_numbers_[static_cast<std::size_t>(p.storage)] = parameter_tensors_.size();
  parameter_tensors_.push_back(t);
}

StepOp ProgramLowering::new_op(const ProgramOp& op, Phase phase, const Cost& cost) const {
  StepOp out;
  out.layer = op.layer;
  out.phase = phase;
  out.dtype = tensor(op.outputs.front()).dtype;
  out.step = static_cast<std::int16_t>(step_number_);
  out.micro_batch = micro_batch_;
  out.flops = cost.matmul_flops;
  out.other_flops = cost.other_flops;
  out.moved = cost.moved;
  out.kind = op.kind;
  out.is_backward = phase == Phase::backward;
  return out;
}

/// `total_num_tokens` (megatron/core/pipeline_parallel/schedules.py): an int32 on the device from before the first
/// micro-batch of a step until the last has run backward.
StorageId ProgramLowering::emit_token_count() {
  if (training_.profile.loop != "megatron") return none;
  StepOp op;
  op.step = static_cast<std::int16_t>(step_number_);
  emit_.begin_op(op, "total_num_tokens");
  const StorageId count = emit_.alloc("total_num_tokens", Bytes{4}, Category::temporary, -1);
  emit_.compute({count});
  return count;
}

/// Megatron-LM's loop keeps of each micro-batch what it will report, the loss and its tokens (pretrain_gpt.py,
/// loss_func; megatron/core/pipeline_parallel/schedules.py, forward_data_store), and in variables the tokens and the
/// loss of the micro-batch before, until the names are bound anew: one of each from the first on.
void ProgramLowering::emit_report() {
  const Tensor& loss = tensor(program_.loss);
  StepOp op;
  op.layer = loss.layer;
  op.phase = Phase::loss;
  op.step = static_cast<std::int16_t>(step_number_);
  op.micro_batch = micro_batch_;
  emit_.begin_op(op, "loss.report");
  std::vector<StorageId>& reports = reports_.emplace_back();
  reports.push_back(emit_.alloc("loss.report", Bytes{8}, Category::temporary, loss.layer));
  if (micro_batch_ == 0) {
    reports.push_back(emit_.alloc("num_tokens", Bytes{4}, Category::temporary, loss.layer));
    const StorageId variable = variables_[static_cast<std::size_t>(program_.loss)];
    if (variable != none) {
      reports.push_back(variable);
      emit_.hold(variable);
    }
  }
  emit_.compute(reports);
}

/// Without an optimizer a step ends where its last backward does.
void ProgramLowering::emit_return() {
  if (training_.optimizer.kind != OptimizerKind::none) {
    StepOp op;
    op.phase = Phase::optimizer;
    op.step = static_cast<std::int16_t>(step_number_);
    emit_.begin_op(op, "step.return");
    emit_.compute({});
  }
  micro_batch_ = 0;
  for (const std::vector<StorageId>& reports : reports_) {
    begin_part(StepPart::What::unwind, -1);
    for (const StorageId id : reports) emit_.release(id);
    ++micro_batch_;
  }
  begin_part(StepPart::What::backward, -1);
  reports_.clear();
}

void ProgramLowering::begin_part(StepPart::What what, std::int32_t layer) {
  const StepPart part{what, layer, step_number_, micro_batch_, step_.instructions.size(), step_.ops.size()};
  if (!parts_.empty()) {
    StepPart last = parts_.back();
    last.instruction = part.instruction;
    last.op = part.op;
    if (last == part) return;
  }
  parts_.push_back(part);
}

void ProgramLowering::emit_micro_batch() {
  const std::vector<Turn>& turns = schedule_.turns;
  bool in_backward = false;
  if (units_) units_->begin_micro_batch(step_number_, micro_batch_);
  if (modules_) modules_->begin_micro_batch(step_number_, micro_batch_);
  if (buckets_) buckets_->begin_micro_batch(step_number_, micro_batch_);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    emit_copies_before(i);
    const bool again = turns[i].what == Turn::What::backward || turns[i].phase == Phase::recompute;
    begin_part(again ? StepPart::What::backward : StepPart::What::forward,
               op_at(static_cast<std::size_t>(turns[i].op)).layer);
    if (!in_backward && again) {
      if (reports_losses()) emit_report();
      start_backward();
      if (units_) units_->start_backward();
      if (partition_) partition_->begin_backward(step_number_, micro_batch_);
      in_backward = true;
    }
    if (units_) units_->before(i);
    if (modules_) modules_->before(i);
    enter_region(turns[i], i == 0 ? nullptr : &turns[i - 1]);
    emit_turn(turns[i]);
    let_go(i);
    leave_region(turns[i], i + 1 == turns.size() ? nullptr : &turns[i + 1]);
    if (units_) units_->after(i);
    if (modules_) modules_->after(i);
  }
  end_backward();
  if (!weight_products_.empty()) emit_weights();
  end_copies();
}

void ProgramLowering::emit_turn(const Turn& turn) {
  switch (turn.what) {
    case Turn::What::run:
      emit_run(turn);
      return refill(turn);
    case Turn::What::save:
      return emit_save_only(turn);
    case Turn::What::take:
      return emit_take(turn);
    case Turn::What::backward:
      emit_backward(turn);
      for (const StorageId id : std::exchange(nodes_[static_cast<std::size_t>(turn.op)].results, {})) emit_.release(id);
      return;
    case Turn::What::copy:
      break;  // stands between turns: emit_copies_before
  }
}

/// After a turn: versions it read for the last time, then host variables that end with it.
void ProgramLowering::let_go(std::size_t turn_index) {
  const Turn& turn = schedule_.turns[turn_index];
  const std::vector<TensorId>& outputs = op_at(static_cast<std::size_t>(turn.op)).outputs;
  for (const TensorId t : schedule_.last_reads[turn_index]) {
    if (is_static(t) || value(t) == none) continue;
    const bool boundary =
        hold_boundaries_ && turn.phase == Phase::recompute && std::ranges::find(outputs, t) == outputs.end();
    if (boundary)
      held_boundaries_.push_back(value(t));
    else
      emit_.release(value(t));
    value(t) = none;
  }
  if (turn.what == Turn::What::run || turn.what == Turn::What::take) release_variables(turn);
}

/// The loss's gradient and the graph go when backward returns and the loss is dropped.
void ProgramLowering::end_backward() {
  if (seed_ != no_gradient) gradients_.release(seed_);
  seed_ = no_gradient;
  if (received_ >= 0) drop(leaf_storage(received_));
  if (units_) units_->end_backward();
  if (partition_) partition_->end_backward();
  if (modules_) modules_->end_backward();
  if (buckets_) buckets_->end_backward();
  for (std::size_t r = region_states_.size(); r-- > 0;) release_frame(static_cast<std::int32_t>(r));
  for (StorageId& variable : variables_) drop(variable);
  for (StorageId& local : locals_) drop(local);  // of regions that no framework carries out
  for (const StorageId id : held_boundaries_) emit_.release(id);
  held_boundaries_.clear();
  for (std::size_t t = 0; t < values_.size(); ++t)
    if (!is_static(static_cast<TensorId>(t)) && values_[t] != none) {
      emit_.release(values_[t]);
      values_[t] = none;
    }
}

void ProgramLowering::mark_activation(StorageId id) {
  if (step_.storages[id].category == Category::temporary) step_.storages[id].category = Category::activation;
}

std::vector<Kernel> kernels_of(const Program& program, const Training& training) {
  const KernelSet rules(training.profile.kernels, training.pytorch);
  std::vector<Kernel> out;
  out.reserve(program.ops.size());
  for (const ProgramOp& op : program.ops) out.push_back(rules.kernel(program, op));
  return out;
}

Step lower(const Program& program, const Plan& plan, const Training& training, TensorId received) {
  const std::vector<Kernel> kernels = kernels_of(program, training);
  return ProgramLowering(program, kernels, plan, training, received).lower();
}

Step lower_split(const Program& program, const Plan& plan, const Training& training, TensorId received,
                 std::vector<OpId>& weights_begin) {
  std::vector<Kernel> kernels = kernels_of(program, training);
  ProgramLowering lowering(program, kernels, plan, training, received);
  lowering.split_weights(kernels);
  Step step = lowering.lower();
  weights_begin = lowering.weights_begin();
  return step;
}

Step lower(const Program& program, const std::vector<Kernel>& kernels, const Plan& plan, const Training& training,
           std::vector<StepPart>& parts) {
  ProgramLowering lowering(program, kernels, plan, training, -1);
  Step step = lowering.lower();
  parts = lowering.parts();
  return step;
}

}  // namespace tidemark
