#include "autograd.hpp"

#include <algorithm>
#include <stdexcept>

#include "kernels.hpp"

namespace tidemark::native {
namespace {

kernels::Layout layout_of(const Dims& shape, const Dims& strides) {
  kernels::Layout layout{{1, 1, 1, 1}, {0, 0, 0, 0}};
  for (std::size_t i = 0; i < shape.size; ++i) {
    layout.shape[Dims::most - shape.size + i] = shape[i];
    layout.strides[Dims::most - shape.size + i] = strides[i];
  }
  return layout;
}

/// Two gradients that meet: added in place when nobody else sees the first, else into a new tensor.
void add_up(Machine& machine, Tensor& total, Tensor gradient, Name name) {
  if (total.is_empty()) {
    total = std::move(gradient);
    return;
  }
  if (total.is_only_handle() && !total.is_view()) {
    kernels::add_to(total.data(), gradient.data(), total.elements());
    gradient.let_go();
    return;
  }
  Tensor sum = machine.allocate(name.with(".grad"), total.shape());
  kernels::add(total.data(), gradient.data(), sum.data(), sum.elements());
  total = std::move(sum);
  gradient.let_go();
}

/// All gradients of a parameter have come.
void settle(Parameter& parameter) {
  Tensor sum = std::move(parameter.arriving);
  if (parameter.gradient.is_empty()) {
    parameter.gradient = std::move(sum);
    parameter.gradient.set_category(Category::gradient);
  } else {
    kernels::add_to(parameter.gradient.data(), sum.data(), sum.elements());
  }
}

}  // namespace

Node& Node::reads(int position, Parameter& parameter) {
  ++parameter.readers;
  operands_[index(position)].edge = {nullptr, 0, &parameter};
  return reads(position, parameter.value);
}

Node& Node::reads(int position, const Tensor& input) {
  Operand& operand = operands_[index(position)];
  operand.always = &input;
  operand_count_ = std::max(operand_count_, position + 1);
  return *this;
}

// ---- forward

std::array<Value, Node::most> Node::call(std::initializer_list<Value*> values) {
  int position = 0;
  for (Value* value : values) {
    while (operands_[index(position)].always != nullptr) ++position;
    take_operand(position++, *value);
  }
  run_kernel(context_.phase, !is_dropped);
  std::array<Value, most> made;
  for (int i = 0; i < most; ++i) made[index(i)] = {std::move(results_[index(i)]), {this, i, nullptr}};
  let_go_operands(false);
  return made;
}

void Node::take_operand(int position, Value& value) {
  Operand& operand = operands_[index(position)];
  operand_count_ = std::max(operand_count_, position + 1);
  operand.name = value.tensor.name();
  operand.shape = value.tensor.shape();
  operand.held = std::move(value.tensor);
  if (operand.edge.node != nullptr || value.edge.node == nullptr) return;
  operand.edge = value.edge;
  for (Reader& reader : value.edge.node->outputs_[index(value.edge.output)].readers) {
    if (reader.node != nullptr) continue;
    reader = {this, position};
    return;
  }
  throw std::logic_error("an op's output has more readers than a node can name");
}

void Node::run_kernel(Phase phase, bool saves) {
  Machine& machine = context_.machine;
  if (!rule_.is_view) machine.begin_op(name_, name_.scope, phase);
  kept_count_ = 0;
  saves_ = saves;
  rule_.forward(*this);
  if (!rule_.is_view) {
    std::int64_t moved = 0;
    for (int i = 0; i < operand_count_; ++i) {
      if (phase == Phase::recompute) operand(i).mark_activation();
      moved += operand(i).bytes();
    }
    for (const Tensor& result : results_) moved += result.is_empty() ? 0 : result.bytes();
    for (const Tensor& buffer : buffers_) moved += buffer.is_empty() ? 0 : buffer.bytes();
    machine.record.count_moved(moved);
    machine.record.touch_op();
  }
  for (Tensor& buffer : buffers_) buffer.let_go();
}

/// Does the producer run again early enough for this op to read its new result?
bool Node::will_get_from(const Node& producer) const {
  if (!producer.runs_again()) return false;
  return runs_again() ? producer.runs_again_at <= runs_again_at : producer.runs_again_at < runs_backward_at;
}

/// Past its run: an op that runs again needs all its operands once more, a cached one those that backward reads.
bool Node::holds_on_to(int position) const {
  if (!runs_again() && !(is_cached() && keeps_operand(position))) return false;
  const Node* producer = operands_[index(position)].edge.node;
  return producer == nullptr || !will_get_from(*producer);
}

void Node::let_go_operands(bool all) {
  for (int k = 0; k < operand_count_; ++k) {
    const int i = context_.machine.swap_frees ? operand_count_ - 1 - k : k;
    if (all || !holds_on_to(i)) operands_[index(i)].held.let_go();
  }
}

void Node::run_again() {
  run_kernel(Phase::recompute, is_dropped);
  for (int i = 0; i < most; ++i)
    for (const Reader& reader : outputs_[index(i)].readers) {
      if (reader.node == nullptr) break;
      const bool reads_later =
          reader.node->runs_again() || (reader.node->is_cached() && reader.node->keeps_operand(reader.operand));
      if (reads_later && reader.node->will_get_from(*this))
        reader.node->operands_[index(reader.operand)].held = results_[index(i)];
    }
  for (Tensor& result : results_) result.let_go();
  let_go_operands(true);
}

void Node::forget() {
  for (Kept& kept : kept_) kept.tensor.let_go();
  let_go_operands(true);
}

// ---- what rules call

const Tensor& Node::operand(int i) const {
  const Operand& operand = operands_[index(i)];
  return operand.always != nullptr ? *operand.always : operand.held;
}

void Node::set_output(int i, Tensor tensor) {
  Output& output = outputs_[index(i)];
  output.name = tensor.name();
  output.shape = tensor.shape();
  output.bytes = tensor.bytes();
  results_[index(i)] = std::move(tensor);
}

Tensor& Node::make_output(Dims shape) {
  set_output(0, context_.machine.allocate(name_, shape));
  return results_[0];
}

Tensor& Node::make_buffer(int i, std::string_view name, Dims shape) {
  return buffers_[index(i)] = context_.machine.allocate(name_.with(name), shape);
}

void Node::make_view(int i, Dims shape, Dims strides, std::int64_t offset) {
  Name name = name_;
  if (!settings_.outputs[index(i)].empty()) name.part = settings_.outputs[index(i)];
  set_output(i, operand(0).view(name, shape, strides, offset));
}

bool Node::keeps_operand(int position) const {
  for (int k = 0; k < kept_count_; ++k)
    if (kept_[index(k)].of == Kept::Of::operand && kept_[index(k)].index == position) return true;
  return false;
}

void Node::keep(Kept::Of of, int i) {
  Kept& kept = kept_[index(kept_count_++)];
  kept.of = of;
  kept.index = i;
  const bool holds = saves_ || (is_cached() && of != Kept::Of::operand);
  if (!holds) return;
  if (of == Kept::Of::operand) kept.tensor = operands_[index(i)].held;
  if (of == Kept::Of::output) kept.tensor = results_[index(i)];
  if (of == Kept::Of::buffer) kept.tensor = buffers_[index(i)];
  if (!kept.tensor.is_empty()) kept.tensor.mark_activation();
}

const Tensor& Node::kept(Kept::Of of, int i) const {
  for (int k = 0; k < kept_count_; ++k)
    if (kept_[index(k)].of == of && kept_[index(k)].index == i && !kept_[index(k)].tensor.is_empty())
      return kept_[index(k)].tensor;
  return operand(i);
}

// ---- backward

void Node::begin_backward() {
  context_.machine.begin_op(name_, name_.scope, Phase::backward);
  backward_runs_ = true;
}

Tensor& Node::make_gradient(int i) {
  const Operand& of = operands_[index(i)];
  const Name name = of.always != nullptr ? of.always->name() : of.name;
  const Dims shape = of.always != nullptr ? of.always->shape() : of.shape;
  return gradients_[index(i)] = context_.machine.allocate(name.with(".grad"), shape);
}

Tensor Node::copied(const Tensor& gradient, int i) {
  Tensor copy = context_.machine.allocate(operands_[index(i)].name.with(".grad"), gradient.shape());
  kernels::copy(gradient.data(), layout_of(gradient.shape(), gradient.strides()), copy.data(),
                layout_of(copy.shape(), copy.strides()));
  return copy;
}

void Node::copy_into(const Tensor& from, const Tensor& to) {
  kernels::copy(from.data(), layout_of(from.shape(), from.strides()), to.data(), layout_of(to.shape(), to.strides()));
}

void Node::run_backward() {
  backward_runs_ = false;
  if (is_cached())
    for (int k = 0; k < kept_count_; ++k)
      if (kept_[index(k)].of == Kept::Of::operand) operand(kept_[index(k)].index).mark_activation();
  rule_.backward(*this);
  if (backward_runs_) {
    std::int64_t moved = 0;
    for (const Output& output : outputs_) moved += output.bytes;
    for (int k = 0; k < kept_count_; ++k) moved += kept(kept_[index(k)].of, kept_[index(k)].index).bytes();
    for (int i = 0; i < operand_count_; ++i)
      if (!gradients_[index(i)].is_empty() && !gradients_[index(i)].shares_memory_with(incoming_[0]))
        moved += gradients_[index(i)].bytes();
    context_.machine.record.count_moved(moved);
  }
  context_.machine.record.touch_op();
  for (Tensor& gradient : incoming_) gradient.let_go();
  for (int k = 0; k < kept_count_; ++k) kept_[index(k)].tensor.let_go();
  deliver_gradients();
  for (int k = 0; k < kept_count_; ++k)
    if (kept_[index(k)].of == Kept::Of::operand) operands_[index(kept_[index(k)].index)].held.let_go();
}

void Node::deliver_gradients() {
  std::array<int, most> order{0, 1, 2};
  if (rule_.last_first) order = {2, 0, 1};
  for (const int i : order) {
    Tensor gradient = std::move(gradients_[index(i)]);
    if (gradient.is_empty()) continue;
    const Edge& edge = operands_[index(i)].edge;
    if (edge.node != nullptr) {
      edge.node->receive(edge.output, std::move(gradient));
    } else if (edge.parameter != nullptr) {
      add_up(context_.machine, edge.parameter->arriving, std::move(gradient), edge.parameter->value.name());
      --edge.parameter->still_to_come;
    }
  }
  for (const int i : order) {
    Parameter* parameter = operands_[index(i)].edge.parameter;
    if (parameter != nullptr && parameter->still_to_come == 0 && !parameter->arriving.is_empty()) settle(*parameter);
  }
}

void Node::receive(int output, Tensor gradient) {
  add_up(context_.machine, incoming_[index(output)], std::move(gradient), outputs_[index(output)].name);
}

}  // namespace tidemark::native
