#include <optional>
#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/step/emitter.hpp"
#include "tidemark/step/kernel.hpp"
#include "tidemark/step/lower.hpp"
#include "tidemark/step/optimizer.hpp"
#include "tidemark/step/runtime.hpp"
#include "tidemark/step/schedule.hpp"

namespace tidemark {
namespace {

/// What the autograd node of one op holds until it has run.
struct Node {
  std::vector<StorageId> saved;  // in release order, parallel to Kernel::saved; no_id where it is read at backward
  std::vector<StorageId> temps;  // by temp number, no_id once gone
};

/// Executes a Schedule as the framework would: storages with holders, nodes with saved tensors, gradient slots.
/// Holders of a version: later turns that read it (one hold), its host variable (one), nodes that saved it.
class ProgramLowering {
 public:
  ProgramLowering(const Program& program, const Plan& plan, const Training& training)
      : program_(program),
        training_(training),
        runtime_(runtime_rules(training.profile.runtime)),
        kernel_set_(training.profile.kernels),
        kernels_(all_kernels()),
        schedule_(schedule(program, plan, kernels_)),
        hold_boundaries_(plan.hold_boundaries),
        emit_(step_),
        optimizer_(training.optimizer, training.dtypes) {}

  Step lower() {
    emit_static();
    for (step_number_ = 0; step_number_ < training_.loop.steps; ++step_number_) {
      for (micro_batch_ = 0; micro_batch_ < training_.batch.accumulate; ++micro_batch_) emit_micro_batch();
      emit_optimizer();
      const bool last = step_number_ + 1 == training_.loop.steps;
      if (training_.optimizer.kind != OptimizerKind::none || !last) emit_zero_grad();
    }
    for (const StorageId id : parameter_gradients_)
      if (id != no_id) step_.storages[id].outlives_step = true;
    step_.steps = training_.loop.steps;
    step_.parameters = parameter_count(program_);
    step_.model_flops = Int128{training_.batch.accumulate} * program_.model_flops;
    return std::move(step_);
  }

 private:
  static constexpr StorageId none = no_id;

  const Tensor& tensor(TensorId t) const { return program_.tensors[static_cast<std::size_t>(t)]; }
  StorageId& value(TensorId t) { return values_[static_cast<std::size_t>(t)]; }
  bool is_static(TensorId t) const {
    const Category category = tensor(t).category;
    return category == Category::parameter || category == Category::input;
  }

  std::vector<Kernel> all_kernels() const {
    std::vector<Kernel> kernels;
    kernels.reserve(program_.ops.size());
    for (const ProgramOp& op : program_.ops) kernels.push_back(kernel_set_.kernel(program_, op));
    return kernels;
  }

  void emit_static() {
    for (const Layer& layer : program_.layers) step_.layers.push_back(layer.name);
    values_.assign(program_.tensors.size(), none);
    variables_.assign(program_.tensors.size(), none);
    gradients_.assign(program_.tensors.size(), none);
    leaf_gradients_.assign(program_.storages.size(), none);
    nodes_.resize(program_.ops.size());
    std::vector<StorageId> by_storage(program_.storages.size(), none);
    const auto emit_leaf = [&](TensorId t) {
      const Tensor& leaf = tensor(t);
      StorageId& id = by_storage[static_cast<std::size_t>(leaf.storage)];
      if (id == none) {
        const Bytes bytes = program_.storages[static_cast<std::size_t>(leaf.storage)].bytes;
        id = emit_.initial(leaf.name, bytes, leaf.category, leaf.layer);
        step_.storages[id].outlives_step = true;
        if (leaf.category == Category::parameter) add_parameter(t, id);
      }
      value(t) = id;
    };
    for (const TensorId t : program_.parameters) emit_leaf(t);
    optimizer_.emit_initial(emit_, optimizer_parameters_);
    emit_main_gradients();
    for (const TensorId t : program_.inputs) emit_leaf(t);
  }

  void add_parameter(TensorId t, StorageId id) {
    const Tensor& p = tensor(t);
    optimizer_parameters_.push_back({p.name, *element_count(p.shape), p.layer, p.dtype, id, none});
    parameter_tensors_.push_back(t);
  }

