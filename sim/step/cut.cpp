#include "cut.hpp"

#include "tidemark/base/errors.hpp"

namespace tidemark {

Cut::Cut(const ChunkStep& chunk, bool is_last) : chunk_(&chunk), is_last_(is_last) {
  find_ends();
  find_pieces();
  find_own();
  find_copies();
}

bool Cut::receives(OpId op) const {
  return !is_last_ && chunk_->loss_runs_backward && chunk_->step.ops[op].phase == Phase::loss;
}

void Cut::find_ends() {
  const std::array<const std::string*, 5> names = {nullptr, &chunk_->input, &chunk_->output, &chunk_->input_gradient,
                                                   &chunk_->output_gradient};
  const Step& step = chunk_->step;
  ends_.assign(step.storages.size(), End::none);
  given_.fill(no_id);
  for (std::size_t e = 1; e < names.size(); ++e) {
    if (names[e]->empty()) continue;
    for (StorageId id = 0; id < step.storages.size(); ++id)
      if (step.names[step.storages[id].name] == *names[e]) ends_[id] = static_cast<End>(e);
  }
  for (const StorageId id : step.initial)
    if (ends_[id] != End::none) given_[static_cast<std::size_t>(ends_[id])] = id;
}

Part Cut::part_of(OpId id) {
  const StepOp& op = chunk_->step.ops[id];
  const bool with_replicas = op.kind == OpKind::collective && op.layer < 0;
  if (op.phase == Phase::optimizer || with_replicas) return Part::tail;
  const std::uint32_t group_now = group(op.step, op.micro_batch);
  if (group_now != current_) in_backward_ = false;
  current_ = group_now;
  if (op.stream == Stream::copy_in) in_backward_ = true;  // asked for after the loss
  if (op.phase == Phase::backward || op.phase == Phase::recompute || op.is_backward) in_backward_ = true;
  if (op.phase == Phase::loss && chunk_->loss_runs_backward) in_backward_ = true;
  if (!in_backward_) return Part::forward;
  const bool split = !chunk_->weights_begin.empty();
  return split && id >= chunk_->weights_begin[group_now] ? Part::weights : Part::backward;
}

void Cut::find_pieces() {
  const Step& step = chunk_->step;
  pieces_.resize(static_cast<std::size_t>(step.steps) * static_cast<std::size_t>(chunk_->pieces));
  tails_.resize(static_cast<std::size_t>(step.steps));
  OpId last = no_id;
  Piece* now = nullptr;
  for (std::size_t i = 0; i < step.instructions.size(); ++i) {
    const OpId op = step.instructions[i].op;
    check(op != no_id, "a chunk's instruction belongs to no op");
    if (op != last) {
      const Part part = part_of(op);
      Piece& piece = part == Part::tail ? tails_[static_cast<std::size_t>(step.ops[op].step)]
                                        : pieces_[current_][static_cast<std::size_t>(part)];
      if (piece.ops == 0) piece = {i, i, op, 0};
      check(piece.ops == 0 || &piece == now, "a chunk's pieces do not stand together");
      piece.ops = op + 1 - piece.first_op;
      now = &piece;
      last = op;
    }
    now->end = i + 1;
  }
}

Piece Cut::before_optimizer(int step) const {
  Piece out = tail(step);
  const auto is_optimizer = [&](OpId op) { return chunk_->step.ops[op].phase == Phase::optimizer; };
  OpId ops = 0;
  while (ops < out.ops && !is_optimizer(out.first_op + ops)) ++ops;
  out.ops = ops;
  std::size_t end = out.begin;
  while (end < out.end && chunk_->step.instructions[end].op < out.first_op + ops) ++end;
  out.end = end;
  return out;
}

bool Cut::reads(std::uint32_t group, Part part, End end) const {
  const Piece& at = piece(group, part);
  const Step& step = chunk_->step;
  for (OpId op = at.first_op; op < at.first_op + at.ops; ++op)
    for (std::uint32_t r = step.ops[op].read_begin; r < step.ops[op].read_end; ++r)
      if (ends_[step.reads[r]] == end) return true;
  return false;
}

Nanos Cut::length(const Piece& piece, const OpTimes& times) const {
  Nanos sum;
  for (OpId id = piece.first_op; id < piece.first_op + piece.ops; ++id) {
    const StepOp& op = chunk_->step.ops[id];
    check(op.stream == Stream::compute, "a chunk's op is not on the compute stream");
    if (!receives(id)) sum += times.of(op);
  }
  return sum;
}

void Cut::find_copies() {
  const Step& step = chunk_->step;
  events_.resize(pieces_.size());
  blocks_.resize(pieces_.size());
  const auto take = [](Numbers& numbers, std::uint32_t number) {
    if (numbers.count++ == 0) numbers.first = number;
    check(number == numbers.first + numbers.count - 1, "what a micro-batch copies is not numbered in a row");
  };
  for (std::uint32_t b = 0; b < step.host.size(); ++b) {
    const HostBlock& block = step.host[b];
    fills_.emplace(block.out, b);
    if (block.back != no_id) empties_.emplace(block.back, b);
    take(blocks_[group(step.ops[block.out].step, step.ops[block.out].micro_batch)], b);
  }
  for (const Instruction& at : step.instructions)
    if (at.what == Do::record) take(events_[group(step.ops[at.op].step, step.ops[at.op].micro_batch)], at.index);
}

void Cut::find_own() {
  const Step& step = chunk_->step;
  born_.assign(step.storages.size(), no_id);
  place_.assign(step.storages.size(), no_id);
  own_.resize(pieces_.size());
  ByEnd nothing{};
  nothing.fill(no_id);
  made_.assign(pieces_.size(), nothing);
  std::vector<std::uint32_t> died(step.storages.size(), no_id);
  kept_.assign(step.storages.size(), false);
  for (const Piece& tail : tails_)
    for (std::size_t i = tail.begin; i < tail.end; ++i)
      if (const Instruction& at = step.instructions[i]; at.what == Do::free)
        kept_[at.index] = step.storages[at.index].category != Category::gradient;
  for (std::uint32_t g = 0; g < pieces_.size(); ++g)
    for (const Piece& piece : pieces_[g])
      for (std::size_t i = piece.begin; i < piece.end; ++i) {
        const Instruction& at = step.instructions[i];
        if (at.what == Do::alloc) born_[at.index] = g;
        if (at.what == Do::free) died[at.index] = g;
      }
  // A gradient that is sent away does not wait for the next step, as one of the model's input would.
  for (StorageId id = 0; id < step.storages.size(); ++id) {
    if (born_[id] == no_id) continue;
    if (born_[id] != died[id] && ends_[id] != End::input_gradient && !kept_[id]) continue;
    place_[id] = static_cast<std::uint32_t>(own_[born_[id]].size());
    own_[born_[id]].push_back(id);
    StorageId& made = made_[born_[id]][static_cast<std::size_t>(ends_[id])];
    if (made == no_id) made = id;  // a recomputed output is none that is sent
  }
}

}  // namespace tidemark
