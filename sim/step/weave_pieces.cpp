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
  const Instance& own = instance();
  const auto base = static_cast<OpId>(out_.ops.size());
  for (OpId op = piece.first_op; op < piece.first_op + piece.ops; ++op) {
    if (!step.host.empty() && !is_hidden(now_.chunk)) find_blocks(op, static_cast<OpId>(out_.ops.size()));
    copy_op(step.ops[op], t.cut.receives(op));
  }
  for (std::size_t i = piece.begin; i < piece.end; ++i) {
    const Instruction& at = step.instructions[i];
    const OpId op = base + (at.op - piece.first_op);
    if (at.what == Do::alloc) {
      alloc(at.index, op);
    } else if (at.what == Do::free) {
      free(at.index, op, at.stream);
    } else if (at.what == Do::record || at.what == Do::wait) {
      put(at.what, op, own.first_event + (at.index - t.cut.events(own.group).first), at.stream);
    } else {
      if (t.cut.receives(at.op)) wait_for(now_.chunk + 1, false, op);
      put_reads(step.ops[at.index], op);
      put(at.what, op, op, at.stream);
    }
  }
}

/// What an op of the chunk does to blocks on the host, its copy does to the micro-batch's.
void Weaver::find_blocks(OpId of_chunk, OpId op) {
  const Thread& t = thread();
  const Instance& own = instance();
  const std::uint32_t first = t.cut.blocks(own.group).first;
  for (auto [at, end] = t.cut.fills().equal_range(of_chunk); at != end; ++at) {
    const HostBlock& block = t.chunk->step.host[at->second];
    check(out_.host.size() == own.first_block + (at->second - first), "a micro-batch's copies do not stand in a row");
    out_.host.push_back({t.names[block.name], block.bytes, op, no_id});
  }
  for (auto [at, end] = t.cut.empties().equal_range(of_chunk); at != end; ++at)
    out_.host[own.first_block + (at->second - first)].back = op;
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
  if (is_hidden(now_.chunk)) return;
  out_.ops[op].read_begin = static_cast<std::uint32_t>(out_.reads.size());
  for (std::uint32_t r = from.read_begin; r < from.read_end; ++r)
    out_.reads.push_back(mapped(thread().chunk->step.reads[r]));
  out_.ops[op].read_end = static_cast<std::uint32_t>(out_.reads.size());
}

void Weaver::alloc(StorageId id, OpId op) {
  if (is_hidden(now_.chunk)) return;
  Thread& t = thread();
  const bool own = t.cut.place(id) != no_id;
  if (own && t.cut.end(id) == End::input) return;  // received before
  if (!own && t.shared[id] != no_id) return;
  if (!own) t.shared[id] = copy_storage(now_.chunk, id);
  put(Do::alloc, op, mapped(id));
}

void Weaver::free(StorageId id, OpId op, Stream stream) {
  if (is_hidden(now_.chunk)) return;
  Thread& t = thread();
  if (t.cut.end(id) == End::input_gradient) return;  // once it has been sent
  if (t.cut.kept(id)) {
    for (const Instance& micro_batch : t.instances)
      if (micro_batch.group == t.cut.born(id)) put(Do::free, op, micro_batch.own[t.cut.place(id)], stream);
    return;
  }
  const StorageId target = mapped(id);
  check(target != no_id, "a chunk frees what it has not made");
  if (std::erase(early_, target) > 0) return;
  if (target == unsent_) {
    check(stream == Stream::compute, "a chunk's output leaves for the host before it is sent");
    let_go_unsent_ = true;
    return;
  }
  if (target == instance().input) instance().input = no_id;
  const bool shared = target == t.shared[id];
  const bool of_this_step = t.cut.born(id) != no_id && static_cast<int>(t.cut.born(id)) / t.chunk->pieces == now_.step;
  const bool waits = of_this_step ? order_ + 1 < schedule_.micro_batches : order_ > 0;
  if (shared && !in_tail_ && waits) return;
  put(Do::free, op, target, stream);
}

}  // namespace tidemark
