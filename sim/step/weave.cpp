#include "tidemark/step/weave.hpp"

#include <algorithm>
#include <utility>

#include "tidemark/base/device.hpp"
#include "tidemark/base/errors.hpp"
#include "weaver.hpp"

namespace tidemark {

Step Weaver::weave(std::vector<OpId>* begins) {
  out_.ranks = static_cast<int>(schedule_.ranks.size());
  out_.steps = chunks_.front().step.steps;
  out_.in_flight = most_in_flight(schedule_);
  for (std::size_t c = 0; c < chunks_.size(); ++c) add_chunk(c);
  reserve();
  for (int s = 0; s < out_.steps; ++s) {
    events_.assign(2 * chunks_.size() * static_cast<std::size_t>(schedule_.micro_batches), no_id);
    at_shared_ = {no_id, no_id};
    for (std::size_t r = 0; r < schedule_.ranks.size(); ++r) {
      for (const Pass& pass : schedule_.ranks[r]) {
        if (begins != nullptr) begins->push_back(static_cast<OpId>(out_.ops.size()));
        run(pass, s);
      }
      if (begins != nullptr) begins->push_back(static_cast<OpId>(out_.ops.size()));
      for (std::size_t c = 0; c < chunks_.size(); ++c)
        if (rank_of(c) == static_cast<std::int16_t>(r)) end_step(c, s);
    }
  }
  return std::move(out_);
}

void Weaver::add_chunk(std::size_t c) {
  const Step& step = chunks_[c].step;
  check(step.steps == out_.steps, "a pipeline's chunks run different numbers of steps");
  Thread thread{&chunks_[c], Cut(chunks_[c], is_last(c)), static_cast<std::int32_t>(out_.layers.size()), {}, {}, {},
                {}};
  for (NameId id = 0; id < step.names.size(); ++id) thread.names.push_back(out_.names.id(step.names[id]));
  thread.shared.assign(step.storages.size(), no_id);
  thread.instances.resize(static_cast<std::size_t>(schedule_.micro_batches));
  out_.layers.insert(out_.layers.end(), step.layers.begin(), step.layers.end());
  out_.parameters += step.parameters;
  out_.model_flops += Flops{step.model_flops.count / thread.chunk->pieces * schedule_.micro_batches};
  for (const std::string& warning : step.warnings)
    if (std::ranges::find(out_.warnings, warning) == out_.warnings.end()) out_.warnings.push_back(warning);
  threads_.push_back(std::move(thread));
  for (const StorageId id : step.initial) {
    if (comes_from_outside(c, id) || is_hidden(c)) continue;
    out_.initial.push_back(threads_[c].shared[id] = copy_storage(c, id));
  }
}

void Weaver::reserve() {
  const auto times = static_cast<std::size_t>(schedule_.micro_batches);
  std::size_t ops = 0, instructions = 0, reads = 0, storages = out_.storages.size();
  for (std::size_t c = 0; c < threads_.size(); ++c) {
    if (is_brief(c)) continue;
    const Thread& thread = threads_[c];
    // The last micro-batch of each step of the chunk alone stands for all; the first does a little less or more.
    const Step& step = thread.chunk->step;
    const auto pieces = static_cast<std::size_t>(thread.chunk->pieces);
    ops += (step.ops.size() / pieces + 4 * static_cast<std::size_t>(step.steps)) * times;
    instructions += (step.instructions.size() / pieces + 16 * static_cast<std::size_t>(step.steps)) * times;
    reads += (step.reads.size() / pieces + 4 * static_cast<std::size_t>(step.steps)) * times;
    storages += step.storages.size() / pieces * times;
  }
  out_.ops.reserve(ops);
  out_.instructions.reserve(instructions);
  out_.reads.reserve(reads);
  out_.storages.reserve(storages);
}

bool Weaver::comes_from_outside(std::size_t c, StorageId id) const {
  const End end = threads_[c].cut.end(id);
  return end == End::input || end == End::output_gradient;
}

StorageId Weaver::copy_storage(std::size_t c, StorageId id) {
  StepStorage copy = threads_[c].chunk->step.storages[id];
  copy.name = threads_[c].names[copy.name];
  if (copy.layer >= 0) copy.layer += threads_[c].first_layer;
  copy.rank = rank_of(c);
  out_.storages.push_back(copy);
  return static_cast<StorageId>(out_.storages.size() - 1);
}

std::uint32_t Weaver::event_id(std::size_t c, int m, bool forward) {
  std::uint32_t& id = events_[(2 * c + (forward ? 0 : 1)) * static_cast<std::size_t>(schedule_.micro_batches) +
                              static_cast<std::size_t>(m)];
  if (id == no_id) id = out_.events++;
  return id;
}

void Weaver::run(const Pass& pass, int step) {
  now_ = {static_cast<std::size_t>(pass.chunk), pass.micro_batch, step};
  if (pass.kind == PassKind::forward) forward();
  if (pass.backs_activations()) backward();
  if (pass.backs_weights() && !thread().chunk->weights_begin.empty()) weights();
}

void Weaver::begin_pass(Part part) {
  Thread& t = thread();
  order_ = t.passes[static_cast<std::size_t>(part)]++;
  const std::uint32_t group = t.cut.group(now_.step, order_ == 0 ? 0 : t.chunk->pieces - 1);
  if (part == Part::forward) instance() = {.group = group};
  if (group != instance().group)
    throw InputError("chunk " + std::to_string(now_.chunk) + ": micro-batch " + std::to_string(now_.micro_batch) +
                     " runs backward in another order than forward; expected the same order");
}

void Weaver::forward() {
  begin_pass(Part::forward);
  Thread& t = thread();
  Instance& own = instance();
  if (is_brief(now_.chunk)) {
    brief(Part::forward, Phase::forward);
  } else {
    if (!is_hidden(now_.chunk))
      for (const StorageId id : t.cut.own(own.group)) own.own.push_back(copy_storage(now_.chunk, id));
    receive_input();
    begin_copies();
    unsent_ = is_last(now_.chunk) ? no_id : made(End::output);
    let_go_unsent_ = false;
    emit(t.cut.piece(own.group, Part::forward));
    unsent_ = no_id;
  }
  if (!is_last(now_.chunk)) send_output();
}

/// Events and blocks of a micro-batch stand in a row, as in the chunk alone.
void Weaver::begin_copies() {
  Instance& own = instance();
  own.first_event = out_.events;
  out_.events += thread().cut.events(own.group).count;
  own.first_block = static_cast<std::uint32_t>(out_.host.size());
}

void Weaver::backward() {
  begin_pass(Part::backward);
  const Thread& t = thread();
  if (is_brief(now_.chunk)) {
    brief(Part::backward, Phase::backward);
    if (now_.chunk > 0) send(false, no_id);
    return;
  }
  if (!is_last(now_.chunk) && !t.chunk->output_gradient.empty()) receive_gradient();
  emit(t.cut.piece(instance().group, Part::backward));
  finish_backward();
}

void Weaver::weights() {
  begin_pass(Part::weights);
  if (is_brief(now_.chunk)) return brief(Part::weights, Phase::backward);
  emit(thread().cut.piece(instance().group, Part::weights));
  let_go_ends(true, out_.instructions.back().op);
}

void Weaver::brief(Part part, Phase phase) {
  const Thread& t = thread();
  brief(t.cut.length(t.cut.piece(instance().group, part), shown_->times), phase);
  const auto op = static_cast<OpId>(out_.ops.size() - 1);
  if (part == Part::forward && now_.chunk > 0) wait_for(now_.chunk - 1, true, op);
  if (part == Part::backward && !is_last(now_.chunk)) wait_for(now_.chunk + 1, false, op);
  put(Do::compute, op, op);
}

void Weaver::brief(Nanos length, Phase phase) {
  StepOp op = blank(Stream::compute);
  op.phase = phase;
  op.time = length;
  open(op, std::string(to_string(phase)));
}

void Weaver::end_step(std::size_t c, int step) {
  now_ = {c, schedule_.micro_batches - 1, step};
  order_ = schedule_.micro_batches - 1;
  in_tail_ = true;
  const Piece all = thread().cut.tail(step);
  const Piece before = thread().cut.before_optimizer(step);
  const Piece behind{before.end, all.end, before.first_op + before.ops, all.ops - before.ops};
  if (before.ops > 0) tail(before, Phase::communication);
  if (!thread().chunk->shared_gradient.empty()) add_shared_gradients();
  tail(behind, Phase::optimizer);
  in_tail_ = false;
  thread().passes = {};
}

void Weaver::tail(const Piece& piece, Phase phase) {
  if (!is_brief(now_.chunk)) return emit(piece);
  brief(thread().cut.length(piece, shown_->times), phase);
  const auto op = static_cast<OpId>(out_.ops.size() - 1);
  put(Do::compute, op, op);
}

StepOp Weaver::blank(Stream stream) const {
  StepOp op;
  op.phase = Phase::communication;
  op.stream = stream;
  op.step = static_cast<std::int16_t>(now_.step);
  op.micro_batch = now_.micro_batch;
  op.rank = rank_of(now_.chunk);
  op.layer = threads_[now_.chunk].first_layer;
  op.has_time = true;
  op.read_begin = op.read_end = static_cast<std::uint32_t>(out_.reads.size());
  return op;
}

OpId Weaver::open(StepOp op, const std::string& name) {
  op.name = out_.names.id(name);
  out_.ops.push_back(op);
  return static_cast<OpId>(out_.ops.size() - 1);
}

void Weaver::read(OpId op, StorageId id) {
  if (id == no_id || out_.storages[id].bytes.count == 0) return;
  out_.reads.push_back(id);
  out_.ops[op].read_end = static_cast<std::uint32_t>(out_.reads.size());
}

namespace {

Step woven(const std::vector<ChunkStep>& chunks, const PipelineSchedule& schedule, const Transfers& transfers,
           std::optional<Shown> shown, std::vector<OpId>* begins) {
  check(!chunks.empty() && static_cast<int>(chunks.size()) == schedule.chunks(), "a schedule of other chunks");
  return Weaver(chunks, schedule, transfers, std::move(shown)).weave(begins);
}

}  // namespace

Nanos transfer_duration(const Transfers& transfers, int from, int to, Bytes bytes) {
  const int per_node = transfers.per_node;
  const bool within = per_node == 0 || from / per_node == to / per_node;
  return within ? transfers.time + copy_duration(transfers.bandwidth, bytes)
                : transfers.node_time + copy_duration(transfers.node_bandwidth, bytes);
}

Nanos mean_transfer(const Transfers& transfers, int ranks, Bytes bytes) {
  Nanos sum;
  for (int r = 0; r + 1 < ranks; ++r) sum += transfer_duration(transfers, r, r + 1, bytes);
  return ranks > 1 ? Nanos{sum.count / (ranks - 1)} : transfer_duration(transfers, 0, 0, bytes);
}

Step weave(const std::vector<ChunkStep>& chunks, const PipelineSchedule& schedule, const Transfers& transfers,
           std::vector<OpId>* begins) {
  return woven(chunks, schedule, transfers, std::nullopt, begins);
}

Step weave_rank(const std::vector<ChunkStep>& chunks, const PipelineSchedule& schedule, const Transfers& transfers,
                int rank, const Device& device, std::vector<OpId>* begins) {
  return woven(chunks, schedule, transfers, Shown{rank, OpTimes(device)}, begins);
}

}  // namespace tidemark
