#include <algorithm>

#include "tidemark/base/errors.hpp"
#include "weaver.hpp"

namespace tidemark {

StorageId Weaver::bring(End end) {
  if (is_hidden(now_.chunk)) return no_id;
  const StorageId given = thread().cut.given(end);
  if (given == no_id) return no_id;
  const StorageId id = copy_storage(now_.chunk, given);
  out_.storages[id].outlives_step = false;
  return id;
}

StorageId Weaver::made(End end) {
  if (is_hidden(now_.chunk)) return no_id;
  const StorageId id = thread().cut.made(end, instance().group);
  return id == no_id ? no_id : instance().own[thread().cut.place(id)];
}

void Weaver::receive_input() {
  const bool first = now_.chunk == 0;
  StorageId buffer = made(End::input);
  if (buffer == no_id) buffer = instance().input = bring(End::input);
  if (first && buffer == no_id) return;
  const OpId op = open(blank(Stream::compute), first ? "batch" : "receive_forward");
  if (buffer != no_id && out_.storages[buffer].bytes.count > 0) put(Do::alloc, op, buffer);
  if (!first) wait_for(now_.chunk - 1, true, op);
  read(op, buffer);
  put(Do::compute, op, op);
}

void Weaver::receive_gradient() {
  const StorageId buffer = instance().output_gradient = bring(End::output_gradient);
  check(buffer != no_id || is_hidden(now_.chunk), "a chunk's gradient of its output is not there");
  const OpId op = open(blank(Stream::compute), "receive_backward");
  if (buffer != no_id) put(Do::alloc, op, buffer);
  wait_for(now_.chunk + 1, false, op);
  read(op, buffer);
  put(Do::compute, op, op);
}

void Weaver::wait_for(std::size_t from, bool is_forward, OpId op) {
  const std::uint32_t event = event_id(from, now_.micro_batch, is_forward);
  const auto later = static_cast<std::size_t>(std::max(from, now_.chunk));
  const int ranks = out_.ranks;
  const bool turns = rank_of(later) == 0 && rank_of(later - 1) == ranks - 1;
  if (transfers_.first_of_group_waits && turns && now_.micro_batch % ranks != 0) return;
  put(Do::wait, op, event);
}

OpId Weaver::send(bool is_forward, StorageId sent) {
  const std::size_t to = is_forward ? now_.chunk + 1 : now_.chunk - 1;
  const Bytes bytes = is_forward ? thread().chunk->output_bytes : thread().chunk->input_bytes;
  const bool far = rank_of(to) != rank_of(now_.chunk);
  StepOp blank_op = blank(Stream::comm);
  if (far) {
    blank_op.time = transfer_duration(transfers_, rank_of(now_.chunk), rank_of(to), bytes);
    blank_op.moved = bytes;
  }
  const OpId op = open(blank_op, is_forward ? "send_forward" : "send_backward");
  const std::uint32_t event = event_id(now_.chunk, now_.micro_batch, is_forward);
  read(op, sent);
  put(Do::compute, op, op, Stream::comm);
  put(Do::record, op, event, Stream::comm);
  if (far && transfers_.blocking) put(Do::wait, op, event);
  return op;
}

/// The one that this step's micro-batches added to.
StorageId Weaver::shared_gradient() {
  const Thread& t = thread();
  const Step& step = t.chunk->step;
  for (StorageId id = 0; id < step.storages.size(); ++id) {
    if (step.names[step.storages[id].name] != t.chunk->shared_gradient || t.shared[id] == no_id) continue;
    const std::uint32_t born = t.cut.born(id);
    if (born == no_id || static_cast<int>(born) / t.chunk->pieces == now_.step) return t.shared[id];
  }
  return no_id;
}

/// An all-reduce of two ranks in a ring passes each way half of the bytes, twice. Megatron-LM: finalize_model_grads.py,
/// the embedding group.
void Weaver::add_shared_gradients() {
  const std::size_t last = chunks_.size() - 1;
  const std::size_t other = now_.chunk == 0 ? last : 0;
  if (rank_of(other) == rank_of(now_.chunk)) return;  // added in place
  const bool is_last = now_.chunk == last;
  for (std::uint32_t& event : at_shared_)
    if (event == no_id) event = out_.events++;
  StepOp op = blank(Stream::compute);
  op.kind = OpKind::collective;
  op.moved = thread().chunk->shared_bytes;
  op.time = 2 * transfer_duration(transfers_, rank_of(0), rank_of(last), Bytes{(op.moved.count + 1) / 2});
  const OpId id = open(op, "embedding.gradient.all_reduce");
  put(Do::record, id, at_shared_[is_last ? 1 : 0]);
  put(Do::wait, id, at_shared_[is_last ? 0 : 1]);
  if (!is_hidden(now_.chunk)) read(id, shared_gradient());
  put(Do::compute, id, id);
}

void Weaver::send_output() {
  const StorageId sent = made(End::output);
  const OpId op = send(true, sent);
  if (sent == no_id) return;
  const Cut& cut = thread().cut;
  const std::uint32_t group = instance().group;
  const bool is_read = cut.reads(group, Part::backward, End::output) || cut.reads(group, Part::weights, End::output);
  const bool early = transfers_.free_outputs && !let_go_unsent_ && !is_read;
  if (early || let_go_unsent_) put(Do::free, op, sent, Stream::comm);
  if (early) early_.push_back(sent);
}

void Weaver::finish_backward() {
  const StorageId gradient = made(End::input_gradient);
  const OpId op = now_.chunk > 0 ? send(false, gradient) : static_cast<OpId>(out_.instructions.back().op);
  if (gradient != no_id && out_.storages[gradient].bytes.count > 0)
    put(Do::free, op, gradient, now_.chunk > 0 ? Stream::comm : Stream::compute);
  let_go_ends(false, op);
}

void Weaver::let_go_ends(bool of_weights, OpId op) {
  Instance& own = instance();
  const Cut& cut = thread().cut;
  for (const End end : {End::input, End::output_gradient}) {
    const StorageId id = end == End::input ? own.input : own.output_gradient;
    if (id == no_id || out_.storages[id].bytes.count == 0) continue;
    if (cut.reads(own.group, Part::weights, end) == of_weights) put(Do::free, op, id);
  }
}

}  // namespace tidemark
