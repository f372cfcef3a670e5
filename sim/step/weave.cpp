#include "tidemark/step/weave.hpp"

#include <algorithm>
#include <utility>

#include "cut.hpp"
#include "tidemark/base/device.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

/// A micro-batch on its way through a chunk.
struct Instance {
  std::uint32_t group = no_id;                       // of the chunk's Step that it follows
  std::vector<StorageId> own;                        // by place
  StorageId input = no_id, output_gradient = no_id;  // from outside, where the chunk has them from the start
};

class Weaver {
 public:
  Weaver(const std::vector<ChunkStep>& chunks, const PipelineSchedule& schedule, const Transfers& transfers)
      : chunks_(chunks), schedule_(schedule), transfers_(transfers) {}

  Step weave() {
    out_.ranks = static_cast<int>(schedule_.ranks.size());
    out_.steps = chunks_.front().step.steps;
    out_.in_flight = most_in_flight(schedule_);
    for (std::size_t c = 0; c < chunks_.size(); ++c) add_chunk(c);
    for (int s = 0; s < out_.steps; ++s) {
      events_.assign(2 * chunks_.size() * static_cast<std::size_t>(schedule_.micro_batches), no_id);
      for (std::size_t r = 0; r < schedule_.ranks.size(); ++r) {
        for (const Pass& pass : schedule_.ranks[r]) run(pass, s);
        for (std::size_t c = 0; c < chunks_.size(); ++c)
          if (rank_of(c) == static_cast<std::int16_t>(r)) end_step(c, s);
      }
    }
    return std::move(out_);
  }

 private:
  struct Thread {  // of one chunk
    const ChunkStep* chunk;
    Cut cut;
    std::int32_t first_layer;
    std::vector<NameId> names;
    std::vector<StorageId> shared;  // by the chunk's storages
    std::vector<Instance> instances;
    int forwards = 0, backwards = 0;  // so far in this step
  };

  std::int16_t rank_of(std::size_t c) const { return static_cast<std::int16_t>(schedule_.rank_of_chunk[c]); }
  bool is_last(std::size_t c) const { return c + 1 == chunks_.size(); }

