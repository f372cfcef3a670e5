#include <algorithm>
#include <utility>

#include "program_lowering.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

/// The state of PyTorch's CPU generator (mt19937: 5,056 bytes; measured).
constexpr Bytes rng_state{5056};

bool recomputes(const Turn& turn) { return turn.what != Turn::What::backward && turn.phase == Phase::recompute; }
bool runs_forward(const Turn& turn) { return turn.what != Turn::What::backward && turn.phase != Phase::recompute; }

}  // namespace

void ProgramLowering::enter_region(const Turn& turn, const Turn* previous) {
  if (!carried_out() || turn.region < 0) return;
  const bool same = previous != nullptr && previous->region == turn.region;
  if (runs_forward(turn) && !(same && runs_forward(*previous))) begin_forward_region(turn.region);
  if (recomputes(turn) && !(same && recomputes(*previous))) begin_recompute(turn.region);
}

void ProgramLowering::leave_region(const Turn& turn, const Turn* next) {
  if (turn.region < 0) return;
  const bool same = next != nullptr && next->region == turn.region;
  // A plan that stands for itself: what recomputation still names when it ends is let go.
  if (!carried_out() && recomputes(turn) && !(same && recomputes(*next)))
    for (const OpIndex k : region(turn.region).ops) drop_locals(k);
  if (!carried_out()) return;
  if (recomputes(turn) && !(same && recomputes(*next))) end_recompute(turn.region);
  if (turn.what == Turn::What::backward && reentrant() && open_region_ == turn.region && !same)
    end_reentrant_backward(turn.region);
}

/// The rebuilt function's variables that name an op's results.
void ProgramLowering::drop_locals(OpIndex k) {
  const ProgramOp& op = op_at(static_cast<std::size_t>(k));
  begin_part(StepPart::What::unwind, op.layer);
  for (const TensorId t : op.outputs) drop(locals_[static_cast<std::size_t>(t)]);
}

/// checkpoint(): a copy of the generator's state, and the inputs held until the region has run backward.
void ProgramLowering::begin_forward_region(std::int32_t r) {
  RegionState& state = region_state(r);
  if (copies_rng() && step_.ops.empty()) {  // the state must belong to an op, not to the start
    emit_.begin_op(StepOp{}, "checkpoint");
    emit_.compute({});
  }
  if (copies_rng()) state.rng = emit_.alloc("checkpoint.rng_state", rng_state, Category::autograd_detail, -1);
  for (const TensorId t : region(r).inputs) {
    if (value(t) == none)
      throw InputError("plan: a checkpointed region reads " + tensor(t).name +
                       ", which is made after the region begins; expected regions without gaps, or "
                       "checkpointing direct");
    state.inputs.push_back(value(t));
    emit_.hold(value(t));
    mark_activation(value(t));
  }
  state.cache.assign(program_.tensors.size(), none);
  state.saved_left = region(r).saved_tensors;
}

void ProgramLowering::begin_recompute(std::int32_t r) {
  RegionState& state = region_state(r);
  if (copies_rng()) state.rng_now = emit_.alloc("checkpoint.rng_state", rng_state, Category::autograd_detail, -1);
  for (const TensorId t : region(r).inputs)
    if (value(t) == none) {
      const auto i = static_cast<std::size_t>(std::ranges::find(region(r).inputs, t) - region(r).inputs.begin());
      value(t) = state.inputs[i];
      check(value(t) != none, "a region runs again while its input is on the host");
      emit_.hold(value(t));
    }
  if (!reentrant()) return;
  open_region_ = r;
  for (const TensorId t : region(r).outputs)
    if (const GradientId id = buffers_[static_cast<std::size_t>(t)]; id != no_gradient) {
      gradients_.hold(id);
      state.incoming.push_back(id);
    }
  state.leaf_gradients.assign(region(r).inputs.size(), no_gradient);
  state.leaf_edges.assign(region(r).inputs.size(), 0);
  for (const OpIndex op : region(r).ops)
    for (const GradientRule& rule : kernels_[static_cast<std::size_t>(op)].gradients)
      for (std::size_t i = 0; i < region(r).inputs.size(); ++i) {
        const TensorId t = op_at(static_cast<std::size_t>(op)).inputs[static_cast<std::size_t>(rule.input)];
        if (active_[static_cast<std::size_t>(op)] && t == region(r).inputs[i]) ++state.leaf_edges[i];
      }
  outer_edges_ = std::exchange(leaf_edges_, leaf_edges(r));
}