  /// Main-gradient buffers exist before step 0; backward adds into them and allocates no gradient of its own (M7).
  void emit_main_gradients() {
    if (!training_.dtypes.main_gradients) return;
    for (std::size_t i = 0; i < optimizer_parameters_.size(); ++i) {
      if (!tensor(parameter_tensors_[i]).requires_grad) continue;
      const OptimizerParameter& p = optimizer_parameters_[i];
      const Bytes bytes{p.elements * bytes_per_element(*training_.dtypes.main_gradients)};
      const StorageId id = emit_.initial(p.name + ".main_grad", bytes, Category::gradient, p.layer);
      step_.storages[id].outlives_step = true;
      leaf_gradient(parameter_tensors_[i]) = id;
    }
  }

  StorageId& leaf_gradient(TensorId t) { return leaf_gradients_[static_cast<std::size_t>(tensor(t).storage)]; }
  bool has_main_gradient(TensorId t) const {
    return training_.dtypes.main_gradients.has_value() && tensor(t).category == Category::parameter;
  }

  StepOp new_op(const ProgramOp& op, Phase phase, const Cost& cost) const {
    StepOp out;
    out.layer = op.layer;
    out.phase = phase;
    out.dtype = tensor(op.outputs.front()).dtype;
    out.step = static_cast<std::int16_t>(step_number_);
    out.micro_batch = micro_batch_;
    out.flops = cost.matmul_flops;
    out.other_flops = cost.other_flops;
    out.moved = cost.moved;
    return out;
  }

  void emit_micro_batch() {
    bool started = false;
    for (std::size_t i = 0; i < schedule_.turns.size(); ++i) {
      const Turn& turn = schedule_.turns[i];
      if (turn.what == Turn::What::backward && !started) {
        start_backward();
        started = true;
      }
      if (turn.what == Turn::What::run)
        emit_run(turn);
      else
        emit_backward(turn);
      for (const TensorId t : schedule_.last_reads[i]) {
        const bool boundary = hold_boundaries_ && turn.phase == Phase::recompute && !made_by(turn.op, t);
        if (is_static(t) || value(t) == none) continue;
        if (boundary)
          held_boundaries_.push_back(value(t));
        else
          emit_.release(value(t));
        value(t) = none;
      }
      if (turn.what == Turn::What::run && turn.phase != Phase::recompute) release_variables(turn.op);
    }
    end_backward();
  }

  bool made_by(OpIndex k, TensorId t) const {
    for (const TensorId out : program_.ops[static_cast<std::size_t>(k)].outputs)
      if (out == t) return true;
    return false;
  }

  // ---- forward and recompute

  void emit_run(const Turn& turn) {
    const auto k = static_cast<std::size_t>(turn.op);
    const ProgramOp& op = program_.ops[k];
    const Kernel& kernel = kernels_[k];
    // A view makes no op: what dies at it belongs to the op before.
    if (!kernel.forward.empty()) emit_.begin_op(new_op(op, turn.phase, kernel.forward_cost), op.name);
    bind_aliases(op);
    std::vector<StorageId> temps(kernel.temps.size(), none);
    for (const Move& move : kernel.forward) {
      if (move.what == Move::What::run)
        emit_.compute(touched_by_run(op, temps, turn.phase));
      else if (move.slot.of == Slot::Of::temp)
        move_temp(move, kernel, op, temps);
      else if (move.what == Move::What::alloc)
        make_output(op, static_cast<std::size_t>(move.slot.index));
    }
    if (turn.phase != Phase::recompute && runtime_.host_scopes) hold_variables(op);
    const bool caches = schedule_.cached[k] && turn.phase != Phase::recompute;
    if (turn.saves || caches) save(k, temps, caches);
    for (const StorageId temp : temps)
      if (temp != none) emit_.release(temp);
  }

  /// Outputs that share an input's storage: views and in-place results.
  void bind_aliases(const ProgramOp& op) {
    for (const TensorId out : op.outputs)
      for (const TensorId in : op.inputs)
        if (tensor(out).storage == tensor(in).storage) {
          value(out) = value(in);
          emit_.hold(value(out));
          break;
        }
  }

  void make_output(const ProgramOp& op, std::size_t index) {
    const TensorId t = op.outputs[index];
    const Bytes bytes = program_.storages[static_cast<std::size_t>(tensor(t).storage)].bytes;
    value(t) = emit_.alloc(tensor(t).name, bytes, Category::temporary, op.layer);
  }