  void add_chunk(std::size_t c) {
    const Step& step = chunks_[c].step;
    check(step.steps == out_.steps, "a pipeline's chunks run different numbers of steps");
    Thread thread{&chunks_[c], Cut(chunks_[c], is_last(c)), static_cast<std::int32_t>(out_.layers.size()), {}, {}, {}};
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
      if (comes_from_outside(c, id)) continue;
      out_.initial.push_back(threads_[c].shared[id] = copy_storage(c, id));
    }
  }

  bool comes_from_outside(std::size_t c, StorageId id) const {
    const End end = threads_[c].cut.end(id);
    return end == End::input || end == End::output_gradient;
  }

  StorageId copy_storage(std::size_t c, StorageId id) {
    StepStorage copy = threads_[c].chunk->step.storages[id];
    copy.name = threads_[c].names[copy.name];
    if (copy.layer >= 0) copy.layer += threads_[c].first_layer;
    copy.rank = rank_of(c);
    out_.storages.push_back(copy);
    return static_cast<StorageId>(out_.storages.size() - 1);
  }

  /// Both ends may come first in the list.
  std::uint32_t event_id(std::size_t c, int m, bool forward) {
    std::uint32_t& id = events_[(2 * c + (forward ? 0 : 1)) * static_cast<std::size_t>(schedule_.micro_batches) +
                                static_cast<std::size_t>(m)];
    if (id == no_id) id = out_.events++;
    return id;
  }

  void run(const Pass& pass, int step) {
    now_ = {static_cast<std::size_t>(pass.chunk), pass.micro_batch, step};
    if (pass.kind == PassKind::forward) return forward();
    if (pass.backs_activations()) backward();
    if (pass.backs_weights()) weights();
  }

  Thread& thread() { return threads_[now_.chunk]; }
  Instance& instance() { return thread().instances[static_cast<std::size_t>(now_.micro_batch)]; }

  void forward() {
    Thread& t = thread();
    Instance& own = instance();
    const int kind = t.forwards++ == 0 ? 0 : t.chunk->pieces - 1;
    own = {.group = t.cut.group(now_.step, kind)};
    for (const StorageId id : t.cut.own(own.group)) own.own.push_back(copy_storage(now_.chunk, id));
    order_ = t.forwards - 1;
    receive_input();
    unsent_ = is_last(now_.chunk) ? no_id : made(End::output);
    let_go_unsent_ = false;
    emit(t.cut.piece(own.group, Part::forward));
    unsent_ = no_id;
    if (!is_last(now_.chunk)) send("send_forward", true, End::output, t.chunk->output_bytes);
  }

  void backward() {
    Thread& t = thread();
    order_ = t.backwards++;
    const std::uint32_t expected = t.cut.group(now_.step, order_ == 0 ? 0 : t.chunk->pieces - 1);
    if (expected != instance().group)
      throw InputError("chunk " + std::to_string(now_.chunk) + ": micro-batch " + std::to_string(now_.micro_batch) +
                       " runs backward in another order than forward; expected the same order");
    if (!is_last(now_.chunk) && !t.chunk->output_gradient.empty()) receive_gradient();
    emit(t.cut.piece(instance().group, Part::backward));
    finish_backward();
  }

  void weights() {
    Thread& t = thread();
    if (t.chunk->weights_begin.empty()) return;
    emit(t.cut.piece(instance().group, Part::weights));
  }

  void end_step(std::size_t c, int step) {
    now_ = {c, schedule_.micro_batches - 1, step};
    order_ = schedule_.micro_batches - 1;
    emit(thread().cut.tail(step));
    thread().forwards = thread().backwards = 0;
  }

  StepOp blank(Stream stream) const {
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
  OpId open(StepOp op, const std::string& name) {
    op.name = out_.names.id(name);
    out_.ops.push_back(op);
    return static_cast<OpId>(out_.ops.size() - 1);
  }
  void read(OpId op, StorageId id) {
    if (id == no_id || out_.storages[id].bytes.count == 0) return;
    out_.reads.push_back(id);
    out_.ops[op].read_end = static_cast<std::uint32_t>(out_.reads.size());
  }
  void put(Do what, OpId op, std::uint32_t index, Stream stream = Stream::compute) {
    out_.instructions.push_back({what, stream, op, index});
  }

  /// A storage of this micro-batch in the place of one that the chunk alone has from the start.
  StorageId bring(End end) {
    const StorageId given = thread().cut.given(end);
    if (given == no_id) return no_id;
    const StorageId id = copy_storage(now_.chunk, given);
    out_.storages[id].outlives_step = false;
    return id;
  }
  /// The one that this micro-batch makes itself.
  StorageId made(End end) {
    const StorageId id = thread().cut.made(end, instance().group);
    return id == no_id ? no_id : instance().own[thread().cut.place(id)];
  }

  /// The batch of a micro-batch, or a buffer that the chunk before sends into.
  void receive_input() {
    const bool first = now_.chunk == 0;
    StorageId buffer = made(End::input);
    if (buffer == no_id) buffer = instance().input = bring(End::input);
    if (first && buffer == no_id) return;
    const OpId op = open(blank(Stream::compute), first ? "batch" : "receive_forward");
    if (buffer != no_id && out_.storages[buffer].bytes.count > 0) put(Do::alloc, op, buffer);
    if (!first) put(Do::wait, op, event_id(now_.chunk - 1, now_.micro_batch, true));
    read(op, buffer);
    put(Do::compute, op, op);
  }

  void receive_gradient() {
    const StorageId buffer = instance().output_gradient = bring(End::output_gradient);
    check(buffer != no_id, "a chunk's gradient of its output is not there");
    const OpId op = open(blank(Stream::compute), "receive_backward");
    put(Do::alloc, op, buffer);
    put(Do::wait, op, event_id(now_.chunk + 1, now_.micro_batch, false));
    read(op, buffer);
    put(Do::compute, op, op);
  }

  /// Leaves when the compute stream has got here; on one rank nothing is sent.
  OpId send(const std::string& name, bool is_forward, End what, Bytes bytes) {
    const std::size_t to = is_forward ? now_.chunk + 1 : now_.chunk - 1;
    StepOp blank_op = blank(Stream::comm);
    if (rank_of(to) != rank_of(now_.chunk)) {
      blank_op.time = transfers_.time + copy_duration(transfers_.bandwidth, bytes);
      blank_op.moved = bytes;
    }
    const OpId op = open(blank_op, name);
    const StorageId sent = made(what);
    read(op, sent);
    put(Do::compute, op, op, Stream::comm);
    put(Do::record, op, event_id(now_.chunk, now_.micro_batch, is_forward), Stream::comm);
    if (is_forward && sent != no_id) {
      const bool early = transfers_.free_outputs && !let_go_unsent_ && !read_in_backward(what);
      if (early || let_go_unsent_) put(Do::free, op, sent, Stream::comm);
      if (early) early_.push_back(sent);
    }
    return op;
  }

  /// Of the chunk's own backward: then it cannot go early.
  bool read_in_backward(End what) {
    const Thread& t = thread();
    const Piece& piece = t.cut.piece(instance().group, Part::backward);
    const Step& step = t.chunk->step;
    for (OpId op = piece.first_op; op < piece.first_op + piece.ops; ++op)
      for (std::uint32_t r = step.ops[op].read_begin; r < step.ops[op].read_end; ++r)
        if (t.cut.end(step.reads[r]) == what) return true;
    return false;
  }

  /// The gradient of the input goes to the chunk before, then what came from outside goes.
  void finish_backward() {
    const Thread& t = thread();
    Instance& own = instance();
    const StorageId gradient = made(End::input_gradient);
    const OpId op = now_.chunk > 0 ? send("send_backward", false, End::input_gradient, t.chunk->input_bytes)
                                   : static_cast<OpId>(out_.instructions.back().op);
    if (gradient != no_id && out_.storages[gradient].bytes.count > 0)
      put(Do::free, op, gradient, now_.chunk > 0 ? Stream::comm : Stream::compute);
    for (const StorageId id : {own.input, own.output_gradient})
      if (id != no_id && out_.storages[id].bytes.count > 0) put(Do::free, op, id);
  }

  StorageId mapped(StorageId id) {
    const Thread& t = thread();
    if (t.cut.place(id) != no_id && t.cut.born(id) == instance().group) return instance().own[t.cut.place(id)];
    if (id == t.cut.given(End::input)) return instance().input;
    if (id == t.cut.given(End::output_gradient)) return instance().output_gradient;
    return t.shared[id];
  }

  void emit(const Piece& piece) {
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
        if (t.cut.receives(at.op)) put(Do::wait, op, event_id(now_.chunk + 1, now_.micro_batch, false));
        put_reads(step.ops[at.index], op);
        put(Do::compute, op, op);
      }
    }
  }

  void copy_op(StepOp op, bool receives) {
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

  void put_reads(const StepOp& from, OpId op) {
    out_.ops[op].read_begin = static_cast<std::uint32_t>(out_.reads.size());
    for (std::uint32_t r = from.read_begin; r < from.read_end; ++r)
      out_.reads.push_back(mapped(thread().chunk->step.reads[r]));
    out_.ops[op].read_end = static_cast<std::uint32_t>(out_.reads.size());
  }

  /// What is shared is made once; later micro-batches add to it.
  void alloc(StorageId id, OpId op) {
    Thread& t = thread();
    const bool own = t.cut.place(id) != no_id;
    if (own && t.cut.end(id) == End::input) return;  // received before
    if (!own && t.shared[id] != no_id) return;
    if (!own) t.shared[id] = copy_storage(now_.chunk, id);
    put(Do::alloc, op, mapped(id));
  }

  void free(StorageId id, OpId op) {
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
    const bool of_this_step =
        t.cut.born(id) != no_id && static_cast<int>(t.cut.born(id)) / t.chunk->pieces == now_.step;
    const bool waits = of_this_step ? order_ + 1 < schedule_.micro_batches : order_ > 0;
    if (shared && in_micro_batch(op) && waits) return;
    put(Do::free, op, target);
  }
  bool in_micro_batch(OpId op) const { return out_.ops[op].phase != Phase::optimizer; }

  const std::vector<ChunkStep>& chunks_;
  const PipelineSchedule& schedule_;
  const Transfers& transfers_;
  Step out_;
  std::vector<Thread> threads_;
  std::vector<std::uint32_t> events_;  // by chunk, direction and micro-batch, of the present step
  std::vector<StorageId> early_;       // outputs that went when they had been sent
  struct Now {
    std::size_t chunk = 0;
    int micro_batch = 0, step = 0;
  } now_;
  StorageId unsent_ = no_id;    // the output of the forward at hand
  bool let_go_unsent_ = false;  // nobody in the chunk holds it any more
  int order_ = 0;               // of the pass among its chunk's forwards or backwards
};

}  // namespace

Step weave(const std::vector<ChunkStep>& chunks, const PipelineSchedule& schedule, const Transfers& transfers) {
  check(!chunks.empty() && static_cast<int>(chunks.size()) == schedule.chunks(), "a schedule of other chunks");
  return Weaver(chunks, schedule, transfers).weave();
}

}  // namespace tidemark