/// The locals of the recomputed function go; a reentrant one keeps its outputs for the inner backward.
void ProgramLowering::end_recompute(std::int32_t r) {
  RegionState& state = region_state(r);
  if (reentrant())
    for (const TensorId t : region(r).outputs) {
      const StorageId local = locals_[static_cast<std::size_t>(t)];
      const StorageId id = local != none ? local : value(t);
      if (id == none) continue;
      emit_.hold(id);
      state.outputs.push_back(id);
    }
  const auto drop_rng = [&] {
    if (state.rng_now != none) emit_.release(std::exchange(state.rng_now, none));
  };
  const auto drop_numbers = [&] {
    for (; !state.numbers.empty(); state.numbers.pop_back()) emit_.release(state.numbers.back());
  };
  if (region(r).stops_early) {  // an exception unwinds: the generator's guard, then the frames from the inside
    drop_rng();
    unwind(r);
    drop_numbers();
  } else if (runtime_.unpacks_to_locals && !reentrant()) {  // the result is not even named: its graph, then itself
    drop_numbers();
    drop_results(r);
    drop_rng();
  } else {
    drop_rng();
    drop_results(r);
    drop_numbers();
  }
}

/// What a block has named still when the rebuilt function returns is its result: a tuple of its rows, made last, and
/// what else it made, which lets go of the last one first.
void ProgramLowering::drop_results(std::int32_t r) {
  const std::vector<OpIndex>& ops = region(r).ops;
  const auto layer = [&](OpIndex k) { return op_at(static_cast<std::size_t>(k)).layer; };
  for (std::size_t begin = 0, end = 0; begin < ops.size(); begin = end) {
    while (end < ops.size() && layer(ops[end]) == layer(ops[begin])) ++end;
    for (std::size_t i = end - 1; i-- > begin;) drop_locals(ops[i]);
    drop_locals(ops[end - 1]);
  }
}

/// Frames end from the inside, and let go of their variables in the order in which they would have on returning: the
/// frame that returns first is the innermost.
void ProgramLowering::unwind(std::int32_t r) {
  std::vector<TensorId> alive;
  for (const OpIndex k : region(r).ops)
    for (const TensorId t : op_at(static_cast<std::size_t>(k)).outputs)
      if (locals_[static_cast<std::size_t>(t)] != none) alive.push_back(t);
  std::ranges::sort(alive, {}, [&](TensorId t) { return release_rank_[static_cast<std::size_t>(t)]; });
  for (const TensorId t : alive) drop(locals_[static_cast<std::size_t>(t)]);
}

/// CheckpointFunction.backward returns: its output, the gradient it was called with, then the inputs it saved.
void ProgramLowering::end_reentrant_backward(std::int32_t r) {
  RegionState& state = region_state(r);
  if (units_ && units_->holds_inputs(op_at(static_cast<std::size_t>(region(r).ops.front())).layer))
    for (std::size_t i = 0; i < state.inputs.size(); ++i)
      if (tensor(region(r).inputs[i]).requires_grad) units_->hold_input(state.inputs[i], state.leaf_gradients[i]);
  for (const StorageId id : state.outputs) emit_.release(id);
  for (const GradientId id : state.incoming) gradients_.release(id);
  for (const StorageId id : state.inputs) emit_.release(id);
  state.outputs.clear();
  state.incoming.clear();
  state.inputs.clear();
  open_region_ = -1;
  leaf_edges_ = std::move(outer_edges_);
  std::vector<GradientId> late;
  for (std::size_t i = 0; i < region(r).inputs.size(); ++i)
    deliver(region(r).inputs[i], state.leaf_gradients[i], -1, late);
  for (const GradientId id : late) gradients_.release(id);
  state.leaf_gradients.clear();
}

void ProgramLowering::count_released(std::int32_t r, std::size_t saved) {
  if (!carried_out() || reentrant() || r < 0) return;
  RegionState& state = region_state(r);
  state.saved_left -= static_cast<std::int32_t>(saved);
  if (state.saved_left == 0) release_frame(r);
}

/// The last saved slot has gone: selective cache, generator state, inputs (in this order; measured on 2.6).
void ProgramLowering::release_frame(std::int32_t r) {
  RegionState& state = region_state(r);
  for (StorageId& id : state.cache) {
    if (id != none) emit_.release(id);
    id = none;
  }
  if (state.rng != none) emit_.release(state.rng);
  state.rng = none;
  if (runtime_.inputs_in_tuple) std::ranges::reverse(state.inputs);
  for (const StorageId id : state.inputs) emit_.release(id);
  state.inputs.clear();
}

}  // namespace tidemark