  void move_temp(const Move& move, const Kernel& kernel, const ProgramOp& op, std::vector<StorageId>& temps) {
    const auto index = static_cast<std::size_t>(move.slot.index);
    if (move.what == Move::What::alloc) {
      const Temp& temp = kernel.temps[index];
      temps[index] = emit_.alloc(op.name + "." + temp.name, temp.bytes, temp.category, op.layer);
    } else {
      emit_.release(temps[index]);
      temps[index] = none;
    }
  }

  std::vector<StorageId> touched_by_run(const ProgramOp& op, const std::vector<StorageId>& temps, Phase phase) {
    std::vector<StorageId> touched;
    for (const TensorId t : op.inputs) {
      touched.push_back(value(t));
      if (phase == Phase::recompute) mark_activation(value(t));
    }
    for (const TensorId t : op.outputs)
      if (value(t) != none) touched.push_back(value(t));
    for (const StorageId temp : temps)
      if (temp != none) touched.push_back(temp);
    return touched;
  }

  void mark_activation(StorageId id) {
    if (step_.storages[id].category == Category::temporary) step_.storages[id].category = Category::activation;
  }

  /// The node takes its holds. A caching node leaves its inputs to the recomputation.
  void save(std::size_t k, std::vector<StorageId>& temps, bool caches) {
    const ProgramOp& op = program_.ops[k];
    Node& node = nodes_[k];
    node.saved.clear();
    for (const Saved& saved : kernels_[k].saved) {
      const auto index = static_cast<std::size_t>(saved.index);
      StorageId id = none;
      if (saved.of == Saved::Of::temp) {
        id = temps[index];
      } else {
        const TensorId t = saved.of == Saved::Of::input ? op.inputs[index] : op.outputs[index];
        if (saved.of == Saved::Of::output || !caches || is_static(t)) id = value(t);
      }
      if (id != none) {
        emit_.hold(id);
        mark_activation(id);
      }
      node.saved.push_back(id);
    }
  }

  // ---- host variables

  void hold_variables(const ProgramOp& op) {
    for (const TensorId t : op.outputs) {
      variables_[static_cast<std::size_t>(t)] = value(t);
      emit_.hold(value(t));
    }
  }

  void release_variables(OpIndex k) {
    for (const TensorId t : program_.ops[static_cast<std::size_t>(k)].releases) {
      const bool held = t == program_.logits && training_.loop.logits_held;
      if (!held) drop_variable(t);
    }
  }

  void drop_variable(TensorId t) {
    StorageId& variable = variables_[static_cast<std::size_t>(t)];
    if (variable == none) return;
    emit_.release(variable);
    variable = none;
  }

  // ---- backward

  void start_backward() {
    const Tensor& loss = tensor(program_.loss);
    StepOp op;
    op.layer = loss.layer;
    op.phase = Phase::backward;
    op.dtype = loss.dtype;
    op.step = static_cast<std::int16_t>(step_number_);
    op.micro_batch = micro_batch_;
    emit_.begin_op(op, "loss.gradient");
    const Bytes bytes = program_.storages[static_cast<std::size_t>(loss.storage)].bytes;
    const StorageId seed = emit_.alloc(loss.name + ".grad", bytes, Category::gradient, loss.layer);
    emit_.compute({seed});
    gradients_[static_cast<std::size_t>(program_.loss)] = seed;
    if (!runtime_.seed_held) return;
    emit_.hold(seed);
    seed_ = seed;
  }

