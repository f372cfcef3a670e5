#include <algorithm>

#include "tidemark/base/errors.hpp"
#include "weaver.hpp"

namespace tidemark {

StorageId Weaver::mapped(StorageId id) {
  const Thread& t = thread();
  if (t.cut.place(id) != no_id && t.cut.born(id) == instance().group) return instance().own[t.cut.place(id)];
  if (id == t.cut.given(End::input)) return instance().input;
  if (id == t.cut.given(End::output_gradient)) return instance().output_gradient;
  return t.shared[id];
}

void Weaver::emit(const Piece& piece) {
  const Thread& t = thread();
  const Step& step = t.chunk->step;
  const auto base = static_cast<OpId>(out_.ops.size());
  for (OpId op = piece.first_op; op < piece.first_op + piece.ops; ++op) copy_op(step.ops[op], t.cut.receives(op));
  for (std::size_t i = piece.begin; i < piece.end; ++i) {
    const Instruction& at = step.instructions[i];
    const OpId op = base + (at.op - piece.first_op);
    if (at.what == Do::alloc) {
      alloc(at.index, op);
    } else if (at.what == Do::free) {
      free(at.index, op);
    } else {
      check(at.what == Do::compute, "a chunk's Step holds copies or events");
      if (t.cut.receives(at.op)) wait_for(now_.chunk + 1, false, op);
      put_reads(step.ops[at.index], op);
      put(Do::compute, op, op);
    }
  }
}

void Weaver::copy_op(StepOp op, bool receives) {
  const Thread& t = thread();
  op.name = receives ? out_.names.id("receive_backward") : t.names[op.name];
  if (receives) {
    op.phase = Phase::communication;
    op.has_time = true;
    op.time = {};
  }
  if (op.layer >= 0) op.layer += t.first_layer;
  op.rank = rank_of(now_.chunk);
  op.step = static_cast<std::int16_t>(now_.step);
  op.micro_batch = now_.micro_batch;
  const std::uint32_t none = static_cast<std::uint32_t>(out_.reads.size());
  op.read_begin = op.read_end = none;
  out_.ops.push_back(op);
}

void Weaver::put_reads(const StepOp& from, OpId op) {
  out_.ops[op].read_begin = static_cast<std::uint32_t>(out_.reads.size());
  for (std::uint32_t r = from.read_begin; r < from.read_end; ++r)
    out_.reads.push_back(mapped(thread().chunk->step.reads[r]));
  out_.ops[op].read_end = static_cast<std::uint32_t>(out_.reads.size());
}

void Weaver::alloc(StorageId id, OpId op) {
  Thread& t = thread();
  const bool own = t.cut.place(id) != no_id;
  if (own && t.cut.end(id) == End::input) return;  // received before
  if (!own && t.shared[id] != no_id) return;
  if (!own) t.shared[id] = copy_storage(now_.chunk, id);
  put(Do::alloc, op, mapped(id));
}

void Weaver::free(StorageId id, OpId op) {
  Thread& t = thread();
  if (t.cut.end(id) == End::input_gradient) return;  // once it has been sent
  if (t.cut.kept(id)) {
    for (const Instance& micro_batch : t.instances)
      if (micro_batch.group == t.cut.born(id)) put(Do::free, op, micro_batch.own[t.cut.place(id)]);
    return;
  }
  const StorageId target = mapped(id);
  check(target != no_id, "a chunk frees what it has not made");
  if (std::erase(early_, target) > 0) return;
  if (target == unsent_) {
    let_go_unsent_ = true;
    return;
  }
  if (target == instance().input) instance().input = no_id;
  const bool shared = target == t.shared[id];
  const bool of_this_step = t.cut.born(id) != no_id && static_cast<int>(t.cut.born(id)) / t.chunk->pieces == now_.step;
  const bool waits = of_this_step ? order_ + 1 < schedule_.micro_batches : order_ > 0;
  if (shared && in_micro_batch(op) && waits) return;
  put(Do::free, op, target);
}

}  // namespace tidemark
