/// What does weaving keep in mind while it copies the pieces of chunks?
///
/// Internal to weaving: weave.cpp goes through the schedule, weave_ends.cpp does what crosses the chunks' ends,
/// weave_pieces.cpp copies what a chunk does itself.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cut.hpp"
#include "tidemark/plan/pipeline_schedule.hpp"
#include "tidemark/step/chunk.hpp"
#include "tidemark/step/op_times.hpp"
#include "tidemark/step/step.hpp"
#include "tidemark/step/weave.hpp"

namespace tidemark {

/// A micro-batch on its way through a chunk.
struct Instance {
  std::uint32_t group = no_id;                       // of the chunk's Step that it follows
  std::vector<StorageId> own;                        // by place
  StorageId input = no_id, output_gradient = no_id;  // from outside, where the chunk has them from the start
  std::uint32_t first_event = 0, first_block = 0;    // of its copies to the host
};

/// The rank that is woven op by op, and how long the others' ops take.
struct Shown {
  int rank = 0;
  OpTimes times;
};

class Weaver {
 public:
  Weaver(const std::vector<ChunkStep>& chunks, const PipelineSchedule& schedule, const Transfers& transfers,
         std::optional<Shown> shown)
      : chunks_(chunks), schedule_(schedule), transfers_(transfers), shown_(std::move(shown)) {}

  Step weave(std::vector<OpId>* begins);

 private:
  struct Thread {  // of one chunk
    const ChunkStep* chunk;
    Cut cut;
    std::int32_t first_layer;
    std::vector<NameId> names;
    std::vector<StorageId> shared;  // by the chunk's storages
    std::vector<Instance> instances;
    std::array<int, 3> passes{};  // so far in this step: forwards, backwards, those of weights
  };
  std::int16_t rank_of(std::size_t c) const { return static_cast<std::int16_t>(schedule_.rank_of_chunk[c]); }
  bool is_last(std::size_t c) const { return c + 1 == chunks_.size(); }
  /// Without memory; and with one op a pass, unless copies decide how long that takes.
  bool is_hidden(std::size_t c) const { return shown_ && shown_->rank != rank_of(c); }
  bool is_brief(std::size_t c) const { return is_hidden(c) && chunks_[c].step.host.empty(); }

  void add_chunk(std::size_t c);

  /// Room for all, so that nothing is moved while it grows: a step of millions of ops is hundreds of megabytes.
  void reserve();
  bool comes_from_outside(std::size_t c, StorageId id) const;
  StorageId copy_storage(std::size_t c, StorageId id);

  /// Both ends may come first in the list.
  std::uint32_t event_id(std::size_t c, int m, bool forward);
  void run(const Pass& pass, int step);
  Thread& thread() { return threads_[now_.chunk]; }
  Instance& instance() { return thread().instances[static_cast<std::size_t>(now_.micro_batch)]; }

  /// The pass's number among its chunk's of this kind. The first micro-batch of a step is one of its own; in which
  /// order the others come is all the same.
  void begin_pass(Part part);
  void forward();
  void begin_copies();
  void backward();
  void weights();

  /// A pass of a rank that is not shown.
  void brief(Part part, Phase phase);
  void brief(Nanos length, Phase phase);
  void end_step(std::size_t c, int step);
  void tail(const Piece& piece, Phase phase);
  /// The first and the last chunk add up the gradients of the table that both have.
  void add_shared_gradients();
  StorageId shared_gradient();
  StepOp blank(Stream stream) const;
  OpId open(StepOp op, const std::string& name);
  void read(OpId op, StorageId id);
  void put(Do what, OpId op, std::uint32_t index, Stream stream = Stream::compute) {
    out_.instructions.push_back({what, stream, op, index});
  }

  /// A storage of this micro-batch in the place of one that the chunk alone has from the start.
  StorageId bring(End end);
  /// The one that this micro-batch makes itself.
  StorageId made(End end);

  /// The batch of a micro-batch, or a buffer that the chunk before sends into.
  void receive_input();
  void receive_gradient();

  /// The op starts when the other chunk's data has come.
  void wait_for(std::size_t from, bool is_forward, OpId op);

  /// Leaves when the compute stream has got here; on one rank nothing is sent.
  OpId send(bool is_forward, StorageId sent);
  void send_output();

  /// The gradient of the input goes to the chunk before, then what came from outside goes.
  void finish_backward();

  /// What came from outside: with the weights' pass where that reads it, else with the activations'.
  void let_go_ends(bool of_weights, OpId op);
  StorageId mapped(StorageId id);
  void emit(const Piece& piece);
  void copy_op(StepOp op, bool receives);
  void put_reads(const StepOp& from, OpId op);

  /// What is shared is made once; later micro-batches add to it.
  void alloc(StorageId id, OpId op);
  void free(StorageId id, OpId op, Stream stream);
  void find_blocks(OpId of_chunk, OpId op);

  const std::vector<ChunkStep>& chunks_;
  const PipelineSchedule& schedule_;
  const Transfers& transfers_;
  const std::optional<Shown> shown_;  // all ranks without one
  Step out_;
  std::vector<Thread> threads_;
  std::vector<std::uint32_t> events_;         // by chunk, direction and micro-batch, of the present step
  std::array<std::uint32_t, 2> at_shared_{};  // events: the first and the last chunk have their gradients of the table
  std::vector<StorageId> early_;              // outputs that went when they had been sent
  struct Now {
    std::size_t chunk = 0;
    int micro_batch = 0, step = 0;
  } now_;
  StorageId unsent_ = no_id;    // the output of the forward at hand
  bool let_go_unsent_ = false;  // nobody in the chunk holds it any more
  bool in_tail_ = false;        // behind the step's micro-batches
  int order_ = 0;               // of the pass among its chunk's forwards or backwards
};

}  // namespace tidemark