  void emit_backward(const Turn& turn) {
    const auto k = static_cast<std::size_t>(turn.op);
    const ProgramOp& op = program_.ops[k];
    const Kernel& kernel = kernels_[k];
    std::vector<StorageId> incoming = take_incoming(op);
    if (incoming.empty() || kernel.gradients.empty()) {
      if (!incoming.empty() || !nodes_[k].saved.empty()) release_unused(op, k, incoming);
      return;
    }
    if (!kernel.backward.empty()) emit_.begin_op(new_op(op, Phase::backward, kernel.backward_cost), op.name);
    load_cached_inputs(k);
    std::vector<StorageId> fresh(op.inputs.size(), none);
    std::vector<StorageId> temps(kernel.temps.size(), none);
    for (const Move& move : kernel.backward) {
      if (move.what == Move::What::run)
        emit_.compute(touched_by_backward(k, incoming, fresh, temps));
      else if (move.slot.of == Slot::Of::temp)
        move_temp(move, kernel, op, temps);
      else if (move.what == Move::What::alloc)
        fresh[static_cast<std::size_t>(move.slot.index)] = make_gradient(op, kernel, move.slot.index);
    }
    for (const StorageId temp : temps)
      if (temp != none) emit_.release(temp);
    std::vector<StorageId> handed = hand_over(kernel, incoming, fresh);
    for (const StorageId id : incoming)
      if (id != none) emit_.release(id);
    release_saved(k);
    for (std::size_t g = 0; g < kernel.gradients.size(); ++g)
      deliver(op.inputs[static_cast<std::size_t>(kernel.gradients[g].input)], handed[g]);
  }

  /// The gradients that have arrived at the op's outputs; empty when none has.
  std::vector<StorageId> take_incoming(const ProgramOp& op) {
    std::vector<StorageId> incoming;
    bool any = false;
    for (const TensorId t : op.outputs) {
      StorageId& slot = gradients_[static_cast<std::size_t>(t)];
      any = any || slot != none;
      incoming.push_back(slot);
      slot = none;
    }
    if (!any) incoming.clear();
    return incoming;
  }

  void release_unused(const ProgramOp& op, std::size_t k, const std::vector<StorageId>& incoming) {
    emit_.begin_op(new_op(op, Phase::backward, Cost{}), op.name);
    emit_.compute({});
    for (const StorageId id : incoming)
      if (id != none) emit_.release(id);
    release_saved(k);
  }

  void load_cached_inputs(std::size_t k) {
    if (!schedule_.cached[k]) return;
    for (std::size_t i = 0; i < kernels_[k].saved.size(); ++i) {
      const Saved& saved = kernels_[k].saved[i];
      if (saved.of != Saved::Of::input || nodes_[k].saved[i] != none) continue;
      const StorageId id = value(program_.ops[k].inputs[static_cast<std::size_t>(saved.index)]);
      check(id != none, "a cached op's saved input is gone before its backward");
      emit_.hold(id);
      mark_activation(id);
      nodes_[k].saved[i] = id;
    }
  }

  /// The leaf a parameter's gradient is added to without a tensor of its own.
  bool written_in_place(TensorId t) { return has_main_gradient(t) && leaf_gradient(t) != none; }

  StorageId make_gradient(const ProgramOp& op, const Kernel& kernel, std::int32_t input) {
    const TensorId t = op.inputs[static_cast<std::size_t>(input)];
    if (written_in_place(t)) {
      emit_.hold(leaf_gradient(t));
      return leaf_gradient(t);
    }
    for (const GradientRule& rule : kernel.gradients)
      if (rule.input == input) return emit_.alloc(tensor(t).name + ".grad", rule.bytes, Category::temporary, op.layer);
    throw InternalError("a kernel allocates a gradient that it does not declare: " + op.name);
  }

  std::vector<StorageId> touched_by_backward(std::size_t k, const std::vector<StorageId>& incoming,
                                             const std::vector<StorageId>& fresh,
                                             const std::vector<StorageId>& temps) const {
    std::vector<StorageId> touched = nodes_[k].saved;
    touched.insert(touched.end(), incoming.begin(), incoming.end());
    touched.insert(touched.end(), fresh.begin(), fresh.end());
    touched.insert(touched.end(), temps.begin(), temps.end());
    std::erase(touched, none);
    return touched;
  }

  /// What goes to each gradient rule's input: the fresh tensor, or one more hold on the incoming one.
  std::vector<StorageId> hand_over(const Kernel& kernel, const std::vector<StorageId>& incoming,
                                   const std::vector<StorageId>& fresh) {
    std::vector<StorageId> handed;
    for (const GradientRule& rule : kernel.gradients) {
      StorageId id = fresh[static_cast<std::size_t>(rule.input)];
      if (rule.passes_through) {
        id = incoming[static_cast<std::size_t>(rule.from_output)];
        if (id != none) emit_.hold(id);
      }
      handed.push_back(id);
    }
    return handed;
  }

  void release_saved(std::size_t k) {
    for (const StorageId id : nodes_[k].saved)
      if (id != none) emit_.release(id);
    nodes_[k].saved.clear();
  }

  /// Hands a gradient to a tensor: the leaf's slot, or the input buffer of the node that made it (E5, E6).
  void deliver(TensorId t, StorageId id) {
    if (id == none) return;
    if (is_static(t)) {
      deliver_leaf(t, id);
      return;
    }
    gradients_[static_cast<std::size_t>(t)] = sum(gradients_[static_cast<std::size_t>(t)], id, tensor(t));
  }

  /// The one tensor that is left of two gradients, or the new one where there was none.
  StorageId sum(StorageId old, StorageId id, const Tensor& of) {
    if (old == none) return id;
    StorageId total = old;
    if (!runtime_.sums_in_place || emit_.holds(old) > 1) {
      total = emit_.alloc(of.name + ".grad", step_.storages[old].bytes, Category::temporary, of.layer);
      emit_.release(old);
    }
    emit_.release(id);
    return total;
  }

  void deliver_leaf(TensorId t, StorageId id) {
    if (!tensor(t).requires_grad) {
      emit_.release(id);
      return;
    }
    StorageId& slot = leaf_gradient(t);
    if (slot == none) {
      if (emit_.holds(id) > 1) {  // another handle is out: PyTorch clones instead of stealing
        const StorageId clone =
            emit_.alloc(tensor(t).name + ".grad", step_.storages[id].bytes, Category::gradient, tensor(t).layer);
        emit_.release(id);
        id = clone;
      }
      step_.storages[id].category = Category::gradient;
      slot = id;
      parameter_gradients_.push_back(id);
      return;
    }
    emit_.release(id);  // added in place, or already written there
  }

  void end_backward() {
    if (seed_ != none) emit_.release(seed_);
    seed_ = none;
    for (std::size_t t = 0; t < variables_.size(); ++t) drop_variable(static_cast<TensorId>(t));
    for (const StorageId id : held_boundaries_) emit_.release(id);
    held_boundaries_.clear();
    for (std::size_t t = 0; t < values_.size(); ++t)
      if (!is_static(static_cast<TensorId>(t)) && values_[t] != none) {
        emit_.release(values_[t]);
        values_[t] = none;
      }
  }

  // ---- after the micro-batches

  void emit_optimizer() {
    for (std::size_t i = 0; i < optimizer_parameters_.size(); ++i)
      optimizer_parameters_[i].gradient = leaf_gradient(parameter_tensors_[i]);
    optimizer_.emit_step(emit_, optimizer_parameters_, step_number_);
  }

  /// Gradients die in parameter order under `zero_grad: none`, else they are zeroed where they are.
  void emit_zero_grad() {
    StepOp op;
    op.phase = Phase::optimizer;
    op.step = static_cast<std::int16_t>(step_number_);
    emit_.begin_op(op, "zero_grad");
    emit_.compute({});
    if (!training_.optimizer.zero_grad_to_none || training_.dtypes.main_gradients) return;
    for (const StorageId id : parameter_gradients_) emit_.release(id);
    parameter_gradients_.clear();
    for (StorageId& id : leaf_gradients_) id = none;
  }

  const Program& program_;
  const Training& training_;
  Runtime runtime_;
  KernelSet kernel_set_;
  std::vector<Kernel> kernels_;
  Schedule schedule_;
  bool hold_boundaries_ = false;
  Step step_;
  Emitter emit_;
  OptimizerState optimizer_;

  std::vector<StorageId> values_;               // by tensor: the current version, held for later turns
  std::vector<StorageId> variables_;            // by tensor: what its host variable holds
  std::vector<StorageId> gradients_;            // by tensor: the input buffer of its node
  std::vector<StorageId> leaf_gradients_;       // by program storage: .grad or the main gradient
  std::vector<StorageId> parameter_gradients_;  // those that zero_grad frees, in order of birth
  std::vector<StorageId> held_boundaries_;
  std::vector<OptimizerParameter> optimizer_parameters_;
  std::vector<TensorId> parameter_tensors_;
  std::vector<Node> nodes_;  // by op
  StorageId seed_ = none;
  int step_number_ = 0;
  int micro_batch_ = 0;
};

}  // namespace

Step lower(const Program& program, const Plan& plan, const Training& training) {
  return ProgramLowering(program, plan, training).lower();
}

}  // namespace tidemark
